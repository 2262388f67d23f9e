"""The texts of items, kept once, when first seen.

From the decoder on an item is a 64-bit hash. Who gives it a row has to say its text too, and by then its event may be
long gone: so the texts of items that were seen of late are kept, at most so many; the least used go first. One that
went comes again with the next event that names the item.
"""

import numpy as np

from saros.core.jit import I32, U8, U64
from saros.core.table import SlotTable
from saros.wire.columns import Decoded


class Names:
    """Texts by item key, at most `limit` of them."""

    def __init__(self, limit: int) -> None:
        self._table = SlotTable(limit, capacity=min(limit, 1024))
        self._texts: list[bytes] = []

    def note(self, buffer: U8, decoded: Decoded) -> None:
        """Keep the texts of items that were not seen before."""
        slots, fresh = self._table.intern(decoded.item)
        if len(fresh) == 0:
            return
        self._texts += [b""] * (self._table.capacity - len(self._texts))
        where = _first_places(slots, fresh)
        for slot, first, end in zip(
            fresh.tolist(), decoded.item_first[where].tolist(), decoded.item_end[where].tolist(), strict=True
        ):
            self._texts[slot] = buffer[first:end].tobytes()

    def texts(self, keys: U64) -> list[bytes]:
        """Return the text of each item, empty where it is not known any more."""
        return [self._texts[slot] if slot >= 0 else b"" for slot in self._table.find(keys).tolist()]


def _first_places(slots: I32, fresh: I32) -> I32:
    """Return where each fresh slot stands first; they are given in that order."""
    new = np.flatnonzero(np.isin(slots, fresh))
    _, first = np.unique(slots[new], return_index=True)
    return new[np.sort(first)].astype(np.int32)
