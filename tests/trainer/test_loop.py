"""What the loop keeps to while it learns, whatever the log and the collector would like."""

import gc
from itertools import count

import pytest

from saros.adapters.redo import Message, RedoLog
from saros.redo.record import Place
from saros.settings import load
from saros.trainer.commands import plan_of
from saros.trainer.share import Share
from saros.trainer.start import Service
from saros.trainer.stop import Stop
from tests.trainer.runs import Model


def test_two_records_fly_at_most_and_nothing_is_collected(
    model: Model, quiet_stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is read seldom, so that more would be sent if they might."""
    poll, place, turns = RedoLog.poll, Share.place, count()
    flying, collecting = list[int](), list[bool]()

    def seldom(redo: RedoLog, timeout_s: float) -> list[Message]:
        return poll(redo, timeout_s) if next(turns) % 20 == 0 else []

    def watched(share: Share, log_id: int, nonce: int, end: int) -> Place:
        flying.append(len(share.flights) + 1)
        collecting.append(gc.isenabled())
        return place(share, log_id, nonce, end)

    monkeypatch.setattr(RedoLog, "poll", seldom)
    monkeypatch.setattr(Share, "place", watched)
    model.settings["SAROS_TRAINER__POLL_MESSAGES"] = "30"
    model.send(1500)
    assert gc.isenabled()
    Service(plan_of(load(model.settings)), quiet_stop).run(until_drained=True)
    assert (len(flying) > 30, max(flying)) == (True, 2)
    assert not any(collecting), "it would stop the loop at any time, and look at all there is"
    monkeypatch.undo()
    model.check()
