"""A redo record: what one micro-batch of a partition did, to bytes and back.

A record says what came out and never what is to be computed: blocks with their coefficients, users and partition as
they are afterwards. So whoever folds it, on whatever machine, comes to the same bits, and whoever flushes it needs no
learner.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from saros.core.codec import pack_partition
from saros.core.codec_blocks import Unpacked, pack_blocks, unpack_blocks
from saros.core.codec_users import pack_users
from saros.core.gate import DAYS, ITEMS_FULL
from saros.core.jit import I32, I64, U8, U64
from saros.core.learner import Batch, Learner
from saros.core.settle import BOOKED, CLEARED, MOVE, RESET, Blocks
from saros.core.users import BYTES, CLOCK, COUNTED, NEW, NUMBER, UserArrays
from saros.redo.fence import Fence
from saros.wire.operations import ledger_operations, user_operations
from saros.wire.v1 import redo_pb2 as pb

CLEAR, BOOK, DELETE = 1, 2, 4  # flags of a block
ERASED, WAITING, ROW, UNSEEN, LEDGER = 1, 2, 4, 8, 16  # flags of a user
_REDO_RECORD = bytes([pb.Redo.RECORD_FIELD_NUMBER << 3 | 2])  # how a `Redo` says that a record follows


class Place(NamedTuple):
    """Where a record stands: in which log, after which record, and which events it covers."""

    log_id: int
    nonce: int
    parent: int
    first: int
    end: int


def lows(users: UserArrays, slots: I32) -> I32:
    """Return for each user the first block number in its window; entries below have left it."""
    first: I32 = users.gate[slots, NUMBER] - users.gate[slots, COUNTED]
    return first


def pack_record(
    place: Place, learner: Learner, batch: Batch, touched: I32, before: I32, names: dict[int, bytes], stats: pb.Stats
) -> pb.Record:
    """Return the record of a batch; `touched` are the users it touched, `before` their `lows` before it."""
    record = pb.Record(
        log_id=place.log_id,
        nonce=place.nonce,
        parent=place.parent,
        first=place.first,
        end=place.end,
        blocks=_pack_blocks(batch.blocks, learner.users.arrays.keys),
        users=_pack_users(learner, batch, touched, before),
        partition=pb.Partition(state=pack_partition(learner.timeline, learner.gate)),
        stats=stats,
    )
    if names:
        record.names.key = np.fromiter(names, np.uint64, len(names)).tobytes()
        record.names.text.extend(names.values())
    return record


def _pack_blocks(blocks: Blocks, keys: U64) -> pb.Blocks:
    """Return the blocks that a fold or a ledger needs; the others closed, and that was all."""
    cleared, booked = blocks.flags & CLEARED != 0, blocks.flags & BOOKED != 0
    deleted = blocks.decision == ITEMS_FULL
    filled = (blocks.sign != 0) | booked
    which = np.flatnonzero(filled | cleared | deleted)
    data, starts = pack_blocks(blocks, which[filled[which]])
    length = np.zeros(len(which), np.uint32)
    length[filled[which]] = np.diff(starts)
    flags = CLEAR * cleared + BOOK * booked + DELETE * deleted
    return pb.Blocks(
        user=keys[blocks.user[which]].tobytes(),
        number=blocks.number[which].tobytes(),
        sign=blocks.sign[which].astype(np.int8).tobytes(),
        flags=flags[which].astype(np.uint8).tobytes(),
        length=length.tobytes(),
        data=data.tobytes(),
    )


def _pack_users(learner: Learner, batch: Batch, touched: I32, before: I32) -> pb.Users:
    """Return the users as they are now; one that nothing is known of is left out, unless it was erased."""
    users, blocks = learner.users.arrays, batch.blocks
    unseen = users.head[touched, CLOCK] == NEW
    erased = np.isin(touched, batch.erased)
    kept = ~unseen | erased
    slots, unseen, erased, before = touched[kept], unseen[kept], erased[kept], before[kept]
    moved = np.isin(slots, blocks.user[blocks.flags & (MOVE | RESET) != 0]) & ~unseen
    waiting = learner.ledger.arrays.waiting[slots] > 0
    ledger = users.gate[slots, BYTES : BYTES + DAYS].any(axis=1)
    data, starts = pack_users(users, slots, learner.session_rules)
    now = lows(users, slots)
    vested = np.stack([before, now], axis=1)
    vested[now <= before] = 0
    flags = ERASED * erased + WAITING * waiting + ROW * moved + UNSEEN * unseen + LEDGER * ledger
    return pb.Users(
        key=users.keys[slots].tobytes(),
        flags=flags.astype(np.uint8).tobytes(),
        length=np.diff(starts).astype(np.uint32).tobytes(),
        data=data.tobytes(),
        rows=users.rows[slots[moved]].tobytes(),
        vested=vested.astype(np.int32).tobytes() if vested.any() else b"",
    )


def redo_of(record: pb.Record) -> bytes:
    """Return a record as a message of the redo topic: the bytes of a `Redo`, which would be a copy of it first."""
    value = record.SerializeToString()
    return b"".join([_REDO_RECORD, _varint(len(value)), value])


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    return bytes([*parts, number])


def read_redo(value: bytes) -> pb.Redo | None:
    """Return a message of the redo topic, or None where it is nothing of ours."""
    try:
        return pb.Redo.FromString(value)
    except DecodeError:
        return None


def judged(fence: Fence, offset: int, record: pb.Record | None) -> tuple[bool, Fence]:
    """Return whether the message at a redo offset is a record that counts, and the fence behind it (1, 2, 4, 37)."""
    if (
        record is not None
        and record.log_id == fence.log_id
        and record.first == fence.next
        and record.parent == fence.nonce
        and record.end > record.first
    ):
        return True, fence._replace(offset=offset, next=record.end, nonce=record.nonce)
    return False, fence._replace(offset=offset)


class Learned(NamedTuple):
    """The blocks of records, as columns."""

    user: U64
    sign: I32
    flags: U8
    length: I64
    blocks: Unpacked

    def cut(self, first: int, end: int) -> "Learned":
        """Return the blocks [first, end), at least one."""
        parts = self.blocks
        begin, after = int(parts.start[first]), int(parts.start[end - 1] + parts.negatives[end - 1])
        after += int(parts.positives[end - 1])
        columns = Unpacked._make([*(column[first:end] for column in parts[:6]), *(c[begin:after] for c in parts[6:])])
        blocks = columns._replace(start=columns.start - begin)
        return Learned._make([*(column[first:end] for column in self[:4]), blocks])


def learned(records: Sequence[pb.Record], dim: int) -> Learned:
    """Return the blocks of records, one record behind the other; ValueError where one is damaged."""
    packed = [record.blocks for record in records]
    if any(
        not len(blocks.user) // 8 == len(blocks.length) // 4 == len(blocks.sign) == len(blocks.flags)
        == len(blocks.number) // 4
        for blocks in packed
    ):  # fmt: skip
        raise ValueError("the columns of a record's blocks have different lengths")
    user = _column(b"".join([blocks.user for blocks in packed]), np.uint64)
    length = _column(b"".join([blocks.length for blocks in packed]), np.uint32).astype(np.int64)
    sign = _column(b"".join([blocks.sign for blocks in packed]), np.int8).astype(np.int32)
    flags = _column(b"".join([blocks.flags for blocks in packed]), np.uint8)
    data = b"".join([blocks.data for blocks in packed])
    return Learned(user, sign, flags, length, unpack_blocks(data, bounds(length), dim))


def bounds(lengths: NDArray[np.integer[Any]]) -> I64:
    """Return the n + 1 places where pieces of these lengths meet."""
    found = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=found[1:])
    return found


def _column(data: bytes, dtype: type[np.generic]) -> NDArray[Any]:
    return np.frombuffer(bytearray(data), dtype)


def scenario_counts(stats: pb.Stats) -> Iterator[tuple[str, int, int]]:
    """Yield the scenarios of a record, each with its items shown and its clicks."""
    if stats.scenario and len(stats.scenario_counts) == 16 * len(stats.scenario):
        counts = np.frombuffer(stats.scenario_counts, np.int64).reshape(-1, 2).tolist()
        for name, (shown, clicked) in zip(stats.scenario, counts, strict=True):
            yield name, shown, clicked


def operations(record: pb.Record, dim: int) -> bytes:
    """Return what the store has to do for a record: see `saros.wire.operations`."""
    blocks, users = record.blocks, record.users
    key, flags = _column(users.key, np.uint64), _column(users.flags, np.uint8)
    vested = _column(users.vested, np.int32) if users.vested else np.zeros(2 * len(key), np.int32)
    erased, states = user_operations(
        key,
        flags,
        bounds(_column(users.length, np.uint32)),
        _column(users.data, np.uint8),
        _column(users.rows, np.float32).reshape(-1, dim),
        vested.reshape(-1, 2),
    )
    ledgers = ledger_operations(
        _column(blocks.user, np.uint64),
        _column(blocks.number, np.int32),
        _column(blocks.flags, np.uint8),
        bounds(_column(blocks.length, np.uint32)),
        _column(blocks.data, np.uint8),
    )
    return b"".join([erased.tobytes(), ledgers.tobytes(), states.tobytes()])


def change_ledgers(ledgers: dict[int, dict[int, bytes]], record: pb.Record) -> None:
    """Bring ledgers, by user and number, from what they were before a record to what they are behind it.

    A store comes to the same with the `operations` of the record, in the same order.
    """
    blocks, users, asked = record.blocks, record.users, np.fromiter(ledgers, np.uint64, len(ledgers))
    key, owner = np.frombuffer(users.key, np.uint64), np.frombuffer(blocks.user, np.uint64)
    touched, booked = np.flatnonzero(np.isin(key, asked)).tolist(), np.flatnonzero(np.isin(owner, asked)).tolist()
    user_flags, block_flags, data = users.flags, blocks.flags, blocks.data  # a message gives a copy each time
    for u in touched:
        if user_flags[u] & ERASED:
            ledgers[int(key[u])].clear()
    starts, numbers = bounds(np.frombuffer(blocks.length, np.uint32)), np.frombuffer(blocks.number, np.int32)
    for b in booked:
        ledger, number, flags = ledgers[int(owner[b])], int(numbers[b]), block_flags[b]
        if flags & CLEAR:
            ledger.clear()
        if flags & BOOK:
            ledger[number] = data[starts[b] : starts[b + 1]]
        elif flags & DELETE:
            ledger.pop(number, None)
    vested = np.frombuffer(users.vested, np.int32).reshape(-1, 2)
    for u in touched if len(vested) else ():
        for number in range(*vested[u].tolist()):
            ledgers[int(key[u])].pop(number, None)
