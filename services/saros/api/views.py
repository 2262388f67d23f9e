"""What is known of one item, and of one user: for whoever asks about them by name."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import NamedTuple

from saros.adapters.person import Person, read_person
from saros.api.lookups import Lookups
from saros.api.world import World
from saros.core.gate import GateRules
from saros.core.items import CLICKED, SHOWN, UPDATES
from saros.errors import StoreError
from saros.wire.damage import DAMAGED
from saros.wire.item import read_item
from saros.wire.partitions import partitions_of

_AGAIN_S = 0.02  # the store follows the log, mostly within this


class ItemView(NamedTuple):
    """An item as it is now."""

    item_id: str
    categories: list[str]
    hidden: bool
    expires_at_ms: int  # 0: never
    properties: dict[str, str]
    served: bool  # may be in an answer at this moment
    updates: int  # blocks that have moved it
    clicked: int
    shown: int


def item_of(world: World, item_id: str) -> ItemView | None:
    """Return what is known of an item; None where nothing is, or it was deleted."""
    shelf, items = world.shelf, world.replica.items
    keys = shelf.keys_of([item_id])
    told, slot = world.replica.names.get(int(keys[0]), b""), int(items.table.find(keys)[0])
    item = read_item(told)
    if item.deleted or (slot < 0 and not told):
        return None
    counters = items.arrays.counters[slot].tolist() if slot >= 0 else [0, 0, 0]
    return ItemView(
        item_id, list(item.categories), item.hidden, item.expires_at_ms, dict(item.properties),
        slot >= 0 and shelf.is_served(slot), counters[UPDATES], counters[CLICKED], counters[SHOWN],
    )  # fmt: skip


async def person_of(
    lookups: Lookups, world: World, gate: GateRules, user_id: str, places: Mapping[int, int],
    is_over: Callable[[], bool], waiting: Callable[[], AbstractContextManager[None]],
) -> tuple[Person | None, bool]:  # fmt: skip
    """Return what the store knows of a user, once it has what lies at these places of the events, and whether it does.

    Once the time `is_over` it is told as it is. SarosError where the store does not answer. It is waited in contexts of
    `waiting`.
    """
    genesis = world.replica.genesis
    home = int(partitions_of([user_id], genesis.partitions)[0])
    after = places.get(home, -1)
    while True:
        try:
            fence, found = await lookups.ask(lambda store: read_person(store, genesis, gate, user_id))
        except DAMAGED as error:
            raise StoreError(f"the user's state is damaged: {error}") from None
        reached = fence.next > after
        if reached or is_over():
            return found, reached
        with waiting():
            await asyncio.sleep(_AGAIN_S)
