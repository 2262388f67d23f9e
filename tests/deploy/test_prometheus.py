"""The rules of Prometheus: they are valid, every alert fires when it should and only then, and has its runbook."""

import re

from tests.deploy.rules import RULES, metrics_in, rules
from tests.deploy.tools import DEPLOY, ROOT, output_of, program

PROMETHEUS = DEPLOY / "prometheus"
CASES = sorted((PROMETHEUS / "tests").glob("*.yml"))
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


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
    assert {alert["alert"] for alert in rules("alert")} == tested


def test_metrics_are_found_in_an_expression() -> None:
    """test_grafana.py looks for them in what the programs tell."""
    expr = """
        max by (model) (a:b:max{job=~"c|d", e="f"}) > 0.5 * sum by (g) (rate(h_total[5m] offset 15m)) and on (i) up
          unless absent(j) or k / on (l) group_left (m) histogram_quantile(0.99, sum by (le) (rate(n_bucket[5m])))
    """
    assert metrics_in(expr) == {"a:b:max", "h_total", "up", "j", "k", "n_bucket"}


def test_every_alert_has_its_runbook_and_says_how_urgent_it_is() -> None:
    found = rules("alert")
    assert len(found) > 20
    for alert in found:
        assert alert["labels"]["severity"] in ("page", "ticket"), alert["alert"]
        page, _, anchor = alert["annotations"]["runbook_url"].partition("#")
        assert page == "docs/operations.md"
        assert anchors(OPERATIONS).count(anchor) == 1, alert["alert"]
    # A runbook of an alert that is gone would mislead.
    runbooks = re.findall(r"^### (Saros\w+)$", OPERATIONS, flags=re.MULTILINE)
    assert sorted(runbooks) == sorted(alert["alert"] for alert in found)
