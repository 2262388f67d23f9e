"""A model that knows its answers by heart, for tests of what HTTP makes of them; and a server for it."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import httpx

from saros.adapters.kafka import Cluster, Sender
from saros.adapters.person import Person
from saros.api.access import AccessLog
from saros.api.app import App
from saros.api.gates import Gates
from saros.api.guard import Guard
from saros.api.limits import Limits
from saros.api.model import Waiting
from saros.api.plan import Answer, Call, TokenError, Wish
from saros.api.room import Room
from saros.api.server import Server, listening, new_server
from saros.api.service import Service
from saros.api.views import ItemView
from saros.core.gate import GateRules
from tests.trainer.runs import await_until

TIME_MS = 1_700_000_000_250
ITEMS = [f"item/{k}" for k in range(20)]
WAIT_S = 30.0
PROBLEM = "application/problem+json"
LIMITS = Limits()


class Double:
    """Recommends ITEMS in order, and remembers what it was asked."""

    def __init__(self, partitions: int = 3) -> None:
        self.partitions = partitions
        self.asked: list[Wish] = []
        self.reasons: list[str] = []
        self.dead = ""
        self.closed = False
        self.go_on: asyncio.Event | None = None  # set: `recommend` waits for it
        self.waiting: Waiting = nullcontext  # what it does so in, where a wish has a token
        self.entered = threading.Semaphore(0)
        self.fails: Exception | None = None
        self.gate = Gates(partitions, GateRules())
        self.clicks: float | None = None  # in a block
        self.samples = self.pulses = 0
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        pass

    def end_waits(self) -> None:
        pass

    async def close(self) -> None:
        self.closed = True

    def why_not_ready(self) -> list[str]:
        return self.reasons

    def why_dead(self) -> str:
        return self.dead

    async def recommend(self, wishes: Sequence[Wish]) -> list[Answer]:
        self.asked += wishes
        self.entered.release()
        if self.go_on is not None:
            with self.waiting() if wishes[0].token else nullcontext():
                await self.go_on.wait()
        if self.fails is not None:
            raise self.fails
        return [self._answer(wish, ITEMS) for wish in wishes]

    def serve(self, call: Call) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(call))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, call: Call) -> None:
        try:
            call.resolve(await self.recommend(call.wishes))
        except Exception as error:
            call.fail(error)

    async def rank(self, wish: Wish, candidates: Sequence[str]) -> Answer:
        self.asked.append(wish)
        return self._answer(wish, sorted(candidates))

    def _answer(self, wish: Wish, items: Sequence[str]) -> Answer:
        if wish.token == "none":
            raise TokenError("'none' is no token")
        kept = [item for item in items if item not in wish.exclude][: wish.k]
        notes: list[dict[str, object]] | None = None
        if wish.extras is not None:
            notes = [{"explored": False, "explain": {"rate": 0.5, "nearest_click": None}} for _ in kept]
        return Answer(
            [(item, 1.0 - k / 8) for k, item in enumerate(kept)],
            "model" if wish.user_id else "session" if wish.session else "popular",
            "in_band" if wish.user_id else "cold",
            TIME_MS,
            False,
            wish.wait_ms > 0 if wish.token else None,
            notes,
        )

    def similar(self, item_id: str, k: int, exclude: Sequence[str], category: str) -> list[tuple[str, float]] | None:
        if item_id not in ITEMS:
            return None
        return [(item, 0.5) for item in ITEMS if item != item_id and item not in exclude][:k]

    def popular(self, k: int, category: str) -> list[tuple[str, float]]:
        return [(f"{category}{item}", 0.25) for item in ITEMS[:k]]

    async def reach(self, token: str, wait_ms: int) -> bool | None:
        if token == "none":
            raise TokenError("'none' is no token")
        return wait_ms > 0 if token else None

    def item(self, item_id: str) -> ItemView | None:
        return ItemView(item_id, ["c"], False, TIME_MS, {"a": "b"}, True, 3, 2, 1) if item_id in ITEMS else None

    async def person(self, user_id: str, token: str, wait_ms: int) -> tuple[Person | None, bool | None]:
        if self.fails is not None:
            raise self.fails
        reached = await self.reach(token, wait_ms)
        return None if user_id == "nobody" else Person(2, 9, 8, "in_band", TIME_MS, 4, 7, 1, 3, 6, 2), reached

    def gates(self) -> Gates:
        return self.gate

    def clicks_per_block(self) -> float | None:
        return self.clicks

    def stats(self) -> dict[str, object]:
        return {"items": len(ITEMS)}

    def sample(self) -> None:
        self.samples += 1

    async def pulse(self) -> dict[str, object]:
        self.pulses += 1
        return {"time": TIME_MS / 1000, "number": self.pulses, "ready": not self.reasons}

    def history(self) -> dict[str, object]:
        return {"step_s": 1.0, "points": []}


class Served:
    """A server that runs in a thread, and the model behind it."""

    def __init__(self, model: Double, url: str, app: App, service: Service, server: Server) -> None:
        self.model, self.url, self.app, self.service, self._server = model, url, app, service, server
        self.client = httpx.Client(base_url=url, timeout=WAIT_S)

    def stop(self) -> None:
        """Ask it to end, as a signal does."""
        self._server.should_exit = True


@contextmanager
def served(
    model: Double, *, bootstrap: str = "127.0.0.1:1", topic: str = "nowhere", limits: Limits = LIMITS,
    header_max_bytes: int = 32_768, header_timeout_s: float = 10.0, ack_timeout_s: float = 30.0,
    queue_messages: int = 10_000, guard: Guard | None = None, access: AccessLog | None = None,
) -> Iterator[Served]:  # fmt: skip
    """Serve a model on a free port until the block ends. Without a broker nothing can be sent."""
    sender = Sender(Cluster(bootstrap), ack_timeout_s=ack_timeout_s, messages_max=queue_messages, bytes_max=64 * 2**20)
    room = Room(limits)
    model.waiting = room.wait
    service = Service(model, sender, topic, limits, room)
    failures: list[BaseException | None] = []
    listener = listening("127.0.0.1", 0)
    app = App(service, failures.append, guard, access)
    server = new_server(app, header_max_bytes, header_timeout_s, service.end)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    running = Served(model, f"http://127.0.0.1:{listener.getsockname()[1]}", app, service, server)
    try:
        await_until(lambda: server.started or not thread.is_alive())
        assert server.started
        yield running
    finally:
        running.client.close()
        server.should_exit = True
        thread.join(WAIT_S)
        listener.close()
        assert not thread.is_alive()
        assert failures in ([], [None]), "the model was loaded"


def check_problem(answer: httpx.Response, status: int, name: str, where: str = "") -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == PROBLEM
    told = answer.json()
    assert (told["type"], told["status"]) == (f"urn:saros:problem:{name}", status)
    assert told["title"]
    assert told["detail"]
    if where:
        assert where in [error["name"] for error in told["errors"]], told
