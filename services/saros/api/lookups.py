"""Who asks: users from memory, and all others with one read of the store.

While the store does not answer nobody waits for it: reads end at once, and once in a while a small one asks whether it
is back. One user whose value is damaged is unknown, and nobody else is.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from saros.adapters.redis import Address, Store, UserReads, Users
from saros.api.observe import API_CACHE_HITS, API_STORE_ERRORS, API_USERS_READ
from saros.api.people import Party
from saros.api.world import World
from saros.core.glance import NOTHING
from saros.core.ids import hash_spans, joined
from saros.core.jit import I64
from saros.errors import SarosError, StoreError
from saros.redo.fence import Fence
from saros.telemetry import Seldom, log
from saros.wire.partitions import homes_of

_TIMEOUT_S = 0.5  # an answer is served without the store after that
_BEAT_S, _AWAY_S = 0.5, 0.2
_Found = TypeVar("_Found")


class Lookups:
    """Finds the users of one world."""

    def __init__(self, address: Address, model: str, world: World) -> None:
        once = address._replace(timeout_s=min(address.timeout_s, _TIMEOUT_S), retries=0)
        self._world, self._genesis = world, world.replica.genesis
        self._reads = UserReads(once, model, self._genesis.shards)
        self.away, self._seldom = False, Seldom()
        self._beating = asyncio.get_running_loop().create_task(self._beat())

    async def close(self) -> None:
        """End all reads."""
        self.away = True
        self._beating.cancel()
        await asyncio.gather(self._beating, return_exceptions=True)
        await self._reads.close()

    async def find(self, ids: Sequence[str]) -> Party:
        """Return users, all that are not in memory with one read, as far as the store answers."""
        world = self._world
        buffer, bounds = joined([text.encode() for text in ids])
        keys = hash_spans(world.hash_key, buffer, bounds[:-1], bounds[1:])
        party, missing = world.people.find(keys, homes_of(buffer, bounds, self._genesis.partitions))
        if missing < len(ids):
            API_CACHE_HITS.inc(len(ids) - missing)
        if missing and (self.away or not await self._read(party)):
            world.people.near(party)
        return party

    async def _read(self, party: Party) -> bool:
        """Read those of whom nothing is known; False where that fails."""
        wanted, places = dict[int, list[bytes]](), dict[int, list[int]]()
        homes, keys = party.homes.tolist(), party.keys.astype("<u8", copy=False).tobytes()
        for k in np.flatnonzero(party.users.known == NOTHING).tolist():
            wanted.setdefault(homes[k], []).append(keys[8 * k : 8 * k + 8])
            places.setdefault(homes[k], []).append(k)
        expected = np.array(self._world.people.fences, np.int64)
        try:
            read = await self._reads.read(wanted)
            which = [k for home in read for k in places[home]]
            values = [value for users in read.values() for value in users.values]
            offsets = self._offsets(read)
        except SarosError as error:
            self._note(str(error))
            return False
        self._note("")
        damaged = self._world.people.take(party, np.array(which, np.int32), offsets, expected, values)
        if damaged:
            API_STORE_ERRORS.inc(damaged)
            self._seldom.log("users in the store are damaged", logging.ERROR, users=damaged)
        API_USERS_READ.inc(len(which))
        return True

    async def ask(self, question: Callable[[Store], _Found]) -> _Found:
        """Let a thread ask the store something else; SarosError where it does not answer."""
        if self.away:
            raise StoreError("the store does not answer")
        return await self._reads.ask(question)

    def _offsets(self, read: Mapping[int, Users]) -> I64:
        """Return the redo offsets of the fences that were found, by partition."""
        offsets = np.full(self._genesis.partitions, -1, np.int64)
        for partition, (fence, _) in read.items():
            offsets[partition] = self._fence(partition, fence).offset
        return offsets

    def _fence(self, partition: int, packed: bytes) -> Fence:
        genesis, what = self._genesis, f"partition {partition} of the store"
        try:
            return genesis.found(packed, [genesis.start(partition)], what)[0]
        except ValueError as error:
            raise StoreError(f"{what} is damaged: {error}") from None

    def _note(self, error: str) -> None:
        """Note whether the store answers."""
        if error:
            API_STORE_ERRORS.inc()
            if not self.away:
                log("store is away", logging.WARNING, error=error)
        elif self.away:
            log("store is back")
        if self.away != bool(error):
            self.away = bool(error)

    async def _beat(self) -> None:
        """Ask for the fences: the store is there, and what it has need not be held."""
        people, nobody = self._world.people, dict.fromkeys(range(self._genesis.partitions), ())
        while True:
            try:
                for partition, (fence, _) in (await self._reads.read(nobody)).items():
                    people.meet(partition, self._fence(partition, fence).offset)
                self._note("")
            except SarosError as error:
                self._note(str(error))
            await asyncio.sleep(_AWAY_S if self.away else _BEAT_S)
