"""Which rules of the gate are in force: those the log has, whatever a trainer, or the audit, is started with."""

import pytest

from saros.core.events import CLICK, IMPRESSION
from saros.core.gate import GateRules
from saros.settings import load
from saros.trainer.commands import plan_of
from saros.trainer.plan import unheeded
from saros.trainer.share import Share
from saros.trainer.start import Service
from saros.trainer.stop import Stop
from saros.wire.encode import event_of
from saros.wire.partitions import partitions_of
from saros.wire.rare import gate_change
from saros.wire.v1 import redo_pb2 as pb
from saros.wire.v1.events_pb2 import Event
from tests.trainer.runs import PARTITIONS, START_MS, Model

# 12 from the first day on, as nothing else is allowed.
ESTIMATED = {
    "SAROS_GATE__BLOCKS_MAX": "p97",
    "SAROS_GATE__BLOCKS_MAX_FLOOR": "12",
    "SAROS_GATE__BLOCKS_MAX_CEILING": "12",
}
OTHERS = {"SAROS_GATE__BLOCKS_MIN": "1", "SAROS_GATE__BLOCKS_MAX": "40", "SAROS_GATE__WINDOW_DAYS": "7"}


def test_a_model_keeps_the_rules_that_it_began_with(model: Model) -> None:
    began = model.settings = {**model.settings, **ESTIMATED}
    users = model.approach()
    model.send(400)
    model.drain()
    assert "gate settings" not in model.logs(1000)
    model.settings = {**began, **OTHERS}
    model.cross(users)  # B, as it was
    model.send(400)
    model.drain()
    assert model.logs(1000).count("gate settings are not in force") == 1, "though there are three partitions"
    assert f"settings={' '.join(OTHERS)}" in model.logs(1000)
    model.check()
    model.settings = began
    model.check()
    gates = [record.partition.gate for record in model._log()[1]]
    assert gates == [gate_change(load(began).gate.rules(), 0)] * len(gates)


def test_a_change_before_anything_was_learned(model: Model) -> None:
    """Events before it were learned by the rules that the model began with; the log has them all the same."""
    model.settings["SAROS_TRAINER__POLL_MESSAGES"] = "2000"  # all of them would be one micro-batch
    began, users = model.settings, model.approach()
    model.send(200)
    change = gate_change(load(began).gate.rules()._replace(window_days=5, blocks_max=11), 1)
    for partition in range(PARTITIONS):
        model.put(partition, Event(gate_change=change))
    model.cross(users)
    model.send(200)
    model.drain()
    model.check()
    model.settings = {**began, **OTHERS}
    model.check()
    model.send(200)
    model.drain()
    model.check()
    assert "SAROS_GATE__BLOCKS_MIN SAROS_GATE__BLOCKS_MAX SAROS_GATE__WINDOW_DAYS" in model.logs(1000)


def test_who_is_in_memory_as_repeats_begin_to_teach_decides_nothing(model: Model) -> None:
    """Behind a start nobody is; behind what the same trainer has learned, whoever was in it."""
    rules, user = load(model.settings).gate.rules()._replace(window_days=8, blocks_max=100), "user-1"
    home = int(partitions_of([user], PARTITIONS)[0])

    def change(revision: int, *, ignore: bool) -> None:
        model.put(home, Event(gate_change=gate_change(rules._replace(ignore_repeats=ignore), revision)))

    def block(clicked: str) -> None:
        for kind, item in ((IMPRESSION, "item/30"), (CLICK, clicked)):
            model.put(home, event_of(user, kind, [item], START_MS))
            model.sent += 1

    def learned() -> None:
        model.drain()
        model.check()

    change(1, ignore=True)
    for clicked in ("item/1", "item/2", "item/1"):
        block(clicked)
    change(2, ignore=False)
    learned()
    change(3, ignore=True)
    learned()
    change(4, ignore=False)
    learned()
    block("item/2")
    change(5, ignore=True)
    block("item/1")
    change(6, ignore=False)
    change(7, ignore=True)
    block("item/3")
    learned()


def test_a_log_that_does_not_say_has_those_of_the_settings(
    model: Model, quiet_stop: Stop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As logs were written before they said so."""
    record = Share.record

    def silent(share: Share, *given: object) -> pb.Record:
        made = record(share, *given)  # type: ignore[arg-type]
        made.partition.ClearField("gate")
        return made

    model.send(300)
    with monkeypatch.context() as patch:
        patch.setattr(Share, "record", silent)
        Service(plan_of(load(model.settings)), quiet_stop).run(until_drained=True)
    model.check()
    model.send(300)
    model.drain()
    model.check()
    assert "gate settings" not in model.logs(1000)


def test_settings_that_are_not_heeded_are_named() -> None:
    own = GateRules(blocks_max=60)
    assert unheeded(own, own) == []
    assert unheeded(own, own._replace(percentile=95.5)) == [], "B is a number in both"
    assert unheeded(GateRules(), GateRules(percentile=95.5)) == ["SAROS_GATE__BLOCKS_MAX"]
    assert unheeded(own, GateRules(percentile=95.5, wait_ms=1, ignore_repeats=False)) == [
        "SAROS_GATE__BLOCKS_MAX", "SAROS_GATE__REPEAT_CLICKS", "SAROS_GATE__WAIT_S",
    ]  # fmt: skip
