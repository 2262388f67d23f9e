"""The rules of Prometheus: they are valid, every alert fires when it should and only then, and has its runbook."""

import re
from typing import Any

import yaml

from tests.deploy.tools import DEPLOY, ROOT, output_of, program

PROMETHEUS = DEPLOY / "prometheus"
RULES = sorted((PROMETHEUS / "rules").glob("*.yml"))
CASES = sorted((PROMETHEUS / "tests").glob("*.yml"))
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


def alerts() -> list[dict[str, Any]]:
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def anchors(text: str) -> list[str]:
    """Return the anchors of a document's headings, as they are made on the web."""
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


def test_scrapes_and_rules_are_valid() -> None:
    promtool = program("promtool")
    output_of(promtool, "check", "config", PROMETHEUS / "prometheus.yml")
    output_of(promtool, "check", "rules", "--lint=all", "--lint-fatal", *RULES)


def test_alerts_fire_when_they_should() -> None:
    output_of(program("promtool"), "test", "rules", *CASES)


def test_every_alert_is_tested() -> None:
    tested = {name for path in CASES for name in re.findall(r"alertname=\"(\w+)\"", path.read_text())}
    assert {alert["alert"] for alert in alerts()} == tested


def test_every_alert_has_its_runbook_and_says_how_urgent_it_is() -> None:
    found = alerts()
    assert len(found) > 20
    for alert in found:
        assert alert["labels"]["severity"] in ("page", "ticket"), alert["alert"]
        page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        assert page == "docs/operations.md"
        assert anchors(OPERATIONS).count(anchor) == 1, alert["alert"]
    # A runbook of an alert that is gone would mislead.
    runbooks = re.findall(r"^### (Saros\w+)$", OPERATIONS, flags=re.MULTILINE)
    assert sorted(runbooks) == sorted(alert["alert"] for alert in found)
