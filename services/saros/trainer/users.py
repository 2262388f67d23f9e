"""The users of a partition in the store: flushed record by record, read under a fence, and repaired where it forgot.

The store's fence of a partition says which record its users, ledgers and state are those of. Flushing moves it by
compare-and-swap, one accepted record after the other (rules 14, 15). Where the fence found is not the one we left, the
store fell back, lost the shard, or another owner went on; what is missing is read again from the log and flushed.
"""

import logging
from collections import deque
from typing import NamedTuple

from saros.adapters.redis import Store
from saros.adapters.redo import RedoLog
from saros.core.jit import U64
from saros.errors import RefusedError
from saros.redo.fence import FENCE_BYTES, Fence, unpack_fence
from saros.redo.genesis import Genesis
from saros.redo.record import operations
from saros.telemetry import MISMATCHES, REPAIRS, log
from saros.trainer.points import reach
from saros.wire.v1 import redo_pb2 as pb


class Accepted(NamedTuple):
    """A record that counts and is not in the store yet."""

    fence: Fence  # behind it
    record: pb.Record


class UserStore:
    """The users of one owned partition."""

    def __init__(self, store: Store, redo: RedoLog, genesis: Genesis, partition: int, ttl_s: int) -> None:
        self._store, self._redo, self._genesis, self._partition, self._ttl_s = store, redo, genesis, partition, ttl_s
        self._unflushed: deque[Accepted] = deque()
        # The highest fence that was flushed or met: what a read has to be of (rule 17).
        self._at = self._fence_of(store.read_head(partition)[:FENCE_BYTES])

    def _fence_of(self, found: bytes) -> Fence:
        """Return a stored fence; none is that of the beginning. One of another log stops us (rule 38)."""
        fence = unpack_fence(found) if found else self._genesis.start(self._partition)
        if fence.log_id != self._genesis.log_id:
            raise RefusedError(
                f"partition {self._partition} of the store is of another log, {fence.log_id:x}",
                "another `saros rebase` may have run: start the trainer again",
            )
        return fence

    def _packed(self, fence: Fence) -> bytes:
        return b"" if fence.offset < 0 else fence.pack()

    @property
    def pending(self) -> int:
        """Records that wait to be flushed."""
        return len(self._unflushed)

    def append(self, fence: Fence, record: pb.Record) -> None:
        """Take a record that counts, in log order, whoever wrote it (rule 15)."""
        if fence.offset > self._at.offset:
            self._unflushed.append(Accepted(fence, record))

    def catch_up(self, end: Fence) -> None:
        """Flush all that counts between the store's fence and `end`, read again from the log."""
        self._redo.check(self._partition, self._at, f"partition {self._partition} of the store")
        if self._at.offset > end.offset:
            return
        for fence, record in self._redo.accepted(self._partition, self._at, end.offset + 1):
            self._unflushed.append(Accepted(fence, record))
            self.flush()
            reach("mending")
        self._check_same(self._at.nonce, end)

    def flush(self) -> int:
        """Flush all that waits; return how many records."""
        done = 0
        while self._unflushed:
            fence, record = self._unflushed[0]
            found = self._write(self._at, fence, record)
            if found is None:
                self._unflushed.popleft()
                self._at, done = fence, done + 1
                reach("flushed")
            else:
                self._meet(self._fence_of(found))
        return done

    def _write(self, at: Fence, fence: Fence, record: pb.Record) -> bytes | None:
        head = fence.pack() + record.partition.SerializeToString()
        return self._store.flush(
            self._partition, self._packed(at), head, operations(record, self._genesis.rows.dim), self._ttl_s
        )

    def _meet(self, found: Fence) -> None:
        """Go on from a fence that is not the one we left."""
        MISMATCHES.labels("users").inc()
        if found.offset > self._at.offset:
            # Another owner went on with the same log.
            self._at = found
            while self._unflushed and self._unflushed[0].fence.offset <= found.offset:
                self._unflushed.popleft()
            return
        REPAIRS.labels("users").inc()
        log(
            "store fell back", logging.WARNING, partition=self._partition, found=found.offset, expected=self._at.offset
        )  # fmt: skip
        self._redo.check(self._partition, found, f"partition {self._partition} of the store")
        at = found
        for fence, record in self._redo.accepted(self._partition, found, self._at.offset + 1):
            again = self._write(at, fence, record)
            if again is not None:
                self._meet(self._fence_of(again))
                return
            at = fence
        self._check_same(at.nonce, self._at)

    def _check_same(self, nonce: int, fence: Fence) -> None:
        """Refuse a store whose records are not those of the log."""
        if nonce != fence.nonce:
            raise RefusedError(
                f"partition {self._partition} of the store is of another log: at offset {fence.offset} there is record "
                f"{nonce:x}, not {fence.nonce:x}",
                "restore a snapshot, or keep the rows and begin a new log with `saros rebase`",
            )

    def read(self, keys: U64) -> list[bytes | None]:
        """Return users as of the last record that counts (rules 16, 21)."""
        while True:
            self.flush()
            found = self._store.read_users(self._partition, keys)
            if self._is_expected(found.fence):
                return found.values

    def read_ledgers(self, keys: U64) -> list[dict[int, bytes]]:
        """Return ledgers as of the last record that counts (rule 25)."""
        while True:
            self.flush()
            found = self._store.read_ledgers(self._partition, keys)
            if self._is_expected(found.fence):
                return found.entries

    def _is_expected(self, found: bytes) -> bool:
        fence = self._fence_of(found)
        if fence == self._at:
            return True
        self._meet(fence)
        return False

    def state(self) -> pb.Partition:
        """Return the state of the partition as of the last record that counts."""
        while True:
            self.flush()
            head = self._store.read_head(self._partition)
            if self._is_expected(head[:FENCE_BYTES]):
                return pb.Partition.FromString(head[FENCE_BYTES:])
