"""What the bench of the trainer measures beside its speed: the shard writer, recoveries, and how things grow."""

import signal
import time
from collections.abc import Iterator

from saros.adapters.kafka import Writer
from saros.adapters.names import topics_of
from saros.adapters.redis import Address, Store
from saros.adapters.redis.client import Client
from saros.adapters.redis.store import script_text
from saros.core.codec_items import pack_items
from saros.core.events import IMPRESSION
from saros.core.items import Items
from saros.core.rows import live_rows
from saros.lab.bench import shapes
from saros.lab.bench.measure import Row, race, row
from saros.lab.bench.trainers import Trainers, await_until
from saros.redo.fence import unpack_fence, unpack_vector
from saros.wire.encode import event_of
from saros.wire.partitions import partitions_of

WRITER_GOAL = 0.8
_ROWS = 2_000  # of a shard that changed within a second
_ROUNDS = 15
_LOST = 3  # the shard, and the partition whose users it holds


def shard_writer(store: Address, dim: int, *, quick: bool = False) -> Row:
    """Rows a second from the table to the store, against the script alone with its arguments made before."""
    model, count = "bench-shards", 50 if quick else _ROWS
    items = Items(live_rows(dim), count)
    keys = shapes.keys(count, 3)
    slots = items.intern(keys)
    writer, bare, vectors = Store(store, model, 16), Client(store), [b"%032d" % k for k in range(1000)]
    script = bare.script(script_text("write_items"))
    names = [writer.keys.vector(1), writer.keys.items(1), writer.keys.names(1)]
    rows = pack_items(items, slots).tobytes()
    arguments = [0, len(rows) // count, keys.tobytes(), rows, b""]
    place = {"writer": 0, "bare": 0}

    def write(_: int) -> None:
        at, place["writer"] = place["writer"], place["writer"] + 1
        before = vectors[at - 1] if at else b""
        assert writer.write_shard(0, before, vectors[at], keys, pack_items(items, slots), {}, whole=False) is None

    def call(_: int) -> None:
        at, place["bare"] = place["bare"], place["bare"] + 1
        script(names, [vectors[at - 1] if at else b"", vectors[at], *arguments])

    ours, least = race(2 if quick else _ROUNDS, [write, call])
    writer.wipe()
    writer.close()
    bare.close()
    return row(
        "write an item shard", "rows/s", count / ours, against="the bare script", peer=count / least,
        ratio=least / ours, goal=WRITER_GOAL, note=f"{count:,} rows of {dim} that changed, the least of some rounds",
    )  # fmt: skip


def recoveries(trainers: Trainers, model: str, partitions: int) -> Iterator[Row]:
    """Seconds until a trainer that was killed is replaced and learns again, and until a lost shard is back."""
    # A name, so that the group knows it again and waits for nobody; small batches, so that there is work all along.
    static = {"SAROS_TRAINER__INSTANCE": "bench", "SAROS_TRAINER__POLL_MESSAGES": "500"}
    first = trainers.start(model, **static)

    def has_learned(ends: list[int]) -> bool:
        return sum(trainers.redo_ends(model, partitions)) > sum(ends)

    await_until(lambda: trainers.has_log(model) and has_learned([2 * partitions]))
    first.send_signal(signal.SIGKILL)
    first.wait()
    ends, start = trainers.redo_ends(model, partitions), time.monotonic()
    second = trainers.start(model, **static)
    await_until(lambda: has_learned(ends))
    yield row(
        "recover from kill -9", "s", time.monotonic() - start,
        note="from the start of the next process to its first record, under the same static name",
    )  # fmt: skip
    store = Store(trainers.store, model, 16)
    await_until(lambda: bool(store.read_vector(_LOST) and store.read_head(_LOST)))
    vector, fence = store.read_vector(_LOST), unpack_fence(store.read_head(_LOST)).offset
    writer, topic = Writer(trainers.cluster), topics_of(model).events
    somebody = next(name for name in map(str, range(1000)) if partitions_of([name], partitions)[0] == _LOST)
    store.wipe(shard=_LOST)

    def is_back() -> bool:
        # Users that are lost are found as the next ones are read or written: the backlog may be at its end.
        writer.send(topic, _LOST, event_of(somebody, IMPRESSION, ["item-1"], 0).SerializeToString())
        items, users = store.read_vector(_LOST), store.read_head(_LOST)
        return (
            bool(items and users)
            and unpack_fence(users).offset >= fence
            and all(
                there.offset >= before.offset
                for there, before in zip(*(unpack_vector(each, partitions) for each in (items, vector)), strict=True)
            )
        )

    yield row(
        "recover a lost shard", "s", await_until(is_back),
        note="its keys deleted under a trainer at work, until its items and its partition's users are where they were",
    )  # fmt: skip
    store.close()
    second.send_signal(signal.SIGTERM)
    second.wait()
