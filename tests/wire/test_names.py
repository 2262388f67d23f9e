"""Texts of items are kept once, when first seen, and never more than allowed."""

import numpy as np

from saros.core.events import CLICK, IMPRESSION
from saros.core.ids import derive_key, hash_texts, joined
from saros.wire.decode import Decoder
from saros.wire.encode import event_of, message_of
from saros.wire.names import Names

KEY = derive_key(1)


def note(names: Names, *slates: list[str]) -> None:
    messages = [message_of([event_of("ann", IMPRESSION, slate, 1)]) for slate in slates]
    messages.insert(1, message_of([event_of("", CLICK, ["of a bad event"], 1)]))
    buffer, bounds = joined(messages)
    names.note(buffer, Decoder(KEY).decode(buffer, bounds, np.zeros(len(messages), np.int32)))


def test_texts_are_found_by_key() -> None:
    names = Names(100)
    note(names, ["a/b", "日本", "a/b"], ["x" * 256, "a/b"])
    note(names, ["new", "日本"])
    wanted = ["日本", "a/b", "x" * 256, "new", "never seen", "of a bad event"]
    found = [text.decode() for text in names.texts(hash_texts(KEY, wanted))]
    assert found == ["日本", "a/b", "x" * 256, "new", "", ""]


def test_the_least_used_go_first_and_come_again() -> None:
    names = Names(10)
    note(names, [f"old-{k}" for k in range(10)])
    note(names, [f"new-{k}" for k in range(7)])
    every = [f"old-{k}" for k in range(10)] + [f"new-{k}" for k in range(7)]
    found = [text.decode() for text in names.texts(hash_texts(KEY, every))]
    assert found[10:] == every[10:]
    kept = [text for text in found if text]
    assert len(kept) == 10
    assert set(kept) <= set(every)
    assert all(text in ("", wanted) for text, wanted in zip(found, every, strict=True))
    note(names, ["old-3"])
    assert names.texts(hash_texts(KEY, ["old-3"])) == [b"old-3"]


def test_a_slate_wider_than_the_limit_keeps_what_it_can() -> None:
    names = Names(3)
    every = [f"item-{k}" for k in range(9)]
    note(names, every)
    found = [text.decode() for text in names.texts(hash_texts(KEY, every))]
    assert sum(bool(text) for text in found) == 3
    assert all(text in ("", wanted) for text, wanted in zip(found, every, strict=True))
