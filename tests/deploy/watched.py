"""A Prometheus that watches processes of a test, as deploy/prometheus tells it to, but once a second."""

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.tools import DEPLOY, program
from tests.servers import free_ports, spawned
from tests.trainer.runs import await_until

START_S = 30.0


class Prometheus:
    """One that runs."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def ask(self, expr: str) -> dict[str, float]:
        """Return the value of each series by its labels; those that are no number are left out."""
        found: list[dict[str, Any]] = self._get("query", {"query": expr})["result"]
        values = {json.dumps(series["metric"], sort_keys=True): float(series["value"][1]) for series in found}
        return {labels: value for labels, value in values.items() if value == value}

    def values_of(self, label: str, series: str) -> list[str]:
        """Return the values that a label has in some series: what `label_values` is in a dashboard."""
        found: list[str] = self._get(f"label/{label}/values", {"match[]": series})
        return found

    def _get(self, what: str, parameters: Mapping[str, str]) -> Any:
        with urllib.request.urlopen(
            f"{self._url}/api/v1/{what}?{urllib.parse.urlencode(parameters)}", timeout=10
        ) as answer:
            return json.load(answer)["data"]


def _config(targets: Mapping[str, int], model: str) -> dict[str, Any]:
    """Return what the file says, but for where the targets are, what their model is called, and how often to look."""
    config: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(DEPLOY / "prometheus" / path) for path in config["rule_files"]]
    config["scrape_configs"] = [job for job in config["scrape_configs"] if job["job_name"] in targets]
    assert len(config["scrape_configs"]) == len(targets)
    for job in config["scrape_configs"]:
        del job["dns_sd_configs"]
        job["static_configs"] = [{"targets": [f"127.0.0.1:{targets[job['job_name']]}"]}]
        job["relabel_configs"][0]["replacement"] = model
    return config


def metrics_told(port: int) -> set[str]:
    """Return the names of the series that a process tells of, or would if there were any."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        told = dict(re.findall(r"^# TYPE (\S+) (\w+)$", answer.read().decode(), flags=re.MULTILINE))
    parts = ("_bucket", "_sum", "_count")
    return {f"{name}{part}" for name, kind in told.items() for part in (parts if kind == "histogram" else ("",))}


@contextmanager
def watching(scratch: Path, targets: Mapping[str, int], model: str) -> Iterator[Prometheus]:
    """Run one that scrapes the ports of these jobs."""
    (port,) = free_ports(1)
    config, log = scratch / "prometheus.yml", scratch / "prometheus.log"
    config.write_text(yaml.safe_dump(_config(targets, model)))
    command = [
        program("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={scratch / 'series'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with spawned(command, log) as process:
        watcher = Prometheus(port)

        def is_ready() -> bool:
            assert process.poll() is None, log.read_text()
            return watcher.is_ready()

        await_until(is_ready, START_S, log.read_text)
        yield watcher


def started_api(environ: dict[str, str], saros: str, log: Path) -> subprocess.Popen[bytes]:
    """Start an API."""
    with log.open("wb") as output:
        return subprocess.Popen([saros, "api"], env=environ, stdout=output, stderr=subprocess.STDOUT)
