"""About how many bytes containers hold: their tables as Python tells them, what is in them from a sample.

Python's objects cost several times what they say, so they are not to be left out where a million are held.
"""

from collections.abc import Mapping
from itertools import islice
from sys import getsizeof
from typing import Any

_SAMPLE = 256
_INT = 32  # bytes of a key or a slot


def bytes_of(held: Mapping[Any, object]) -> int:
    """Return about how many bytes a mapping holds, in constant time."""
    sample = [_size(key) + _size(value) for key, value in islice(held.items(), _SAMPLE)]
    return getsizeof(held) + (len(held) * sum(sample) // len(sample) if sample else 0)


def _size(value: object) -> int:
    if isinstance(value, set | frozenset):  # of slots
        return getsizeof(value) + _INT * len(value)
    if isinstance(value, tuple):
        return getsizeof(value) + sum(map(getsizeof, value))
    return getsizeof(value)
