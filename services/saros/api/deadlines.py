"""When items expire: at most one deadline of each slot.

Those of one moment are kept together, so that many at once cost hardly more than one. A deadline that is replaced stays
where it was filed, and does not count any more.
"""

import heapq
from array import array

import numpy as np

from saros.core.jit import I32, I64

_SPARE = 1000  # deadlines that may be filed beyond twice as many as there are slots


class Deadlines:
    """Slots by the time at which they are due."""

    def __init__(self) -> None:
        self._of: I64 = np.zeros(0, np.int64)  # by slot; 0: it has none
        self._slots: dict[int, array[int]] = {}  # by moment
        self._moments: list[int] = []  # a heap
        self._filed = 0

    @property
    def nbytes(self) -> int:
        """About how many bytes are held."""
        return self._of.nbytes + 4 * self._filed + 256 * len(self._moments)

    def put(self, slot: int, at_ms: int) -> None:
        """Give a slot another deadline, with 0 none."""
        if slot >= len(self._of):
            more = max(slot + 1, 2 * len(self._of)) - len(self._of)
            self._of = np.concatenate([self._of, np.zeros(more, np.int64)])
        before = self._of[slot]
        self._of[slot] = at_ms
        if at_ms and at_ms != before:
            if at_ms not in self._slots:
                self._slots[at_ms] = array("i")
                heapq.heappush(self._moments, at_ms)
            self._slots[at_ms].append(slot)
            self._filed += 1
            if self._filed > 2 * len(self._of) + _SPARE:  # most of them were replaced
                self._file_anew()

    def _file_anew(self) -> None:
        slots = np.flatnonzero(self._of).astype(np.int32)
        slots = slots[np.argsort(self._of[slots], kind="stable")]
        moments, first = np.unique(self._of[slots], return_index=True)
        parts = zip(moments.tolist(), np.split(slots, first[1:]), strict=True)
        self._slots = {moment: array("i", part.tobytes()) for moment, part in parts}
        self._moments, self._filed = moments.tolist(), len(slots)  # in ascending order it is a heap

    def due(self, now_ms: int) -> I32:
        """Return the slots whose deadline is over, one or another twice; from then on they have none."""
        found = [np.zeros(0, np.int32)]
        while self._moments and self._moments[0] <= now_ms:
            moment = heapq.heappop(self._moments)
            slots = np.frombuffer(self._slots.pop(moment), np.int32)
            self._filed -= len(slots)
            found.append(slots[self._of[slots] == moment])
        over = np.concatenate(found)
        self._of[over] = 0
        return over
