"""`docker compose up`, as an operator has it: events in from outside, recommendations out, a trainer that is killed."""

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from saros.client import Client, ForbiddenError, UnauthorizedError
from tests.compose.load import Load
from tests.compose.stack import Stack, await_until, new_stack, run

pytestmark = pytest.mark.timeout(2400)

SERVICES = ("kafka", "redis", "trainer", "api", "prometheus", "grafana")
SAROS = str(Path(sys.executable).parent / "saros")


@pytest.fixture(scope="module")
def stack(image: str) -> Iterator[Stack]:
    """All that `docker compose up` starts."""
    with new_stack() as running:
        running.up(*SERVICES)
        yield running


@pytest.fixture(scope="module")
def operator(stack: Stack) -> Iterator[Client]:
    """Who has the key that may do everything."""
    with stack.client(key=stack.key("operator")) as client:
        yield client


def test_the_first_keys_are_asked_for_and_their_scopes_hold(stack: Stack, operator: Client) -> None:
    with stack.client() as stranger, pytest.raises(UnauthorizedError):
        stranger.recommend("ann")
    with stack.client(key=stack.key("shop")) as shop:
        assert shop.stats()["ready"]
        with pytest.raises(ForbiddenError):
            shop.erase_user("ann")
    assert "key" not in stack.execute("api", "sh", "-c", "cat /entries/keys").split(), "the API has hashes only"
    assert operator.gate().partitions


def test_what_is_sent_counts_once_though_the_trainer_is_killed(stack: Stack, operator: Client, tmp_path: Path) -> None:
    receipt = operator.send_events(
        [
            {"kind": "impression", "user": "ann", "items": ["alien", "brazil", "clue"]},
            {"kind": "click", "user": "ann", "item": "brazil"},
        ]
    )
    answer = operator.recommend("bob", k=3, min_token=receipt.token, wait_ms=10_000)
    assert answer.token_reached
    assert answer.items[0].item_id == "brazil"

    # Straight to Kafka, by the listener that is for the world outside. Its code for zstd is not Java's.
    file = tmp_path / "events.jsonl"
    lines = [
        {"user": f"u{k}", "items": ["alien", "dune"], "kind": "impression", "time": time.time()} for k in range(50)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    kafka = {
        "SAROS_KAFKA__BOOTSTRAP": f"127.0.0.1:{stack.ports['KAFKA_PORT']}",
        "SAROS_KAFKA__OPTIONS": '{"compression.codec": "zstd"}',
    }
    run(SAROS, "send", str(file), environ=kafka)

    load = Load([operator])
    with load.flowing():
        load.go_on()
        restarts = stack.kill("trainer")
        load.go_on()  # the API takes events without a trainer
        stack.await_healthy("trainer", restarts)
        load.go_on()
    sent = 2 + len(lines) + len(load.acknowledged)
    found = stack.await_counted("trainer", sent)
    assert (found["differences"], found["events"]) == (0, sent), found["told"]

    answer = operator.recommend("user-7", k=5)
    assert (answer.source, len(answer.items), answer.stale) == ("model", 5, False)


def test_prometheus_sees_all_and_has_its_rules(stack: Stack) -> None:
    expected = [("prometheus", "", "1"), ("saros-api", "saros", "1"), ("saros-trainer", "saros", "1")]
    await_until(lambda: stack.targets() == expected, 90, lambda: str(stack.targets()))
    groups = stack.get_json("PROMETHEUS_PORT", "/api/v1/rules")["data"]["groups"]
    assert {rule["type"] for group in groups for rule in group["rules"]} == {"alerting", "recording"}
    assert not [rule for group in groups for rule in group["rules"] if rule["health"] == "err"]


def test_grafana_has_the_dashboard(stack: Stack) -> None:
    found = stack.get_json("GRAFANA_PORT", "/api/search?type=dash-db")
    assert [one for one in found if "saros" in one["title"].lower()], found


def test_the_demo_has_people_who_click(stack: Stack, operator: Client) -> None:
    stack.compose("up", "--detach", "demo", timeout_s=300)

    def shown() -> bool:
        """More than 0, which it says as long as nobody answers it."""
        return re.search(r"\b[1-9][\d,]* slates", stack.logs("demo")) is not None

    await_until(shown, 120, lambda: stack.logs("demo"))
    stack.compose("stop", "demo")
    assert operator.stats()["ready"]


def test_what_was_learned_outlives_the_containers(stack: Stack, operator: Client) -> None:
    """`docker compose down` and `up` again: volumes hold logs, rows and keys."""
    before = operator.recommend("user-7", k=5)
    stack.compose("down", "--timeout", "30", timeout_s=300)
    stack.up(*SERVICES)
    after = operator.recommend("user-7", k=5)
    assert [item.item_id for item in after.items] == [item.item_id for item in before.items]
    assert stack.audit("trainer")["differences"] == 0


def test_processes_end_in_order(stack: Stack, operator: Client) -> None:
    """SIGTERM reaches them as process 1 of their containers; who does not hear it is killed in the end: 137."""
    with Load([operator]).flowing():
        stack.compose("stop", "trainer")
    stack.compose("stop", "api")
    assert {service: stack.inspect(service)["State"]["ExitCode"] for service in ("trainer", "api")} == {
        "trainer": 0, "api": 0
    }  # fmt: skip
