"""For all tests: hypothesis measures no time, as the first example of a test may compile a kernel; a Kafka broker
and a store, which start when the first test asks for them (see tests/broker.py and tests/store.py)."""

import os
import re
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import settings

from tests.broker import Broker, start_broker
from tests.store import StoreServer, start_cluster, start_store

settings.register_profile("saros", deadline=None)
settings.load_profile("saros")

BROKER = pytest.StashKey[Broker]()
STORE = pytest.StashKey[StoreServer]()
OF_WORKERS = pytest.StashKey[list[str]]()
STATUS = pytest.StashKey[int]()
NEEDS_REAL = "needs a real Kafka broker"


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker of this run: a real one if one can be had."""
    with start_broker(tmp_path_factory.mktemp("kafka")) as running:
        request.config.stash[BROKER] = running
        yield running


@pytest.fixture(scope="session")
def real_broker(broker: Broker) -> Broker:
    """The broker of this run, for tests that the embedded one is not good enough for."""
    if not broker.real:
        pytest.skip(f"{NEEDS_REAL} ({broker.note})")
    return broker


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic that no other test has; nothing creates it here."""
    return _unique(request)


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    """A group id that no other test has."""
    return _unique(request)


@pytest.fixture(scope="session")
def store_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """The store of this run, one server."""
    with start_store(tmp_path_factory.mktemp("store")) as running:
        request.config.stash[STORE] = running
        yield running


@pytest.fixture(scope="session")
def store_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """A store that is a cluster of three servers."""
    with start_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def model_name() -> str:
    """The name of a model that no other test has."""
    return f"m{uuid4().hex[:12]}"


def _unique(request: pytest.FixtureRequest) -> str:
    # Kafka takes names of up to 249 characters out of a small set.
    name = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name).strip("-")
    return f"{name[:80]}-{uuid4().hex[:12]}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which broker and which store the tests had, and what could not be tested with them."""
    for line in sorted({*_servers(config), *config.stash.get(OF_WORKERS, [])}, reverse=True):
        terminalreporter.write_line(line)
    for report in terminalreporter.getreports("skipped"):
        if NEEDS_REAL in str(report.longrepr):
            terminalreporter.write_line(f"  skipped, {NEEDS_REAL}: {report.nodeid}")


def _servers(config: pytest.Config) -> list[str]:
    """Return what is to be said of the servers that this process has started."""
    told = []
    if store := config.stash.get(STORE, None):
        where = "" if store.kind == "given" else f", {store.url}"  # a given URL may hold a password
        told.append(f"store: {store.kind}{where}{_because(store.note)}")
    if broker := config.stash.get(BROKER, None):
        told.append(f"kafka: {broker.kind}, {broker.address}{_because(broker.note)}")
    return told


def _because(note: str) -> str:
    return f" ({note})" if note else ""


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep how the run ended; one of several processes tells the first what servers it had."""
    session.config.stash[STATUS] = int(exitstatus)
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["servers"] = _servers(session.config)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Keep what one of several processes told."""
    node.config.stash.setdefault(OF_WORKERS, []).extend(getattr(node, "workeroutput", {}).get("servers", []))


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End at once. All is closed and told by now, but threads of native libraries may still run, which the interpreter
    does not wait for when it takes itself apart: a run with no failure ended in a segmentation fault there."""
    if STATUS in config.stash:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.stash[STATUS])
