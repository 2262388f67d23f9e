"""Keys of callers: how one is made, how its hash is written down, and how it is found again.

A key is 256 random bits as text, so its SHA-256 is all that has to be kept: whoever reads it does not find the key, and
no slow hash is needed, as there is nothing to guess. An entry is `name:scope+scope:hash`, for example
`shop:ingest+read:9f86…`. Entries stand in a setting, separated by blanks, or in a file, one on each line. Two of one
name are how a key is changed: the new one is added, callers move over, the old one is taken out.

Nothing here repeats what stands where a hash should: it may be a key that somebody put there by mistake.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from typing import NamedTuple

from saros.api.scopes import GIVES
from saros.errors import InputError

KEY_LEAST, KEY_MOST = 32, 256  # characters
KEYS_MAX = 1000
_PREFIX = "saros_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH = re.compile(r"[0-9a-f]{64}")
_FOUND_BY = 8  # bytes of the hash


class Key(NamedTuple):
    """A key as it is known here."""

    name: str
    may: int  # the bits of `saros.api.scopes`
    digest: bytes


class Ring:
    """Keys that can be looked up.

    A key that is presented is hashed, and looked up by the first bytes of its hash; then the hashes are compared in
    constant time. What time the look-up takes tells of hashes only, which whoever tries keys cannot steer, and which
    lead back to no key.
    """

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys: dict[bytes, Key] = {}
        # Compared with where nothing is found, so that both ways cost the same. It may nothing, whoever had its key.
        self._nobody = Key("", 0, secrets.token_bytes(32))
        for key in keys:
            if key.digest[:_FOUND_BY] in self._keys:
                raise InputError(f"the key '{key.name}' is there twice", "take one of the entries out")
            self._keys[key.digest[:_FOUND_BY]] = key
        if len(self._keys) > KEYS_MAX:
            raise InputError(f"there are {len(self._keys)} keys", f"keep at most {KEYS_MAX}")

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def names(self) -> list[str]:
        """Return the names of all keys."""
        return sorted(key.name for key in self._keys.values())

    def find(self, presented: bytes) -> Key | None:
        """Return the key that was presented, if it is one of ours."""
        if len(presented) > KEY_MOST:
            return None
        digest = hashlib.sha256(presented).digest()
        key = self._keys.get(digest[:_FOUND_BY], self._nobody)
        return key if hmac.compare_digest(digest, key.digest) else None


def new_key() -> str:
    """Return a key that nobody has."""
    return _PREFIX + secrets.token_urlsafe(32)


def entry_of(name: str, scopes: Iterable[str], key: str) -> str:
    """Return the entry of a key."""
    if not KEY_LEAST <= len(key) <= KEY_MOST or not key.isascii() or not key.isprintable() or " " in key:
        raise InputError(
            f"a key has {KEY_LEAST} to {KEY_MOST} visible ASCII characters, and this one has not",
            "let `saros key new` make one: its hash protects only what cannot be guessed",
        )
    entry = f"{name}:{'+'.join(dict.fromkeys(scopes))}:{hashlib.sha256(key.encode()).hexdigest()}"
    _read(entry, "this key")
    return entry


def read_entries(entries: Iterable[tuple[str, str]]) -> list[Key]:
    """Return the keys of entries, each with the place where it stands."""
    return [_read(entry, place) for place, entry in entries]


def lines_of(text: str, source: str) -> list[tuple[str, str]]:
    """Return the entries in the text of a file, with their places. Empty lines and those that begin with # are none."""
    lines = enumerate((line.strip() for line in text.splitlines()), start=1)
    return [(f"line {number} of {source}", line) for number, line in lines if line and not line.startswith("#")]


def _read(entry: str, place: str) -> Key:
    hint = "write name:scope+scope:hash as `saros key new` and `saros key hash` print it"
    parts = entry.split(":")
    if len(parts) != 3:
        raise InputError(f"{place} is no entry of a key", hint)
    name, scopes, digest = parts
    if not _NAME.fullmatch(name):
        raise InputError(f"{place} has no name of 1 to 64 letters, digits, dots, _ and -", hint)
    unknown = [scope for scope in scopes.split("+") if scope not in GIVES]
    if unknown:
        raise InputError(f"{place}, the key '{name}', has a scope that is none of {', '.join(GIVES)}", hint)
    if not _HASH.fullmatch(digest):
        raise InputError(f"{place}, the key '{name}', has no SHA-256 in 64 small hexadecimal digits", hint)
    may = 0
    for scope in scopes.split("+"):
        may |= GIVES[scope]
    return Key(name, may, bytes.fromhex(digest))
