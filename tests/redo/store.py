"""What a store holds of one partition, kept by doing operations one by one: the oracle of whoever writes them."""

import struct

import numpy as np

from saros.core.codec_blocks import unpack_ledger
from saros.core.jit import U64
from saros.core.learner import Learner
from saros.wire.operations import StoredUser, read_user


class Store:
    """Users and ledgers of one partition."""

    def __init__(self) -> None:
        self.users: dict[int, StoredUser] = {}
        self.ledgers: dict[int, dict[int, bytes]] = {}

    def do(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            code, key = struct.unpack_from("<BQ", data, at)
            at += 9
            if code in (1, 6):
                (length,) = struct.unpack_from("<I", data, at)
                value = data[at + 4 : at + 4 + length]
                at += 4 + length
                if code == 1:
                    self.users[key] = read_user(value)
                else:
                    row = self.users[key].row if key in self.users else b""
                    self.users[key] = StoredUser(bool(value[0] & 1), row, value[1:])
            elif code == 2:
                number, length = struct.unpack_from("<iI", data, at)
                self.ledgers.setdefault(key, {})[number] = data[at + 8 : at + 8 + length]
                at += 8 + length
            elif code == 3:
                (number,) = struct.unpack_from("<i", data, at)
                self.ledgers.get(key, {}).pop(number, None)
                at += 4
            else:
                assert code in (4, 5)
                self.ledgers.pop(key, None)
                if code == 5:
                    self.users.pop(key, None)

    def entries(self) -> dict[int, dict[int, bytes]]:
        """Return the ledgers that have entries."""
        return {key: entries for key, entries in self.ledgers.items() if entries}

    def load(self, learner: Learner, keys: U64) -> None:
        slots = learner.intern(keys)
        for key, slot in zip(keys.tolist(), slots, strict=True):
            if key in self.users:
                is_waiting, row, state = self.users[key]
                rows = np.frombuffer(row, np.float32)[None] if row else learner.users.arrays.rows[slot][None]
                learner.restore(slot[None], state, np.array([0, len(state)]), rows)
                waiting = [data for data in self.ledgers.get(key, {}).values() if not data[1] & 1]
                assert bool(waiting) <= is_waiting, "who has blocks that wait is marked"
                self.load_ledger(learner, key, int(slot), added=False)

    def load_ledger(self, learner: Learner, key: int, slot: int, added: bool = True) -> None:
        blocks = [data for _, data in sorted(self.ledgers.get(key, {}).items()) if added or not data[1] & 1]
        unpack_ledger(learner.ledger, slot, b"".join(blocks), np.cumsum([0, *map(len, blocks)]))
