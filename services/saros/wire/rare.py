"""Item upserts and gate changes: rare and rich, so protobuf's own decoder reads them, one Python object each."""

import numpy as np
from google.protobuf.message import DecodeError

from saros.core.events import TIME_MAX_MS
from saros.core.gate import SESSION, GateRules, check_rules
from saros.core.jit import I32, U8
from saros.core.timeline import WAIT_MAX_MS
from saros.wire.columns import BAD_GATE_CHANGE, BAD_ITEM, BAD_PROTOBUF, GATE, GOOD, ID_MAX, MISROUTED, UPSERT, Decoded
from saros.wire.item import CHANGES_MAX
from saros.wire.partitions import partitions_of
from saros.wire.v1.events_pb2 import Event, GateChange, ItemUpsert

CATEGORIES_MAX, CATEGORY_MAX = 32, 64
PROPERTIES_MAX = 4096  # bytes of keys and values
_LEDGER_BYTES = range(4096, 16 * 2**20 + 1)


def read_rare(buffer: U8, decoded: Decoded, partition: I32, partitions: int) -> dict[int, Event]:
    """Return the item upserts and gate changes by row; rows that turn out to be bad are marked in `decoded`."""
    found = {}
    for row in np.flatnonzero(decoded.rare).tolist():
        try:
            event = Event.FromString(buffer[decoded.first[row] : decoded.end[row]].tobytes())
        except DecodeError:
            decoded.reason[row] = BAD_PROTOBUF
            continue
        if decoded.kind[row] < UPSERT:
            continue
        if decoded.kind[row] == GATE:
            reason = GOOD if is_gate_change(event.gate_change) else BAD_GATE_CHANGE
        elif not is_item(event.item_upsert):
            reason = BAD_ITEM
        else:
            home = partitions_of([event.item_upsert.item_id], partitions or 1)[0]
            reason = GOOD if partitions == 0 or home == partition[decoded.message[row]] else MISROUTED
        decoded.reason[row] = reason
        if reason == GOOD:
            found[row] = event
    return found


def is_item(item: ItemUpsert) -> bool:
    """True if an item upsert keeps to the limits."""
    text = sum(len(name.encode()) + len(value.encode()) for name, value in item.properties.items())
    return (
        1 <= len(item.item_id.encode()) <= ID_MAX
        and len(item.categories) <= CATEGORIES_MAX
        and all(1 <= len(category.encode()) <= CATEGORY_MAX for category in item.categories)
        and 0 <= item.expires_at_ms <= TIME_MAX_MS
        and text <= PROPERTIES_MAX
        and item.changes <= (0 if item.deleted else CHANGES_MAX)
    )


def gate_rules(change: GateChange) -> GateRules:
    """Return the rules that a gate change puts in force."""
    return GateRules(
        blocks_min=change.blocks_min,
        blocks_max=change.blocks_max,
        percentile=float(change.percentile),
        blocks_max_floor=change.blocks_max_floor,
        blocks_max_ceiling=change.blocks_max_ceiling,
        window_days=change.window_days,
        mode=change.mode,
        own_row=change.own_row,
        ignore_repeats=change.ignore_repeats,
        wait_ms=change.wait_ms,
        ledger_max_bytes=change.ledger_max_bytes,
    )


def gate_change(rules: GateRules, revision: int) -> GateChange:
    """Return the change that puts rules in force."""
    return GateChange(revision=revision, **rules._asdict())


def supersedes(change: GateChange, other: GateChange) -> bool:
    """True if a gate change wins over another, whichever of them came first."""
    one, two = ((each.revision, each.SerializeToString(deterministic=True)) for each in (change, other))
    return one > two


def is_gate_change(change: GateChange) -> bool:
    """True if a trainer can run the gate with it; none runs the mode `session` yet."""
    try:
        check_rules(gate_rules(change))
    except ValueError:
        return False
    sane = change.wait_ms <= WAIT_MAX_MS and change.ledger_max_bytes in _LEDGER_BYTES
    return sane and change.revision >= 1 and change.mode != SESSION
