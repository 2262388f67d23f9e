"""The dashboard and the rules: each query of each panel, and each recording rule, finds something in a Prometheus that
has watched a real run."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from saros.adapters.redis import EmbeddedStore
from saros.api.keys import entry_of, new_key
from saros.client import Client, Event, SessionEvent, UnauthorizedError
from tests.broker import Broker
from tests.deploy.rules import metrics_in, rules
from tests.deploy.tools import DEPLOY, program
from tests.deploy.watched import Prometheus, metrics_told, started_api, watching
from tests.servers import free_ports
from tests.store import connect
from tests.trainer.runs import SAROS, Model, await_until, running

GRAFANA = DEPLOY / "grafana"
START_S, PATIENCE_S = 120.0, 40.0
ROWS = ["Overview", "Ingest", "Gate", "Learning", "Store", "Serving", "Recovery"]
# Panels, with the legend of a query in them, and rules that show 0 in a run like this one. All others show more: what
# is silent as long as nothing happens (dead letters, what is taken back, a store that forgot) happens here.
QUIET = {
    "Lag: __auto", "Lag by partition: {{partition}}", "Lag in messages: {{topic}}", "Waiting: waiting",
    "Waiting: {{why}}", "Failed requests: __auto", "Events over HTTP: unacknowledged", "Lost to retention: messages",
    "At their limits: clamped", "At their limits: far", "At their limits: non-finite",
    "At their limits: left a full set", "Pauses: pauses", "Users read by the API: not answered",
    "Requests in work: requests", "Requests in work: streams", "Requests in work: sent away a second",
    "Requests in work: waiting for a token",
    "Stale: {{because}}", "Stale: behind the log, s", "Behind the log: {{instance}}", "Waiting for Kafka: messages",
    "Records: rejected", "Records: of others", "Started: {{job}}",
    "rule model:saros_lag_seconds:max", "rule model:saros_api_errors:ratio5m",
}  # fmt: skip


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GRAFANA / "dashboards" / "saros.json").read_text())
    return found


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def filled(expr: str, model: str) -> str:
    """Return a query as Grafana asks it: all of the run is in the interval."""
    return expr.replace("$__rate_interval", "3m").replace("$model", model)


@pytest.fixture
def own_store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    with EmbeddedStore(tmp_path / "store") as server:
        yield server


def test_it_is_whole() -> None:
    found = dashboard()
    assert [panel["title"] for panel in found["panels"] if panel["type"] == "row"] == ROWS
    ids = [panel["id"] for panel in found["panels"]]
    assert len(ids) == len(set(ids))
    titles = [panel["title"] for panel in panels()]
    assert len(titles) == len(set(titles)) > 50
    places = set[tuple[int, int]]()
    for panel in found["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not cells & places, f"{panel['title']} lies over another"
        places |= cells
    for panel in panels():
        assert panel["description"]
        assert panel["datasource"]["uid"] == "${datasource}"
        assert panel["targets"]
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}


def test_it_is_provisioned() -> None:
    (provider,) = yaml.safe_load((GRAFANA / "provisioning" / "dashboards" / "saros.yml").read_text())["providers"]
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"
    (source,) = yaml.safe_load((GRAFANA / "provisioning" / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert (source["type"], source["isDefault"]) == ("prometheus", True)


def test_every_query_finds_something(
    warm: None, real_broker: Broker, own_store: EmbeddedStore, model_name: str, tmp_path: Path
) -> None:
    program("prometheus")
    model = Model(model_name, real_broker.address, own_store.address, tmp_path)
    trainer_port, api_port = free_ports(2)
    key = new_key()
    environ = model.environ(
        SAROS_API__PORT=str(api_port), SAROS_API__KEYS=entry_of("shop", ["admin"], key), SAROS_API__METRICS_OPEN="true"
    )
    model.send(400)
    crossing = model.approach()
    processes: list[subprocess.Popen[bytes]] = [
        model.trainer(SAROS_TRAINER__METRICS_PORT=str(trainer_port)),
        started_api(environ, SAROS, tmp_path / "trainer-api.log"),
    ]
    with (
        running(processes),
        watching(tmp_path, {"saros-trainer": trainer_port, "saros-api": api_port}, model_name) as prometheus,
        Client(f"http://127.0.0.1:{api_port}", key=key) as client,
    ):
        # What is counted before a process is looked at first is no increase, and comes once only.
        await_until(lambda: len(prometheus.ask("up == 1")) == len(processes), START_S, model.logs)
        await_until(lambda: prometheus.ask("saros_api_ready == 1") != {}, START_S, model.logs)
        model.await_learned()
        model.cross(crossing)
        ask_all_kinds(client, f"http://127.0.0.1:{api_port}")
        model.await_learned()
        with connect(own_store.address) as redis:
            redis.flushall()
        model.send(400)
        model.await_learned()
        ask_all_kinds(client, f"http://127.0.0.1:{api_port}")
        await_seen(prometheus, model)
        assert models(prometheus) == [model_name]
        # Of an alert nothing may be there, but what it asks for has to be what the programs tell.
        told = metrics_told(trainer_port) | metrics_told(api_port) | {rule["record"] for rule in rules("record")}
        for rule in rules("record") + rules("alert"):
            assert metrics_in(rule["expr"]) <= told | {"up"}, rule


def models(prometheus: Prometheus) -> list[str]:
    """Return the models that one can choose from above the panels."""
    (variable,) = [one for one in dashboard()["templating"]["list"] if one["type"] == "query"]
    assert variable["query"]["query"] == variable["definition"]
    asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
    assert asked is not None
    return prometheus.values_of(asked[2], asked[1])


def ask_all_kinds(client: Client, url: str) -> None:
    """Ask for what makes the API count: answers with and without the model, events good and bad, a key that is not."""
    shown: Event = {"kind": "impression", "user": "user-1", "items": ["item/1", "item/2"], "event_id": "twice"}
    ahead: Event = {"kind": "click", "user": "user-2", "item": "item/1", "time": time.time() + 3600}
    bot: Event = {"kind": "click", "user": "user-3", "item": "item/1", "known_bot": True}
    receipt = client.send_events([shown, shown, ahead, bot, {"kind": "click", "user": "", "item": "item/1"}])
    assert [bad.reason for bad in receipt.rejected] == ["id_missing"]
    client.recommend("user-1", min_token=receipt.token, wait_ms=5000)
    client.recommend("a stranger")
    client.recommend_guest([SessionEvent("item/1", "click")])
    with Client(url, key="not a key that anybody has been given") as stranger, pytest.raises(UnauthorizedError):
        stranger.recommend("user-1")


def await_seen(prometheus: Prometheus, model: Model) -> None:
    """Wait until every query has found something, and more than 0 unless it may be quiet."""
    left = {
        f"{panel['title']}: {target['legendFormat']}": filled(target["expr"], model.name)
        for panel in panels()
        for target in panel["targets"]
    }
    # The store forgot, of which an alert tells at once.
    left |= {f"annotation {one['name']}": one["expr"] for one in dashboard()["annotations"]["list"]}
    left |= {f"rule {rule['record']}": f'{rule["record"]}{{model="{model.name}"}}' for rule in rules("record")}
    assert left.keys() >= QUIET

    def is_seen(place: str, expr: str) -> bool:
        values = prometheus.ask(expr).values()
        return bool(values) and (place in QUIET or max(values) > 0)

    def all_seen() -> bool:
        for place, expr in list(left.items()):
            if is_seen(place, expr):
                del left[place]
        return not left

    await_until(all_seen, PATIENCE_S, lambda: json.dumps(left, indent=1))
