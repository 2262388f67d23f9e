"""What was taken of one partition at once: micro-batches that are learned one after the other, in turn with others'.

The users of the next one, and ledgers that may end in it, are read from the store while others learn. Nothing of the
partition is learned in between, so whoever was not in memory then is not touched until it is.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from saros.adapters.intake import Taken
from saros.adapters.redis import Ledgers
from saros.core.jit import I64, U64
from saros.core.learner import Batch
from saros.trainer.share import Share
from saros.trainer.users import Asked, Known
from saros.wire.columns import GOOD, REASONS
from saros.wire.v1 import redo_pb2 as pb


class Run(NamedTuple):
    """A micro-batch whose users are in memory, or on their way."""

    messages: I64
    rows: I64  # its events, as they were decoded
    users: U64
    asked: Asked[Known] | None
    ledgers: Asked[Ledgers] | None  # of users who may leave, as far as they were in memory
    end: int  # the offset behind its last message


class Turn:
    """The micro-batches of a share."""

    def __init__(self, share: Share, taken: Taken, offsets: I64) -> None:
        """`offsets` are those of all messages."""
        self.share, self.taken = share, taken
        mine = taken.of(share.partition)
        offsets = offsets[mine]
        # Else events would be learned twice, or a record would cover what is in none.
        assert (np.diff(offsets) > 0).all(), "the messages of a partition come in order, each once"
        mine = mine[offsets >= share.next]  # what lies before `next` is in records already
        self._left = deque(taken.runs(mine, share.batch_events(), share.record_bytes))
        self._next: Run | None = None
        self.ask()

    def __bool__(self) -> bool:
        """Return whether something is left."""
        return self._next is not None or bool(self._left)

    def ask(self) -> None:
        """Begin to read the users of the next micro-batch; too many at once are more than one."""
        if self._next is not None or not self._left:
            return
        messages = self._left.popleft()
        rows = self.taken.rows(messages)
        users = self.taken.users(rows)
        if len(users) > self.share.batch_users() and len(messages) > 1:
            self.split(messages)
            self.ask()
        else:
            end, decoded = self.taken.polled.offset(int(messages[-1])) + 1, self.taken.decoded
            ledgers = self.share.foresee(decoded.user[rows], decoded.kind[rows])
            self._next = Run(messages, rows, users, self.share.ask(users), ledgers, end)

    def is_ready(self) -> bool:
        """Return whether the users and ledgers of the next micro-batch are there."""
        asked = (self._next.asked, self._next.ledgers) if self._next else ()
        return all(each is None or each.answer.done() for each in asked)

    def take(self) -> Run:
        """Return the next micro-batch."""
        self.ask()
        assert self._next is not None, "something is left"
        run, self._next = self._next, None
        return run

    def put_back(self, run: Run, ledgers: Asked[Ledgers] | None) -> None:
        """Let a micro-batch wait, whose users are in memory now."""
        self._next = run._replace(asked=None, ledgers=ledgers)

    def split(self, messages: I64) -> None:
        """Let a micro-batch be two."""
        middle = len(messages) // 2
        self._left.extendleft((messages[middle:], messages[:middle]))

    def drop(self) -> None:
        """Leave what is left: it is read again from where the log stands."""
        self._left.clear()
        self._next = None


def stats_of(taken: Taken, messages: I64, rows: I64, batch: Batch, scenarios: Sequence[str]) -> pb.Stats:
    """Return what a batch did, in numbers; `scenarios` are the names that the decoder told apart."""
    reasons = np.bincount(taken.decoded.reason[taken.all_rows(messages)], minlength=len(REASONS)).astype(np.int64)
    reasons[GOOD] = 0
    times = taken.polled.log_ms[messages]
    counts = taken.scenarios(rows, len(scenarios))
    seen = np.flatnonzero(counts.any(axis=1))
    return pb.Stats(
        counts=batch.counts.tobytes(),
        dead=reasons.tobytes(),
        progressive=batch.progressive.tobytes(),
        oldest_ms=int(times.min()),
        newest_ms=int(times.max()),
        messages=len(messages),
        scenario=[scenarios[k] for k in seen.tolist()],
        scenario_counts=counts[seen].tobytes(),
    )
