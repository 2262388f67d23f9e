"""A served model for a test: the trainers are processes, the model side runs in the test's own loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from saros.adapters.kafka import Admin, Reader, Writer
from saros.adapters.redis import Store
from saros.api.model import ApiPlan, Model, Wish
from saros.core.events import CLICK, IMPRESSION
from saros.redo.fence import unpack_fence, unpack_vector
from saros.settings import load
from saros.wire.encode import event_of
from saros.wire.partitions import partitions_of
from saros.wire.v1.events_pb2 import Event
from tests.trainer.runs import PARTITIONS
from tests.trainer.runs import Model as Trained

PATIENCE_S = 30.0
SHARDS = 16


def plan_of(trained: Trained, **more: Any) -> ApiPlan:
    """Return what an API of this model is told."""
    settings = load(trained.settings)
    plan = ApiPlan(
        model=trained.name,
        cluster=settings.kafka.cluster(),
        store=settings.redis.address(),
        items_max=settings.model.items_max,
        lag_max_s=10.0,
        cache_users=10_000,
        step=settings.step.rules(),
        session=settings.session.rules(),
        gate=settings.gate.rules(),
    )
    return plan._replace(**more)


@asynccontextmanager
async def serving(trained: Trained, *, ready: bool = True, **more: Any) -> AsyncIterator[Model]:
    """A model that is served, ready if it is to be."""
    model = Model(plan_of(trained, **more))
    await model.start()
    try:
        if ready:
            await until(lambda: not model.why_not_ready(), lambda: f"{model.why_not_ready()}\n{trained.logs()}")
        yield model
    finally:
        await model.close()


async def until(
    true: Callable[[], object], what: Callable[[], str] = lambda: "", timeout_s: float = PATIENCE_S
) -> None:
    """Wait until something is so."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not true():
        assert loop.time() < deadline, what()
        await asyncio.sleep(0.01)


async def reached(model: Model, trained: Trained) -> None:
    """Wait until all events that were sent are folded."""
    reader = Reader(trained.cluster, f"{trained.name}-ends")
    ends = [reader.watermarks(trained.topics.events, partition)[1] for partition in range(PARTITIONS)]
    reader.close()
    token = ",".join(f"{partition}:{end - 1}" for partition, end in enumerate(ends) if end)
    (answer,) = await model.recommend([Wish(token=token, wait_ms=int(1000 * PATIENCE_S))])
    assert answer.token_reached, trained.logs()


async def written(trained: Trained) -> None:
    """Wait until the store has all of the log."""
    reader, store = Reader(trained.cluster, f"{trained.name}-ends"), Store(plan_of(trained).store, trained.name, SHARDS)
    ends = [reader.watermarks(trained.topics.redo, partition)[1] for partition in range(PARTITIONS)]

    def is_there() -> bool:
        vectors = [store.read_vector(shard) for shard in range(SHARDS)]
        items = [unpack_vector(vector, PARTITIONS) for vector in vectors if vector]
        heads = [store.read_head(partition) for partition in range(PARTITIONS)]
        return (
            len(items) == SHARDS
            and all(fence.offset + 1 == end for each in items for fence, end in zip(each, ends, strict=True))
            and all(
                (unpack_fence(head).nonce if head else 0) == at.nonce for head, at in zip(heads, items[0], strict=True)
            )
        )

    await until(is_there, trained.logs)
    reader.close()
    store.close()


def trim_all(trained: Trained) -> None:
    """Let go of all of the redo topic."""
    reader, admin = Reader(trained.cluster, f"{trained.name}-ends"), Admin(trained.cluster)
    for partition in range(PARTITIONS):
        admin.trim(trained.topics.redo, partition, reader.watermarks(trained.topics.redo, partition)[1])
    reader.close()


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test in a loop of its own."""
    asyncio.run(work)


class Sender:
    """Sends events of users by name, and says where they stand."""

    def __init__(self, trained: Trained) -> None:
        self._writer, self._trained = Writer(trained.cluster, linger_ms=0), trained
        self._reader = Reader(trained.cluster, f"{trained.name}-tokens")

    def send(self, event: Event) -> str:
        """Send an event; return its token: nobody else sends."""
        who = event.user_id or event.item_upsert.item_id
        home = int(partitions_of([who], PARTITIONS)[0])
        self._writer.send(self._trained.topics.events, home, event.SerializeToString())
        self._writer.flush()
        self._trained.sent += 1
        return f"{home}:{self._reader.watermarks(self._trained.topics.events, home)[1] - 1}"

    def show(self, user: str, *items: str) -> str:
        return self.send(event_of(user, IMPRESSION, list(items), 0))

    def click(self, user: str, item: str) -> str:
        return self.send(event_of(user, CLICK, [item], 0))

    def learn(self, user: str, times: int = 3) -> str:
        """Let a user close so many blocks of its own: a click beside two items that were passed over."""
        token = ""
        for k in range(times):
            self.show(user, f"left/{k}", f"right/{k}", f"{user}/{k}")
            token = self.click(user, f"{user}/{k}")
        return token
