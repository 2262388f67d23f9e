"""What is told of an item, as a shard of the store holds it: its text, or all that upserts have said of it.

A text is UTF-8 and stands as it is. An upsert is the byte 255, which no text has, and the message, its text among it.

An upsert gives all fields, or changes some. Whoever folds the log puts the two together, in the order of the log, so
nobody has to read an item in order to change it. Each of them sets fields to values and looks at nothing else: so a log
that is read again from an earlier place ends with the same, whatever it began with.
"""

from saros.wire.v1.events_pb2 import ItemUpsert

_UPSERT = b"\xff"
CATEGORIES, HIDDEN, EXPIRES_AT, PROPERTIES = 1, 2, 4, 8  # bits of `ItemUpsert.changes`
CHANGES_MAX = 15


def pack_upsert(upsert: ItemUpsert) -> bytes:
    """Return an upsert as it is stored: the same bytes from every process."""
    return _UPSERT + upsert.SerializeToString(deterministic=True)


def upserted(told: bytes, upsert: ItemUpsert) -> bytes:
    """Return what is told of an item behind an upsert, if `told` was before it; empty: nothing was."""
    if not upsert.changes:
        return pack_upsert(upsert)
    now = read_item(told)
    now.item_id = upsert.item_id
    if upsert.changes & CATEGORIES:
        now.categories[:] = upsert.categories
    if upsert.changes & HIDDEN:
        now.hidden = upsert.hidden
    if upsert.changes & EXPIRES_AT:
        now.expires_at_ms = upsert.expires_at_ms
    if upsert.changes & PROPERTIES:
        now.properties.clear()
        now.properties.update(upsert.properties)
    return pack_upsert(now)


def is_upsert(told: bytes) -> bool:
    """True if this is more than a text."""
    return told.startswith(_UPSERT)


def read_item(told: bytes) -> ItemUpsert:
    """Return what is told of an item; of one that only has a text, nothing but that."""
    if is_upsert(told):
        return ItemUpsert.FromString(told[len(_UPSERT) :])
    return ItemUpsert(item_id=told.decode(errors="replace"))


def text_of(told: bytes) -> str:
    """Return the text of an item."""
    return read_item(told).item_id if is_upsert(told) else told.decode(errors="replace")
