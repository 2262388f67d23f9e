"""`saros send`, `tail`, `dead` and `broker` as a user types them, on a real broker."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from saros import cli
from saros.adapters.dead import DeadLetters, Letter
from saros.adapters.kafka import Admin, Cluster, Reader, Writer
from saros.adapters.names import DEAD_SETTINGS, EVENTS_SETTINGS, topics_of
from saros.core.events import CLICK, IMPRESSION
from saros.core.ids import derive_key, hash_texts, joined
from saros.lab.sending import Pace, envelopes
from saros.wire.decode import Decoder
from saros.wire.encode import events_in
from saros.wire.partitions import partitions_of
from tests.broker import Broker
from tests.lab.logs import log_of

Saros = Callable[..., tuple[int, str, str]]
LOG = log_of(
    [(f"user {k % 7}", "impression", ("a", f"b{k}"), 1000 * k + 1) for k in range(50)]
    + [(f"user {k % 7}", "click", (f"b{k}",), 60_000 + k) for k in range(50)]
    + [("user 3", "negative", ("a",), 99_000), ("user 3", "positive", ("a",), 99_001)]
)


@pytest.fixture
def saros(
    real_broker: Broker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Saros:
    """Run a command with a model of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAROS_KAFKA__BOOTSTRAP", real_broker.address)
    monkeypatch.setenv("SAROS_MODEL__NAME", f"m{uuid4().hex[:16]}")
    monkeypatch.setenv("SAROS_KAFKA__PARTITIONS", "3")

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.run(arguments)
        return code, *capsys.readouterr()

    return run


def write_lines(path: Path) -> str:
    names = {IMPRESSION: "impression", CLICK: "click", 3: "negative", 4: "positive"}
    lines = []
    for e, (user, kind, time_ms) in enumerate(zip(LOG.user, LOG.kind, LOG.time_ms, strict=True)):
        items = [LOG.items[k] for k in LOG.item[LOG.start[e] : LOG.start[e + 1]]]
        lines.append({"user": LOG.users[user], "kind": names[int(kind)], "items": items, "time": 1e12 + int(time_ms)})
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_a_log_becomes_messages_that_the_decoder_takes(batch: int) -> None:
    made = list(envelopes(LOG, 3, batch))
    assert sum(envelope.events for envelope in made) == len(LOG.user)
    assert max(envelope.events for envelope in made) <= batch
    key = derive_key(1)
    homes = np.array([envelope.partition for envelope in made], np.int32)
    found = Decoder(key, 3).decode(*joined([envelope.value for envelope in made]), homes)
    assert not found.reason.any(), "each event stands where it belongs"
    users, items = hash_texts(key, LOG.users), hash_texts(key, LOG.items)
    for user in range(len(LOG.users)):
        rows, own = np.flatnonzero(found.user == users[user]), np.flatnonzero(LOG.user == user)
        assert found.time_ms[rows].tolist() == LOG.time_ms[own].tolist(), "in order"
        assert found.kind[rows].tolist() == LOG.kind[own].tolist()
        mine = [found.item[found.start[row] : found.start[row + 1]].tolist() for row in rows]
        assert mine == [items[LOG.item[LOG.start[e] : LOG.start[e + 1]]].tolist() for e in own]


def test_a_message_stays_below_its_limit() -> None:
    wide = log_of([("ann", "impression", tuple(f"{k:0250d}" for k in range(200)), 1)] * 50)
    made = list(envelopes(wide, 1, 1000))
    assert len(made) > 2
    assert max(len(envelope.value) for envelope in made) <= 1_000_000
    assert sum(envelope.events for envelope in made) == 50


def test_a_pace_is_kept() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(10, lambda: now[0])
    for _ in range(4):
        pace.wait(5, sleep)
    assert slept == pytest.approx([0.5, 0.5, 0.5])
    Pace(0, lambda: 0.0).wait(10**9, sleep)
    assert len(slept) == 3


