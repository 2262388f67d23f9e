"""All that is served of items: the catalogue over a replica's table, what is told of them, and what is popular.

An item enters by an upsert or by its first block that was added. One that is hidden, deleted or expired, or whose id no
record has said yet, is not served; expiry is asked of the wall clock when a query comes. The slots of a table are never
given to another item, so sets of slots stay right.

One thread. Whatever takes long is done in slices: whoever owns the thread calls `tend` between queries.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from saros.api.deadlines import Deadlines
from saros.api.observe import API_ITEMS_LEFT_OUT
from saros.api.sizes import bytes_of
from saros.core.catalogue import P0_DRIFT, Catalogue
from saros.core.glance import GlanceArrays, Stamps
from saros.core.ids import hash_texts
from saros.core.jit import F32, I32, I64, U32, U64
from saros.core.lanes import LANES
from saros.core.masks import Mask, combine
from saros.core.popular import fill_rates, new_rates, newest_day
from saros.core.step import LIVE, StepRules
from saros.core.tiles import TILE_BITS
from saros.redo.replica import Replica
from saros.telemetry import Seldom
from saros.wire.item import is_upsert, read_item, text_of
from saros.wire.v1.events_pb2 import ItemUpsert

_PRIORS, _RATES, _ROWS = 16_384, 16_384, 1024  # slots of a slice: about half a millisecond each
_TOLD = 16  # upserts of a slice
_RATES_EVERY_S = 1.0
_TEXTS_MAX = 50_000
_MASKS_MAX = 256  # categories that are asked for often enough to be kept as masks


def _now_ms() -> int:
    return int(1000 * time.time())


class Shelf:
    """Items as they are served."""

    def __init__(self, replica: Replica, step: StepRules, upserts_max: int) -> None:
        """Take what the replica holds. There is room for `upserts_max` items that an upsert named, and no block yet."""
        self.replica, self._alpha = replica, step.prior
        items = replica.items
        self.has_prior = step.kind == LIVE  # the paper's scores have none
        self.catalogue = Catalogue(items, step.prior if self.has_prior else 0.0)
        self._stamps = Stamps(items.limit)
        self._key = replica.genesis.key()
        self._upserts_max, self.unlearned = upserts_max, 0
        self._is_unlearned = np.zeros(items.limit, np.bool_)  # by slot
        self._seldom = Seldom()
        self._hidden, self._expired, self._nameless = Mask(), Mask(), Mask()
        self._told: set[int] = set()  # slots of which an upsert has told
        self._deadlines = Deadlines()
        self._categories: dict[int, tuple[str, ...]] = {}  # of each slot that has some
        self._members: dict[str, set[int]] = {}
        self._masks: dict[str, Mask] = {}
        self._texts: dict[int, str] = {}
        self._begun: dict[int, bytes] = {}
        self._noted, self._changed = items.table.size, False
        for _ in self._take_in(replica.names.items()):
            pass
        slots = items.table.slots()
        for first in range(0, len(slots), _ROWS):
            self.catalogue.refresh(slots[first : first + _ROWS])
        self._noted = 0
        self._note()
        self._day = newest_day(items)
        self._rates, self._next_rates, self._filled = new_rates(self.catalogue), new_rates(self.catalogue), -1
        fill_rates(self.catalogue, self._rates, 0, len(self._rates), self._day, self._alpha)
        self._changed, self._rates_at = False, 0.0

    @property
    def nbytes(self) -> int:
        """Bytes of table and catalogue, and about those of all that is known of items beside numbers."""
        items = self.replica.items
        columns = (*items.arrays, *items.table.arrays(), self._rates, self._next_rates)
        known: tuple[Mapping[Any, object], ...] = (
            self.replica.names, self._texts, self._begun, self._categories, self._members,
        )  # fmt: skip
        return (
            sum(column.nbytes for column in columns)
            + self.catalogue.nbytes
            + self._deadlines.nbytes
            + sum(map(bytes_of, known))
        )

    @property
    def nbytes_most(self) -> int:
        """Bytes of table and catalogue once they are full; what is known of items beside numbers comes on top."""
        items, table = self.replica.items, self.replica.items.table.arrays()
        columns = (*items.arrays, table.keys, table.pins, table.state, table.free, self._rates, self._next_rates)
        per_slot = sum(column.nbytes for column in columns)
        return table.cells.nbytes + (per_slot + self.catalogue.nbytes) * items.limit // items.table.capacity

    # --- what comes in -----------------------------------------------------------------------------------------------

    def refresh(self, slots: I32, day: int) -> None:
        """Rows of these slots have changed, by blocks up to this day."""
        self.catalogue.refresh(slots)
        if self.unlearned:
            learned = np.unique(slots[self._is_unlearned[slots]])
            self._is_unlearned[learned] = False
            self.unlearned -= len(learned)
        self._note()
        self._day, self._changed = max(self._day, day), True

    def _note(self) -> None:
        """Take in slots that are new. Of some an upsert has told before, and there was no place for them."""
        table, names, first = self.replica.items.table, self.replica.names, self._noted
        self._noted = table.size
        self._stamps.extend(table.keys, table.size)
        nameless = []
        for slot, key in enumerate(table.keys[first : table.size].tolist(), first):
            told = names.get(key)
            if told is None:
                nameless.append(slot)
            elif is_upsert(told) and slot not in self._told:
                self._upsert(key, read_item(told))
        if nameless:
            self._nameless.put(nameless)

    def tell(self, told: dict[int, bytes]) -> Iterator[None]:
        """Take what a record told of items, a slice at a time."""
        if told:
            slots = self.replica.items.table.find(np.fromiter(told, np.uint64, len(told)))
            self._nameless.put(slots[slots >= 0], False)
            yield from self._take_in(told.items())

    def _take_in(self, told: Iterable[tuple[int, bytes]]) -> Iterator[None]:
        upserts = [(key, value) for key, value in told if is_upsert(value)]
        for first in range(0, len(upserts), _TOLD):
            for key, value in upserts[first : first + _TOLD]:
                self._upsert(key, read_item(value))
            self._note()
            yield

    def _upsert(self, key: int, item: ItemUpsert) -> None:
        """Put what is known of an item in place of what was known."""
        items, keys = self.replica.items, np.array([key], np.uint64)
        slot = int(items.table.find(keys)[0])
        if slot < 0:
            if item.deleted:
                return
            if self.unlearned >= self._upserts_max:
                API_ITEMS_LEFT_OUT.inc()
                self._seldom.log("no room for items that only upserts have named", logging.WARNING, left_out=1)
                return
            slot = int(items.intern(keys)[0])
            self.unlearned += 1
            self._is_unlearned[slot] = True
            self.catalogue.refresh([slot])
            self._changed = True
        withheld, is_over = item.hidden or item.deleted, 0 < item.expires_at_ms <= _now_ms()
        if withheld or slot in self._told:
            self._hidden.put([slot], withheld)
        if is_over or slot in self._told:
            self._expired.put([slot], is_over)
        self._told.add(slot)
        self._deadlines.put(slot, 0 if is_over else item.expires_at_ms)
        self._categorise(slot, tuple(dict.fromkeys(item.categories)))

    def _categorise(self, slot: int, categories: tuple[str, ...]) -> None:
        before = self._categories.pop(slot, ())
        if categories:
            self._categories[slot] = categories
        for category, inside in [(each, False) for each in before] + [(each, True) for each in categories]:
            members = self._members.setdefault(category, set())
            (members.add if inside else members.discard)(slot)
            if category in self._masks:
                self._masks[category].put([slot], inside)
            if not members:
                del self._members[category]

    # --- what takes its time -----------------------------------------------------------------------------------------

    def tend(self) -> bool:
        """Do a slice of what is due: priors under another p0, rates of what is popular. False: nothing is."""
        self._expire()  # where nobody asks for long, the next one finds little to do
        catalogue = self.catalogue
        if catalogue.rebuilding or (self._changed and catalogue.drift() > P0_DRIFT):
            if catalogue.rebuild(_PRIORS):
                self._changed = True
            return True
        if self._filled < 0:
            if not self._changed or time.monotonic() < self._rates_at:
                return False
            self._next_rates, self._filled, self._changed = new_rates(catalogue), 0, False
        done = fill_rates(
            catalogue, self._next_rates, self._filled, self._filled + _RATES, self._day, self._alpha
        )  # fmt: skip
        self._filled += _RATES
        if done:
            self._rates, self._filled = self._next_rates, -1
            self._rates_at = time.monotonic() + _RATES_EVERY_S
        return True

    # --- what is asked -----------------------------------------------------------------------------------------------

    @property
    def rates(self) -> F32:
        """The positive rate of each slot, as of a second ago at most."""
        return self._rates

    def keys_of(self, ids: Iterable[str]) -> U64:
        """Return the keys of items."""
        return hash_texts(self._key, list(ids))

    def slots_of(self, ids: Iterable[str]) -> I32:
        """Return the slots of items, -1 for one that is not in the catalogue."""
        return self.replica.items.table.find(self.keys_of(ids))

    def seen_by(self, users: GlanceArrays, which: I32) -> tuple[I32, I64]:
        """Return the slots of items that users have seen, and where each user's begin and end."""
        return self._stamps.seen_by(self.replica.items.table.keys, users, which)

    def seen(self, stamps: U32) -> I32:
        """Return the slots of items that were seen."""
        return self._stamps.find(self.replica.items.table.keys, stamps)

    def withheld(self) -> list[Mask]:
        """Return the sets of what is not served now."""
        self._expire()
        return [self._hidden, self._expired, self._nameless]

    def _expire(self) -> None:
        over = self._deadlines.due(_now_ms())
        if len(over):
            self._expired.put(over)

    def is_served(self, slot: int) -> bool:
        """True if an item may be in an answer at this moment."""
        return bool(self.served(np.array([slot], np.int32))[0])

    def served(self, slots: I32) -> NDArray[np.bool_]:
        """Return which of the slots may be in an answer at this moment."""
        allowed = combine(self.catalogue.arrays.known, [], self.withheld(), slots[:0])
        found: NDArray[np.bool_] = (allowed[slots >> TILE_BITS] >> (slots & (LANES - 1)).astype(np.uint16)) & 1 != 0
        return found

    def is_withheld(self, key: int) -> bool:
        """True if an item that has no slot is told to be hidden, deleted or expired."""
        told = self.replica.names.get(key, b"")
        item = read_item(told) if is_upsert(told) else ItemUpsert()
        return item.hidden or item.deleted or 0 < item.expires_at_ms <= 1000 * time.time()

    def category(self, name: str) -> list[Mask]:
        """Return what a query has to be within: nothing where no category is asked for."""
        if not name:
            return []
        mask, members = self._masks.pop(name, None), self._members.get(name, ())
        if mask is None:
            mask = Mask()
            mask.put(np.fromiter(members, np.int32))
        if members:  # names that nobody has heard of push out none that were asked for
            if len(self._masks) >= _MASKS_MAX:
                del self._masks[next(iter(self._masks))]
            self._masks[name] = mask  # the last one: it was asked for just now
        return [mask]

    def begun(self, slots: Sequence[int]) -> list[bytes]:
        """Return how the JSON of each item begins: all that is before its score. Kept like the texts."""
        begun = self._begun
        try:
            return [begun[slot] for slot in slots]
        except KeyError:
            if len(begun) > _TEXTS_MAX:
                begun.clear()
            for slot, text in zip(slots, self.texts(slots), strict=True):
                begun[slot] = b'{"item_id":%b,"score":' % orjson.dumps(text)
            return [begun[slot] for slot in slots]

    def texts(self, slots: Sequence[int]) -> list[str]:
        """Return the ids of items. An item's never changes: those that are served often are kept as text."""
        texts = self._texts
        try:
            return [texts[slot] for slot in slots]
        except KeyError:
            if len(texts) > _TEXTS_MAX:
                texts.clear()
            names, keys = self.replica.names, self.replica.items.table.keys
            texts.update({slot: text_of(names[int(keys[slot])]) for slot in slots if slot not in texts})
            return [texts[slot] for slot in slots]
