"""docker-compose.yml agrees with itself and with what Prometheus scrapes: no engine is needed for that."""

import re
from typing import Any

import yaml

from tests.deploy.tools import DEPLOY, ROOT

SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
UNITS = {"M": 2**20, "G": 2**30, "mb": 2**20, "gb": 2**30}


def bytes_of(text: str) -> int:
    """Return a number of bytes as Docker and Redis write it."""
    found = re.fullmatch(r"(\d+)(\w+)", text)
    assert found is not None, text
    return int(found[1]) * UNITS[found[2]]


def scraped(job_name: str) -> dict[str, int]:
    """Return where Prometheus looks: services with their ports."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    (job,) = [job for job in config["scrape_configs"] if job["job_name"] == job_name]
    (found,) = job["dns_sd_configs"]
    return dict.fromkeys(found["names"], found["port"])


def test_ports_are_those_that_others_know() -> None:
    """Whatever a .env says: what a service sets itself goes before it."""
    (health,) = re.findall(r"HEALTH_URL=http://127.0.0.1:(\d+)/", (ROOT / "Dockerfile").read_text())
    for name, port in scraped("saros-api").items():
        (published,) = SERVICES[name]["ports"]
        assert (
            SERVICES[name]["environment"]["SAROS_API__PORT"] == port == int(published.rpartition(":")[2]) == int(health)
        )
    for name, port in scraped("saros-trainer").items():
        environ = SERVICES[name]["environment"]
        assert environ["SAROS_TRAINER__METRICS_PORT"] == port
        assert environ["HEALTH_URL"] == f"http://127.0.0.1:{port}/metrics"


def test_redis_has_room_to_write_its_file_anew() -> None:
    """docs/operations.md#sizing: half of the memory is left free for that."""
    limits = {}
    for name, service in SERVICES.items():
        for most in re.findall(r"--maxmemory (\w+)", str(service.get("command"))):
            limits[name] = bytes_of(service["deploy"]["resources"]["limits"]["memory"]) / bytes_of(most)
    assert limits.keys() == {"redis", "redis-1", "redis-2", "redis-3"}
    assert min(limits.values()) >= 2
