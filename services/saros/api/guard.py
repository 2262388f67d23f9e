"""The guard: who may do what.

Without keys nobody is asked. Whether there are keys is settled at the start, and never changes while it runs. The file
of keys is read again each second; where it cannot be, the keys that were read last stay, and log and metric say so.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import Counter, Gauge

from saros.api.keys import Key, Ring, lines_of, read_entries
from saros.api.problems import NO_KEY, NOT_YOURS, ProblemError
from saros.api.scopes import EVERYTHING, OPEN, name_of, scope_of
from saros.errors import InputError
from saros.telemetry import log

REFUSED = Counter("saros_api_refused", "Requests whose key was missing, unknown, or without the scope.", ["reason"])
KEYS = Gauge("saros_api_keys", "Keys in force.")
KEYS_BROKEN = Gauge("saros_api_keys_broken", "1 while the file of keys cannot be read, and the keys before it stay.")

_LOOK_S = 1.0
_REMIND_S = 60.0
_FILE_MAX_BYTES = 2**20
# No scheme that is registered has a header of its own.
_CHALLENGE = {"www-authenticate": 'ApiKey realm="saros"'}
_ANYBODY = Key("", EVERYTHING, b"")  # where nobody is asked


class Guard:
    """Knows the keys, and what each route asks for."""

    def __init__(self, fixed: Iterable[Key] = (), file: Path | None = None, *, metrics_open: bool = False) -> None:
        """`fixed` are keys beside those in the file. Raises InputError where the file is not as it should be."""
        self._fixed, self._file, self._metrics_open = tuple(fixed), file, metrics_open
        self.asks = bool(self._fixed) or file is not None
        self._raw = b"" if file is None else _bytes_of(file)
        self._ring = self._ring_of(self._raw)
        self._task: asyncio.Task[None] | None = None
        self._complaint, self._remind_at = "", 0.0
        for reason in ("missing", "unknown", "scope"):
            REFUSED.labels(reason)
        KEYS.set(len(self._ring))
        KEYS_BROKEN.set(0)

    @property
    def keys(self) -> int:
        """How many keys are in force."""
        return len(self._ring)

    def need(self, method: str, route: str) -> int:
        """Return what a route asks for here."""
        return OPEN if self._metrics_open and route == "/metrics" else scope_of(method, route)

    def admit(self, need: int, presented: bytes | None) -> Key:
        """Return the key of whoever asks, one without a name where nobody has to say; raise if it may not."""
        if need == OPEN or not self.asks:
            return _ANYBODY
        if presented is None:
            REFUSED.labels("missing").inc()
            raise ProblemError(NO_KEY, "the header X-API-Key is missing", _CHALLENGE)
        key = self._ring.find(presented)
        if key is None:
            REFUSED.labels("unknown").inc()
            raise ProblemError(NO_KEY, "the key in X-API-Key is not known", _CHALLENGE)
        if not key.may & need:
            REFUSED.labels("scope").inc()
            raise ProblemError(NOT_YOURS, f"this needs a key with the scope {name_of(need)}")
        return key

    def name_of(self, need: int, presented: bytes | None) -> str | None:
        """Return the name of whoever asks, as `admit` does; None: it would not, and this is not counted."""
        if need == OPEN or not self.asks:
            return ""
        key = self._ring.find(presented) if presented is not None else None
        return key.name if key is not None and key.may & need else None

    def start(self) -> None:
        """Begin to look after the file."""
        if self._file is not None:
            self._task = asyncio.create_task(self._watch(self._file))

    async def close(self) -> None:
        """Let the file be."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _watch(self, file: Path) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                # All of it and not its times: it is small, and times miss a change within one tick of the clock.
                raw = await asyncio.to_thread(_bytes_of, file)
                ring = self._ring if raw == self._raw else self._ring_of(raw)
            except Exception as error:  # whatever it is: a watch that ended would keep old keys for good, unnoticed
                self._complain(str(error) or type(error).__name__)
                continue
            if self._complaint:
                self._complaint = ""
                KEYS_BROKEN.set(0)
                log("file of keys was mended", keys=len(ring))
            if ring is not self._ring:
                self._ring, self._raw = ring, raw
                KEYS.set(len(ring))
                log("keys were changed", keys=len(ring), names=",".join(ring.names))

    def _complain(self, complaint: str) -> None:
        KEYS_BROKEN.set(1)
        if complaint != self._complaint or time.monotonic() >= self._remind_at:
            self._complaint, self._remind_at = complaint, time.monotonic() + _REMIND_S
            log("file of keys could not be read, the keys before it stay", logging.ERROR, why=complaint, keys=self.keys)

    def _ring_of(self, raw: bytes) -> Ring:
        """Return the keys of the setting and of the file's bytes."""
        if self._file is None:
            return Ring(self._fixed)
        try:
            lines = lines_of(raw.decode(), self._file.name)
        except UnicodeDecodeError:
            raise InputError(f"{self._file.name} is not UTF-8", "write an entry on each line") from None
        if not lines:
            # More likely half written than meant: it would shut everybody out.
            raise InputError(f"{self._file.name} has no key", "write an entry on each line")
        return Ring([*self._fixed, *read_entries(lines)])


def _bytes_of(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            raw = opened.read(_FILE_MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}", "give a file with an entry on each line") from None
    if len(raw) > _FILE_MAX_BYTES:
        raise InputError(f"{file} has more than {_FILE_MAX_BYTES} bytes", "give a file with an entry on each line")
    return raw
