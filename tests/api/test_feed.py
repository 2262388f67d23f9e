"""What the feed tells while it loads, without a log: the rest of it is tested where there is one."""

import asyncio
import logging

import pytest

from saros.api import feed
from saros.api.feed import Feed
from saros.api.world import Read, World
from saros.errors import SarosError
from saros.redo.genesis import Genesis
from tests.api.test_world import PLAN


class Heard:
    """Remembers why there is nothing to follow yet."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def loading(self, what: str) -> None:
        self.reasons.append(what)

    def found(self, genesis: Genesis) -> None:
        raise AssertionError

    def booted(self, world: World) -> None:
        raise AssertionError

    def took(self, world: World, read: Read) -> None:
        raise AssertionError

    def looked(self, world: World, now_s: float, ends: list[int]) -> None:
        raise AssertionError


@pytest.mark.parametrize(("pause_s", "lines"), [(0.0, 2), (60.0, 0)])
def test_how_far_it_has_loaded_is_told_each_time_and_logged_now_and_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, pause_s: float, lines: int
) -> None:
    async def work() -> None:
        told = loading._progress(16)
        for done in (3, 16):
            told(done)
        await asyncio.sleep(0)
        loading._stop.set()
        with pytest.raises(SarosError, match="stopped"):
            told(16)

    monkeypatch.setattr(feed, "_PROGRESS_S", pause_s)
    heard, loop = Heard(), asyncio.new_event_loop()
    loading = Feed(PLAN, heard, loop)
    with caplog.at_level(logging.INFO, "saros"):
        loop.run_until_complete(work())
    loop.close()
    assert heard.reasons == ["catalogue is loading: 3 of 16 shards", "catalogue is loading: 16 of 16 shards"]
    fields = [one.__dict__["fields"] for one in caplog.records if one.getMessage() == "catalogue is loading"]
    assert [(one["done"], one["shards"]) for one in fields] == [(3, 16), (16, 16)][:lines]
    assert all(one["process_mb"] > 0 for one in fields)
