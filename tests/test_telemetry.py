"""Log lines say what happened with its fields, and what happens often is said seldom."""

import json
import logging

import pytest

from saros import telemetry
from saros.telemetry import Seldom, log, log_to_stderr


@pytest.fixture(autouse=True)
def _silent_again() -> object:
    logger = logging.getLogger("saros")
    before = logger.handlers[:], logger.propagate, logger.level
    yield
    logger.handlers[:], logger.propagate, logger.level = before


def test_a_line_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr()
    log("shard was written", shard=3, rows=17)
    stamp, level, rest = capsys.readouterr().err.strip().split(" ", 2)
    assert stamp.endswith("Z")
    assert (level, rest) == ("info", "shard was written shard=3 rows=17")


def test_a_line_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("json", level=logging.WARNING)
    log("not worth a word")
    log("broker went away", logging.ERROR, address="a:1")
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["event"], line["address"]) == ("error", "broker went away", "a:1")


def test_what_is_held_back_is_added_up(capsys: pytest.CaptureFixture[str]) -> None:
    now = [100.0]
    log_to_stderr()
    seldom = Seldom(every_s=10, clock=lambda: now[0])
    for _ in range(5):
        seldom.log("letters were written", bad_utf8=2)
    seldom.log("letters were written", misrouted=1)
    now[0] = 110.0
    seldom.log("letters were written", bad_utf8=1)
    lines = [line.split(" ", 2)[2] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["letters were written bad_utf8=2", "letters were written bad_utf8=9 misrouted=1"]


def test_metrics_have_our_prefix() -> None:
    names = [metric._name for metric in vars(telemetry).values() if hasattr(metric, "_labelnames")]
    assert len(names) >= 5
    assert all(name.startswith("saros_") for name in names)
