"""For all tests: hypothesis measures no time, as the first example of a test may compile a kernel; a Kafka broker
and a store, which start when the first test asks for them (see tests/broker.py and tests/store.py)."""

import os
import re
import sys
from collections.abc import Iterator
from uuid import uuid4

import pytest
from hypothesis import settings

from tests.broker import Broker, start_broker
from tests.store import StoreServer, start_cluster, start_store

settings.register_profile("saros", deadline=None)
settings.load_profile("saros")

BROKER = pytest.StashKey[Broker]()
STORE = pytest.StashKey[StoreServer]()
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
    store = config.stash.get(STORE, None)
    if store is not None:
        note = f" ({store.note})" if store.note else ""
        # Of a store that was given, the URL may hold a password.
        terminalreporter.write_line(f"store: {store.kind}{'' if store.kind == 'given' else ', ' + store.url}{note}")
    running = config.stash.get(BROKER, None)
    if running is None:
        return
    note = f" ({running.note})" if running.note else ""
    terminalreporter.write_line(f"kafka: {running.kind}, {running.address}{note}")
    if not running.real:
        for report in terminalreporter.getreports("skipped"):
            if NEEDS_REAL in str(report.longrepr):
                terminalreporter.write_line(f"  skipped, {NEEDS_REAL}: {report.nodeid}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Keep how the run ended."""
    session.config.stash[STATUS] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End at once. All is closed and told by now, but threads of native libraries may still run, which the interpreter
    does not wait for when it takes itself apart: a run with no failure ended in a segmentation fault there."""
    if STATUS in config.stash:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.stash[STATUS])
