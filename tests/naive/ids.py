"""Slow, obvious twins of saros.core.ids, saros.core.table and saros.core.ranking: the oracle of their tests.

Plain Python integers, dicts, lists and loops; nothing here imports Saros.
"""

import math
from collections.abc import Sequence

_WORD = (1 << 64) - 1


def splitmix64(x: int) -> int:
    """The SplitMix64 output that follows state x."""
    z = (x + 0x9E3779B97F4A7C15) & _WORD
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _WORD
    return z ^ (z >> 31)


def _rotated(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (64 - bits))) & _WORD


def _sip_round(v: list[int]) -> None:
    for a, b, bits in ((0, 1, 13), (2, 3, 16)):
        v[a] = (v[a] + v[b]) & _WORD
        v[b] = _rotated(v[b], bits) ^ v[a]
    v[0] = _rotated(v[0], 32)
    for a, b, bits in ((2, 1, 17), (0, 3, 21)):
        v[a] = (v[a] + v[b]) & _WORD
        v[b] = _rotated(v[b], bits) ^ v[a]
    v[2] = _rotated(v[2], 32)


def siphash(k0: int, k1: int, message: bytes) -> int:
    """SipHash-2-4, word by word as in the paper."""
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) % 256])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        _sip_round(v)
        _sip_round(v)
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(4):
        _sip_round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


class SlotTable:
    """A dict from keys to slots; None stands for a slot that is not in use."""

    def __init__(self, limit: int, capacity: int, evict: bool) -> None:
        self.limit = limit
        self.evict = evict
        self.capacity = min(capacity, limit)
        self.clear()

    def clear(self) -> None:
        self.slot_of: dict[int, int] = {}
        self.key_of: list[int | None] = []
        self.pins: list[int] = []
        self.referenced: list[bool] = []
        self.free: list[int] = []
        self.hand = 0

    def slots(self) -> list[int]:
        return sorted(self.slot_of.values())

    def find(self, keys: list[int]) -> list[int]:
        found = [self.slot_of.get(key, -1) for key in keys]
        for slot in found:
            if slot >= 0:
                self.referenced[slot] = True
        return found

    def _give(self, slot: int, key: int) -> None:
        self.slot_of[key] = slot
        self.key_of[slot] = key
        self.pins[slot] = 0
        self.referenced[slot] = True

    def _room(self) -> int | None:
        """The next slot to give without evicting, or None at the limit."""
        if self.free:
            return self.free.pop()
        slot = len(self.key_of)
        if slot == self.limit:
            return None
        if slot == self.capacity:
            self.capacity = min(2 * self.capacity, self.limit)
        self.key_of.append(None)
        self.pins.append(0)
        self.referenced.append(False)
        return slot

    def _evicted(self, kept: set[int]) -> int | None:
        """The slot that the clock hand takes, or None when every slot is pinned or kept."""
        candidates = {slot for slot in range(self.limit) if self.pins[slot] == 0 and slot not in kept}
        while candidates:
            slot = self.hand
            self.hand = (self.hand + 1) % self.limit
            if slot not in candidates:
                continue
            if self.referenced[slot]:
                self.referenced[slot] = False
                continue
            key = self.key_of[slot]
            assert key is not None
            del self.slot_of[key]
            return slot
        return None

    def intern(self, keys: list[int]) -> tuple[list[int], list[int]]:
        # What the call will answer with anyway; free slots are given before anything is evicted, and so are no concern.
        kept = {self.slot_of[key] for key in keys if key in self.slot_of}
        answers, fresh = [], []
        for key in keys:
            if key not in self.slot_of:
                slot = self._room()
                if slot is None and self.evict:
                    slot = self._evicted(kept)
                if slot is not None:
                    self._give(slot, key)
                    kept.add(slot)
                    fresh.append(slot)
            answers.append(self.slot_of.get(key, -1))
        self.find(keys)
        return answers, fresh

    def reserve(self, count: int) -> int:
        wanted = min(len(self.slot_of) + count, self.limit)
        while self.capacity < wanted:
            self.capacity = min(2 * self.capacity, self.limit)
        return wanted - len(self.slot_of)

    def remove(self, slots: list[int]) -> None:
        if len(set(slots)) < len(slots) or not set(slots) <= set(self.slot_of.values()):
            raise ValueError("a slot is not in use or repeated")
        for slot in slots:
            key = self.key_of[slot]
            assert key is not None
            del self.slot_of[key]
            self.key_of[slot] = None
            self.pins[slot] = 0
            self.referenced[slot] = False
            self.free.append(slot)

    def shift_pins(self, slots: list[int], by: int) -> None:
        if not set(slots) <= set(self.slot_of.values()):
            raise ValueError("a slot is not in use")
        if any(self.pins[slot] + by * slots.count(slot) < 0 for slot in slots):
            raise ValueError("no pin left")
        for slot in slots:
            self.pins[slot] += by


