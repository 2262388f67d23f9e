"""A Kafka broker for the tests: the best one that can be had here, started once per run.

In this order:

1. given: the one whose address is in SAROS_TEST_KAFKA;
2. docker: a container of Apache Kafka, where a Docker engine answers;
3. java: Apache Kafka from Maven Central on the local Java, kept in the user's cache;
4. embedded: the little broker inside librdkafka. It is not real: no transactions, no admin, nothing on a disk.

Invariants:

- A kind that is not here falls through to the next, and the note says why. A kind that is here and does not start is an
  error that shows its last log lines: a weaker broker in its place would hide it.
- No broker outlives the tests, even when they are killed. (For a container that is the work of testcontainers' reaper,
  where it is not turned off.)
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.servers import START_S, BrokerError, UnavailableError, container, free_ports, obituary, spawned

KAFKA = "4.1.0"
IMAGE = f"apache/kafka:{KAFKA}"
JAVA_MIN = 17  # what Kafka's jars are compiled for
STARTED = "Kafka Server started"
GIVEN_S = 10
MAVEN_S = 240

# Any id will do. A random one may begin with a dash, and is then taken for an option.
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"

# For one that is to be restarted: it is let in again when the one it was before is given up.
SOON = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}

POM = Path(__file__).with_name("kafka.pom.xml")

Kind = Literal["given", "docker", "java", "embedded"]


class Broker(NamedTuple):
    """A broker that runs. `note` says why no better kind was taken; it is empty for the first choice."""

    kind: Kind
    address: str
    real: bool
    note: str


@contextmanager
def start_broker(scratch: Path) -> Iterator[Broker]:
    """Start the first kind that can be had, and end it. Its log and its data go to the directory `scratch`."""
    reasons: list[str] = []
    with ExitStack() as stack:
        kind, address = _first(scratch, stack, reasons)
        yield Broker(kind, address, kind != "embedded", "; ".join(reasons))


def _first(scratch: Path, stack: ExitStack, reasons: list[str]) -> tuple[Kind, str]:
    if address := os.environ.get("SAROS_TEST_KAFKA"):
        return "given", _answering(address)
    try:
        return "docker", stack.enter_context(docker())
    except UnavailableError as error:
        reasons.append(str(error))
    try:
        return "java", stack.enter_context(java(scratch))
    except UnavailableError as error:
        reasons.append(str(error))
    return "embedded", stack.enter_context(embedded())


def _answering(address: str) -> str:
    """Return the address if a broker answers there."""
    try:
        # Its own words on standard error would only repeat the error.
        AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=GIVEN_S)
    except KafkaException as error:
        raise BrokerError(f"no broker answers at SAROS_TEST_KAFKA={address}: {error}") from None
    return address


@contextmanager
def docker(others: Mapping[str, str] = {}) -> Iterator[str]:
    """Run a container, with `others` over the usual settings, and yield its address."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    # One variable makes the image forget all its own defaults, so it gets the whole set.
    settings = _settings("0.0.0.0:9092", address, 19092, 9093, others)
    environ = {"KAFKA_" + name.upper().replace(".", "_"): value for name, value in settings.items()}
    with container(IMAGE, (9092, port), STARTED, environ):
        yield address


class Site(NamedTuple):
    """A place for a broker on the local Java: its data survive it, and it comes back to the same address."""

    address: str
    run: tuple[str, ...]
    config: Path
    log: Path


@contextmanager
def java(scratch: Path, others: Mapping[str, str] = {}) -> Iterator[str]:
    """Run Kafka on the local Java, with `others` over the usual settings, and yield its address."""
    with java_site(scratch, others) as site, serving(site):
        yield site.address


@contextmanager
def java_site(scratch: Path, others: Mapping[str, str] = {}) -> Iterator[Site]:
    """Make a place for a broker, and remove its data in the end."""
    program, libs = java_path(), jars()
    host, internal, controller = free_ports(3)
    address = f"127.0.0.1:{host}"
    data, log, config = scratch / "data", scratch / "kafka.log", scratch / "server.properties"
    usual = _settings(address, address, internal, controller, others)
    config.write_text("".join(f"{name}={value}\n" for name, value in {"log.dirs": str(data), **usual}.items()))
    run = (program, "-Xmx512m", "-XX:+UseSerialGC", "-Dlog4j2.level=INFO", "-cp", f"{libs}/*")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, data, ignore_errors=True)
        form = [*run, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)]
        if stack.enter_context(spawned(form, log)).wait(START_S) != 0:
            raise BrokerError(obituary("Kafka refused its settings", log.read_text(errors="replace")))
        yield Site(address, run, config, log)


