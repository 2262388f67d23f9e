"""Event streams written out as words, so that an example can be read: `show abc, click b, wait 11s, erase`."""

import re

from tests.naive.sessions import DAY_MS, WEIGHT_ONE, Block, Erased, Event, Expired, NewDay, Op, SessionEnd, Weighted

START_MS = 100 * DAY_MS + 1
_KINDS = {"show": "impression", "hate": "negative", "like": "positive"}  # other verbs are kinds themselves
_UNITS = {"ms": 1, "s": 1_000, "d": DAY_MS}


def key_of(letter: str) -> int:
    """The key of an item; both halves, and their xor, differ between items, as they do in hashes."""
    return ord(letter) << 32 | ord(letter) << 8


def _duration(text: str) -> int:
    """`11s`, `-5ms` or `2d` in milliseconds."""
    found = re.fullmatch(r"(-?\d+)(ms|s|d)", text)
    assert found, f"{text!r} is no duration"
    return int(found[1]) * _UNITS[found[2]]


def events_of(script: str) -> list[Event]:
    """The events of a script.

    Steps are separated by commas. A step is a verb, its items (one letter each) and details: `user=2` (else 1),
    `at=-5s` (the event's time, from the log's), `untimed`, `id=7`, `session=2`, `weight=2.5`, `bot`. `wait 11s` lets
    time pass. `block abc` is short for `show ab, click c`.
    """
    log_ms, events = START_MS, []
    plain = re.sub(r"block (\w+)(\w)( [^,]*)?", r"show \1\3, click \2\3", script)
    for step in filter(None, (step.strip() for step in plain.split(","))):
        verb, *words = step.split()
        if verb == "wait":
            log_ms += _duration(words[0])
            continue
        details = dict(word.split("=") for word in words if "=" in word)
        items = [word for word in words if "=" not in word and word not in ("untimed", "bot")]
        events.append(
            Event(
                user=int(details.get("user", 1)),
                kind=_KINDS.get(verb, verb),
                items=tuple(key_of(letter) for letter in "".join(items)),
                time_ms=0 if "untimed" in words else log_ms + _duration(details.get("at", "0ms")),
                log_ms=log_ms,
                event_id=int(details.get("id", 0)),
                session=int(details.get("session", 0)),
                weight=float(details.get("weight", 1.0)),
                bot="bot" in words,
            )
        )
    return events


def _letters(pairs: Weighted) -> str:
    """Items as letters, each with its weight unless that is 1."""
    return "".join(chr(item >> 32) + ("" if w == WEIGHT_ONE else f"*{w / WEIGHT_ONE:g}") for item, w in pairs)


def told(ops: list[Op]) -> list[str]:
    """Ops in short, without new days: `ac|b` is a block, negatives and positives; users other than 1 are named."""
    words = []
    for op in ops:
        if isinstance(op, NewDay):
            continue
        if isinstance(op, Block):
            word = f"{_letters(op.negatives)}|{_letters(op.positives)}"
        else:
            word = {SessionEnd: "end", Erased: "erased", Expired: "expired"}[type(op)]
        words.append(word if op.user == 1 else f"{op.user}:{word}")
    return words