def _gain(rank: int, authors: bool) -> float:
    """What a hit at a rank (from 1) adds to DCG; the authors weigh ranks 1 and 2 the same."""
    if authors:
        return 1.0 if rank == 1 else 1 / math.log2(rank)
    return 1 / math.log2(rank + 1)


def _dcg(labels: Sequence[int], authors: bool) -> float:
    return sum(_gain(rank, authors) for rank, label in enumerate(labels, 1) if label)


def _precisions(labels: Sequence[int]) -> list[float]:
    """Precision at the rank of each hit."""
    return [sum(labels[:rank]) / rank for rank, label in enumerate(labels, 1) if label]


def ranked_labels(scores: Sequence[float], labels: Sequence[int]) -> list[int]:
    """The labels by descending score, equal scores in input order (Python's sort is stable)."""
    return [label for _, label in sorted(zip(scores, labels, strict=True), key=lambda pair: -pair[0])]


def authors_metrics(users: Sequence[tuple[Sequence[float], Sequence[int]]], cutoff: int) -> tuple[float, float, int]:
    """MAP@K, NDCG@K and users counted, as the paper's authors compute them."""
    maps, ndcgs = [], []
    for scores, labels in users:
        if sum(labels) == 0 or len(labels) == 1:
            continue
        ranked = ranked_labels(scores, labels)
        precisions = _precisions(ranked[:cutoff])
        maps.append(sum(precisions) / len(precisions) if precisions else 0.0)
        ideal = sorted(ranked[: max(10, cutoff)], reverse=True)[:cutoff]
        ndcgs.append(_dcg(ranked[:cutoff], True) / _dcg(ideal, True) if any(ideal) else 0.0)
    return sum(maps) / max(len(maps), 1), sum(ndcgs) / max(len(ndcgs), 1), len(maps)


def standard_metrics(users: Sequence[tuple[Sequence[float], Sequence[int]]], cutoff: int) -> tuple[float, float, int]:
    """MAP@K, NDCG@K and users counted, as everybody else computes them."""
    maps, ndcgs = [], []
    for scores, labels in users:
        if sum(labels) == 0:
            continue
        ranked = ranked_labels(scores, labels)
        maps.append(sum(_precisions(ranked[:cutoff])) / min(cutoff, sum(labels)))
        ideal = sorted(labels, reverse=True)[:cutoff]
        ndcgs.append(_dcg(ranked[:cutoff], False) / _dcg(ideal, False))
    return sum(maps) / max(len(maps), 1), sum(ndcgs) / max(len(ndcgs), 1), len(maps)


def pair_loss(users: Sequence[tuple[Sequence[float], Sequence[int]]]) -> tuple[float, int]:
    """Eq. 1 and the users that have a pair."""
    losses = []
    for scores, labels in users:
        pairs = [
            -(s_i - s_j) if s_i != s_j else 0.0
            for s_i, positive in zip(scores, labels, strict=True)
            for s_j, other in zip(scores, labels, strict=True)
            if positive and not other
        ]
        if pairs:
            losses.append(sum(math.log1p(math.exp(x)) if x < 700 else x for x in pairs) / len(pairs))
    return sum(losses) / max(len(losses), 1), len(losses)
