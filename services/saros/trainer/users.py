"""The users of a partition in the store: flushed in the order of the log, read under a fence, and repaired where it
forgot.

The store's fence of a partition says which record its users, ledgers and state are those of. Flushing moves it by
compare-and-swap, in the order of the log, several records as one (rules 14, 15): they wait for each other a while,
since the store's time goes by users and not by records, and nobody needs them there sooner. One write is under way at a
time, in a thread of its own: what it does beside waiting runs without the GIL. Where the fence found is not the one we
left, the store fell back, lost the shard, or another owner went on; what is missing is read again from the log and
flushed.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from typing import Generic, NamedTuple, ParamSpec, TypeVar

import numpy as np

from saros.adapters.redis import Ledgers, Store, Users
from saros.adapters.redo import RedoLog
from saros.core.jit import I32, U64
from saros.errors import RefusedError
from saros.redo.fence import FENCE_BYTES, Fence
from saros.redo.genesis import WRONG_LOG, Genesis
from saros.redo.record import change_ledgers, operations
from saros.telemetry import FLUSH_SECONDS, MISMATCHES, REPAIRS, log
from saros.trainer.plan import LoopRules
from saros.trainer.points import reach
from saros.trainer.stop import awaited
from saros.wire.coalesce import coalesced
from saros.wire.operations import HAS_WAITING
from saros.wire.v1 import redo_pb2 as pb

# What one write may hold, if it is more than one record: the store does nothing else meanwhile.
_WRITE_USERS, _WRITE_BYTES = 12_000, 12 * 2**20
_GATHER_S = 1.0  # that a record waits for others which are written with it: most touch the same users again
_GATHER_SHARE = 8  # ... or until one in so many of the users that may be in memory has to stay there for it
_FENCES = 64
_NOBODY: I32 = np.zeros(0, np.int32)
_Read = TypeVar("_Read")
_Given = ParamSpec("_Given")


class Accepted(NamedTuple):
    """A record that counts and is not in the store yet."""

    fence: Fence  # behind it
    record: pb.Record
    users: I32 = _NOBODY  # slots that stay in memory until then (rule 18)
    bytes: int = 0  # about as many as it takes in memory and on the wire


class Threads(NamedTuple):
    """What talks to the store. A server does one thing at a time: reads must not queue up behind many writes."""

    reading: Executor
    writing: Executor


class _Write(NamedTuple):
    """A write that is under way."""

    answer: Future[bytes | None]
    records: list[Accepted]


class Asked(NamedTuple, Generic[_Read]):
    """Users or ledgers that are being read."""

    keys: U64
    since: Fence  # that of the store when they were asked for
    answer: Future[_Read]
    behind: Sequence[pb.Record] = ()  # the records behind that fence, those in flight included


class Known(NamedTuple):
    """Users as they were read, and the ledgers of those who have blocks that wait."""

    users: Users
    waiting: U64
    ledgers: Ledgers | None


class UserStore:
    """The users of one owned partition."""

    def __init__(
        self, store: Store, redo: RedoLog, genesis: Genesis, partition: int, rules: LoopRules, threads: Threads,
        release: Callable[[I32], None], users_max: int, check: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        """Read and write with `threads`; `release` is told whose state the store has; `users_max` may be in memory.

        `check` may end what takes long, between two writes: it raises then, and this is not to be used any more.
        """
        self._store, self._redo, self._genesis, self._partition = store, redo, genesis, partition
        self._ttl_s, self._accept_expired = rules.user_ttl_s, rules.accept_expired
        self._threads, self._release, self._check = threads, release, check
        self._write_bytes = max(1, min(_WRITE_BYTES, rules.behind_bytes // 2))
        self._gather_users = min(_WRITE_USERS, users_max // _GATHER_SHARE)
        self._unflushed: deque[Accepted] = deque()
        self._writing: _Write | None = None
        self._due_s = 0.0  # when what waits is to be written
        self.pending_bytes = self.pending_users = 0  # of records that are not in the store yet
        self._ours: deque[Fence] = deque(maxlen=_FENCES)  # the last ones that we left
        # The highest fence that was flushed or met: what a read has to be of (rule 17).
        self._at = self._fence_of(self._read_now(store.read_head, partition)[:FENCE_BYTES])

    def _fence_of(self, found: bytes) -> Fence:
        """Return a stored fence; none is that of the beginning. One of another log stops us (rule 38)."""
        start = self._genesis.start(self._partition)
        return self._genesis.found(found, [start], f"partition {self._partition} of the store")[0]

    def _read_now(self, read: Callable[_Given, _Read], *given: _Given.args, **named: _Given.kwargs) -> _Read:
        """Return what is read, by a thread: whoever waits for it may be stopped."""
        return awaited(self._threads.reading.submit(read, *given, **named), self._check)

    @property
    def is_behind(self) -> bool:
        """Return whether a record that counts is not in the store yet."""
        return bool(self._unflushed)

    def append(self, fence: Fence, record: pb.Record, users: I32 = _NOBODY) -> None:
        """Take a record that counts, in log order, whoever wrote it (rule 15)."""
        accepted = Accepted(fence, record, users, _size_of(record))
        if fence.offset > self._at.offset:
            if not self._unflushed:
                self._due_s = time.monotonic() + _GATHER_S
            self._unflushed.append(accepted)
            self.pending_bytes += accepted.bytes
            self.pending_users += len(users)
        else:
            self._release(users)

    def catch_up(self, end: Fence) -> None:
        """Flush all that counts between the store's fence and `end`, read again from the log."""
        self._redo.check(self._partition, self._at, f"partition {self._partition} of the store")
        self._check_age()
        if self._at.offset > end.offset:
            return
        for fence, record in self._redo.accepted(self._partition, self._at, end.offset + 1):
            self._check()
            self.append(fence, record)
            self.flush(wait=self.pending_bytes > self._write_bytes)
            reach("mending")
        self.flush()
        if self._at.offset == end.offset:  # another owner may have gone on meanwhile
            self._check_same(self._at.nonce, end)

    def _check_age(self) -> None:
        """Refuse a store that nobody wrote to for so long that users expired which still count."""
        if self._accept_expired or not self._ttl_s or self._at.offset < 0:
            return
        if self._redo.is_older(self._partition, self._at, int(1000 * (time.time() - self._ttl_s / 2))):
            raise RefusedError(
                f"partition {self._partition} of the store was last written more than {self._ttl_s // 172800} days ago,"
                f" and users expire after {self._ttl_s // 86400}: some that count may be gone",
                "`saros trainer --accept-expired` goes on without them; or bring back a store that is younger",
            )

    def flush(self, *, wait: bool = True) -> None:
        """Flush all that waits; or, if we are not to `wait`, let what is due be begun."""
        while self._writing is not None or self._unflushed:
            if self._writing is not None:
                if not wait and not self._writing.answer.done():
                    return
                self._finish()
            elif wait or self._is_due():
                self._begin()
            else:
                return

    def _is_due(self) -> bool:
        """True if what waits has waited long enough, or is enough for a write."""
        return (
            self.pending_bytes >= self._write_bytes
            or self.pending_users >= self._gather_users
            or time.monotonic() >= self._due_s
        )

    def _begin(self) -> None:
        """Begin to write what waits, as much as may be one."""
        records = next(_as_one(self._unflushed))
        self._writing = _Write(self._threads.writing.submit(self._write, self._at, records), records)
        self._due_s = time.monotonic() + _GATHER_S  # what is left, or comes meanwhile

    def _finish(self) -> None:
        """Wait for the answer to what is written."""
        assert self._writing is not None
        (answer, records), self._writing = self._writing, None
        found = awaited(answer, self._check)
        if found is None:
            self._at = records[-1].fence
            self._ours.append(self._at)
            self._let_go()
            reach("flushed")
        else:
            self._meet(self._fence_of(found))

    def _let_go(self) -> None:
        """Forget records that the store has."""
        while self._unflushed and self._unflushed[0].fence.offset <= self._at.offset:
            accepted = self._unflushed.popleft()
            self.pending_bytes -= accepted.bytes
            self.pending_users -= len(accepted.users)
            self._release(accepted.users)

    def _write(self, at: Fence, records: Sequence[Accepted]) -> bytes | None:
        """Write records as one; return None, or the fence found. It touches nothing of ours: threads do it."""
        fence, last = records[-1].fence, records[-1].record
        head = fence.pack() + last.partition.SerializeToString()
        dim = self._genesis.rows.dim
        todo = coalesced(b"".join([operations(accepted.record, dim) for accepted in records]))
        with FLUSH_SECONDS.labels("users").time():
            return self._store.flush(self._partition, self._genesis.stored(at), head, todo, self._ttl_s)

    def _meet(self, found: Fence) -> None:
        """Go on from a fence that is not the one we left."""
        MISMATCHES.labels("users").inc()
        self._ours.clear()
        if found.offset > self._at.offset:
            # Another owner went on with the same log.
            self._at = found
            self._let_go()
            return
        REPAIRS.labels("users").inc()
        log(
            "store fell back", logging.WARNING, partition=self._partition, found=found.offset, expected=self._at.offset
        )  # fmt: skip
        self._redo.check(self._partition, found, f"partition {self._partition} of the store")
        at = found
        missing = self._redo.accepted(self._partition, found, self._at.offset + 1)
        for records in _as_one(Accepted(fence, record, bytes=_size_of(record)) for fence, record in missing):
            self._check()
            again = awaited(self._threads.writing.submit(self._write, at, records), self._check)
            if again is not None:
                self._meet(self._fence_of(again))
                return
            at = records[-1].fence
        self._check_same(at.nonce, self._at)

    def _check_same(self, nonce: int, fence: Fence) -> None:
        """Refuse a store whose records are not those of the log."""
        if nonce != fence.nonce:
            raise RefusedError(
                f"partition {self._partition} of the store is of another log: at offset {fence.offset} there is record "
                f"{nonce:x}, not {fence.nonce:x}",
                WRONG_LOG,
            )

    def ask(self, keys: U64) -> Asked[Known]:
        """Begin to read users that are not in memory."""
        return Asked(keys, self._at, self._threads.reading.submit(self._read, keys))

    def _read(self, keys: U64) -> Known:
        """Read users, and what waits of theirs, each with its fence (rule 30). It touches nothing of ours: threads do
        it."""
        users = self._store.read_users(self._partition, keys)
        waiting = keys[[value is not None and value[0] & HAS_WAITING != 0 for value in users.values]]
        return Known(users, waiting, self._store.read_ledgers(self._partition, waiting) if len(waiting) else None)

    def answer(self, asked: Asked[Known]) -> Known:
        """Return users that were asked for, which no record has touched since then (rules 16, 18, 21).

        Such a user is the same under every fence that was ours since it was asked for.
        """
        known = awaited(asked.answer, self._check)
        while not all(
            self._is_expected(found.fence, asked.since) for found in (known.users, known.ledgers) if found is not None
        ):
            known = self._read_now(self._read, asked.keys)
        return known

    def ask_ledgers(self, keys: U64, in_flight: Sequence[pb.Record]) -> Asked[Ledgers]:
        """Begin to read whole ledgers as the last record in flight has left them."""
        behind = [accepted.record for accepted in self._unflushed] + list(in_flight)
        read = self._threads.reading.submit(self._store.read_ledgers, self._partition, keys)
        return Asked(keys, self._at, read, behind)

    def answer_ledgers(self, asked: Asked[Ledgers]) -> dict[int, dict[int, bytes]] | None:
        """Return ledgers that were asked for, by user; None where another owner has gone on (rules 24, 25).

        What the store had under its fence is one part, what the records behind that fence change the other: some of
        them may have been written since it was asked for.
        """
        found = awaited(asked.answer, self._check)
        while not self._is_expected(found.fence, asked.since):
            found = self._read_now(self._store.read_ledgers, self._partition, asked.keys)
        fence = self._fence_of(found.fence)
        nonces = [asked.since.nonce, *(record.nonce for record in asked.behind)]
        if fence.nonce not in nonces:
            return None
        ledgers = dict(zip(asked.keys.tolist(), found.entries, strict=True))
        for record in asked.behind[nonces.index(fence.nonce) :]:
            change_ledgers(ledgers, record)
        return ledgers

    def _is_expected(self, packed: bytes, since: Fence | None = None) -> bool:
        """True if what was read with this fence is of the highest one flushed, or one since; else all is flushed."""
        fence = self._fence_of(packed)
        if self._writing is not None and fence == self._writing.records[-1].fence:
            self._finish()  # the store had it before we knew
        if fence == self._at or fence == since or (since and fence.offset > since.offset and fence in self._ours):
            return True
        self.flush()
        if fence != self._at:
            self._meet(fence)
            self.flush()
        return False

    def state(self) -> pb.Partition:
        """Return the state of the partition as of the last record that counts."""
        self.flush()
        while True:
            head = self._read_now(self._store.read_head, self._partition)
            if self._is_expected(head[:FENCE_BYTES]):
                return pb.Partition.FromString(head[FENCE_BYTES:])


def _size_of(record: pb.Record) -> int:
    """Return about how many bytes a record takes. Not to be asked often: a message gives copies of its bytes."""
    return len(record.blocks.data) + len(record.users.data) + len(record.users.rows)


def _as_one(accepted: Iterable[Accepted]) -> Iterator[list[Accepted]]:
    """Cut records, in the order of the log, into those that are written as one (rule 14)."""
    records, users, size = list[Accepted](), 0, 0
    for each in accepted:
        more = len(each.record.users.key) // 8
        if records and (users + more > _WRITE_USERS or size + each.bytes > _WRITE_BYTES):
            yield records
            records, users, size = [], 0, 0
        records.append(each)
        users, size = users + more, size + each.bytes
    if records:
        yield records
