"""What is told of an item, as a shard of the store holds it: its text, or all of its last upsert.

A text is UTF-8 and stands as it is. An upsert is the byte 255, which no text has, and the message, its text among it.
"""

from saros.wire.v1.events_pb2 import ItemUpsert

_UPSERT = b"\xff"


def pack_upsert(upsert: ItemUpsert) -> bytes:
    """Return an upsert as it is stored: the same bytes from every process."""
    return _UPSERT + upsert.SerializeToString(deterministic=True)


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