def test_what_is_sent_can_be_seen(saros: Saros, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "events.jsonl")
    code, out, _ = saros("send", path, "--batch", "10", "--json")
    assert code == 0
    assert json.loads(out)["events"] == len(LOG.user)
    code, out, _ = saros("tail", "--from-start", "-n", str(len(LOG.user)))
    assert code == 0
    seen = [json.loads(line) for line in out.splitlines()]
    assert len(seen) == len(LOG.user)
    assert {line["event"]["user_id"] for line in seen} == set(LOG.users)
    for line in seen:
        assert partitions_of([line["event"]["user_id"]], 3)[0] == line["partition"]
    code, out, _ = saros("send", path)
    assert (code, out.split()[0]) == (0, "102")


def written(address: str, letters: list[Letter], model: str) -> None:
    cluster, names = Cluster(address), topics_of(model)
    Admin(cluster).ensure(names.dead, 3, 1, DEAD_SETTINGS)
    Admin(cluster).ensure(names.events, 3, 1, EVENTS_SETTINGS)
    DeadLetters(Writer(cluster), names.dead, 3).write(letters)


def test_dead_letters_are_listed_shown_and_sent_again(
    saros: Saros, real_broker: Broker, monkeypatch: pytest.MonkeyPatch, group: str
) -> None:
    model = f"d{uuid4().hex[:16]}"
    monkeypatch.setenv("SAROS_MODEL__NAME", model)
    events = topics_of(model).events
    good = next(iter(envelopes(LOG, 1, 1))).value  # of user 0
    letters = [
        Letter("misrouted", good, events, 1, 5, 1_700_000_000_000, key=b"k"),
        Letter("bad_protobuf", b"\x1a\xff", events, 2, 6, 1_700_000_000_001),
        Letter("misrouted", good, events, 2, 7, 1_700_000_000_002, place=3),
    ]
    written(real_broker.address, letters, model)
    code, out, _ = saros("dead", "list", "--json")
    listed = json.loads(out)["letters"]
    assert (code, sorted(letter["offset"] for letter in listed)) == (0, [5, 6, 7])
    code, out, _ = saros("dead", "list", "--reason", "bad_protobuf")
    assert code == 0
    assert "1 dead letters" in out
    assert f"{events}/2@6" in out
    [broken] = [letter["place"] for letter in listed if letter["reason"] == "bad_protobuf"]
    code, out, _ = saros("dead", "show", broken)
    shown: dict[str, Any] = json.loads(out)
    assert (code, shown["value"], shown["reason"]) == (0, "1aff", "bad_protobuf")
    assert "broken" in shown
    code, out, _ = saros("dead", "resend", "--reason", "misrouted", "--json")
    assert (code, json.loads(out)) == (0, {"sent": 2})
    home = int(partitions_of(["user 0"], 3)[0])
    reader, found = Reader(Cluster(real_broker.address), group), []
    reader.assign(events, [(p, 0) for p in range(3)])
    for _ in range(100):
        found += reader.receive(10, 0.2)
        if len(found) == 2:
            break
    reader.close()
    assert [(message.partition, message.value, message.key) for message in found] == [
        (home, good, b"k"),
        (home, good, None),
    ]
    assert next(iter(events_in(good))).user_id == "user 0"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("dead", "list"), "does not exist"),
        (("tail",), "does not exist"),
        (("dead", "show", "x"), "x is no place"),
        (("dead", "resend"), "which letters?"),
        (("dead", "resend", "0:1", "--reason", "x"), "which letters?"),
        (("send", "nowhere.jsonl"), "nowhere.jsonl"),
    ],
)
def test_what_makes_no_sense_is_said(saros: Saros, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = saros(*arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_without_a_broker_the_way_out_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SAROS_KAFKA__BOOTSTRAP", raising=False)
    assert cli.run(["tail"]) == 2
    assert "saros broker" in capsys.readouterr().err


def test_the_broker_of_the_command_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [str(Path(sys.executable).parent / "saros"), "broker"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        name, _, address = running.stdout.readline().strip().partition("=")
        assert name == "SAROS_KAFKA__BOOTSTRAP"
        monkeypatch.setenv(name, address)
        assert cli.run(["send", write_lines(tmp_path / "e.jsonl")]) == 0
        assert cli.run(["tail", "--from-start", "-n", "102"]) == 0
        running.send_signal(signal.SIGTERM)
        _, err = running.communicate(timeout=20)
    assert "this is the embedded broker" in err