@contextmanager
def serving(site: Site) -> Iterator[subprocess.Popen[bytes]]:
    """Run a broker at its place, from when it serves; it ends as in a crash."""
    before = site.log.stat().st_size
    with spawned([*site.run, "kafka.Kafka", str(site.config)], site.log) as process:
        deadline = time.monotonic() + START_S
        while STARTED not in (said := site.log.read_bytes()[before:].decode(errors="replace")):
            if process.returncode is not None:
                raise BrokerError(obituary(f"Kafka ended with code {process.returncode}", said))
            if time.monotonic() > deadline:
                raise BrokerError(obituary(f"Kafka did not start in {START_S} s", said))
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
        yield process


def java_path() -> str:
    """Return the path of a Java that can run Kafka."""
    program = shutil.which("java")
    if program is None:
        raise UnavailableError("java: not installed")
    # macOS has a java that only says that there is none.
    answer = subprocess.run([program, "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', answer.stderr)
    if version is None or int(version[1]) < JAVA_MIN:
        raise UnavailableError(f"java: {program} is {version[1] if version else 'no Java'}, Kafka needs {JAVA_MIN}")
    return program


def jars() -> Path:
    """Return the directory of Kafka's jars. Maven fetches them once; an interrupted fetch leaves nothing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "saros"
    libs = cache / f"kafka-{KAFKA}"
    if libs.is_dir():
        return libs
    maven = shutil.which("mvn")
    if maven is None:
        raise UnavailableError(f"java: Kafka is not in {libs}, and there is no mvn to fetch it")
    cache.mkdir(parents=True, exist_ok=True)
    # Inside the cache, so that the last step is a rename within one file system.
    with tempfile.TemporaryDirectory(dir=cache, prefix=".fetch-") as scratch:
        copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
        where = ["-f", str(POM), f"-Dkafka={KAFKA}", f"-DoutputDirectory={scratch}/libs"]
        command = [maven, "-q", "-B", copy, "-DincludeScope=runtime", *where]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=MAVEN_S)
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"java: Maven did not fetch Kafka in {MAVEN_S} s") from None
        if answer.returncode != 0:
            raise UnavailableError(f"java: Maven cannot fetch Kafka: {answer.stdout.strip().partition(chr(10))[0]}")
        with suppress(OSError):  # another run was faster
            os.rename(Path(scratch) / "libs", libs)
    return libs


@contextmanager
def embedded() -> Iterator[str]:
    """Run the broker inside librdkafka. It lives as long as the producer that made it."""
    owner = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 1, "log_level": 4})
    (broker,) = owner.list_topics(timeout=GIVEN_S).brokers.values()
    yield f"{broker.host}:{broker.port}"
    del owner


def _settings(host: str, advertised: str, internal: int, controller: int, others: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a broker that is its own controller, tells clients to come to `advertised`, and has a
    listener of its own for what it sends to itself: a container cannot reach itself where the host finds it."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        "listeners": f"HOST://{host},INTERNAL://127.0.0.1:{internal},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"HOST://{advertised},INTERNAL://127.0.0.1:{internal}",
        "listener.security.protocol.map": "HOST:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        **others,
    }


def main() -> None:
    """Run a command with a broker in SAROS_KAFKA__BOOTSTRAP: python -m tests.broker saros bench ingest."""
    given = os.environ.get("SAROS_KAFKA__BOOTSTRAP")
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        address = given or stack.enter_context(start_broker(Path(scratch))).address
        sys.exit(
            subprocess.run(sys.argv[1:], env={**os.environ, "SAROS_KAFKA__BOOTSTRAP": address}, check=False).returncode
        )


if __name__ == "__main__":
    main()
