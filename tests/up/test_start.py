"""How `saros up` starts: its port, its directory, what it is told and cannot do, and a hangup that is ignored."""

import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from saros.up.looks import free_port
from tests.trainer.runs import SAROS
from tests.up.runs import CLEAN, END_S, START_S, running


def test_a_port_that_is_taken_is_said_or_another_is_found(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [SAROS, "up", "--data-dir", str(tmp_path), "--port", str(port)]
        done = subprocess.run(command, env=CLEAN, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"saros: port {port} of 127.0.0.1 is taken — give another with --port, or none: then one is found\n"
    )


def test_a_port_that_the_last_run_has_not_given_back_yet_is_waited_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as dying:
        port = dying.getsockname()[1]
        (tmp_path / "up.port").write_text(str(port))
        with running(tmp_path, "--no-traffic", port=port, ready=False) as run:
            run.until((tmp_path / "up.lock").exists, START_S)
            dying.close()
            run.until(lambda: run.has("api"), START_S)
            run.process.send_signal(signal.SIGTERM)
            assert run.process.wait(END_S) == 0
            assert not (tmp_path / "up.port").exists(), "who ends in order leaves nothing to wait for"


@pytest.mark.parametrize("note", ["", "\0\0\0\0"], ids=["empty", "torn"])
def test_a_note_of_the_last_run_that_says_no_port_is_none(tmp_path: Path, note: str) -> None:
    (tmp_path / "up.port").write_text(note)
    with running(tmp_path, "--no-traffic", ready=False) as run:
        run.until(lambda: run.has("api"), START_S)
        assert (tmp_path / "up.port").read_text() == str(run.port)


def test_a_hangup_that_is_ignored_stays_so_and_port_0_is_any(tmp_path: Path) -> None:
    """`nohup saros up`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which children inherit
    try:
        command = [SAROS, "up", "--data-dir", str(tmp_path), "--no-traffic"]
        process = subprocess.Popen(command, env=CLEAN | {"SAROS_API__PORT": "0"}, stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGHUP, before)
    with process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip().removeprefix("SAROS_UP_URL=")
            with urllib.request.urlopen(f"{url}/livez", timeout=10) as answer:
                assert answer.status == 200
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            assert process.wait(END_S) == 0, "a second signal that counts would have ended it with 1"
        finally:
            process.kill()


@pytest.mark.parametrize(("where", "environ", "said"), [
    ("data --rate 5001", {},
     "--rate 5001 is above 5000, the most that the embedded broker's memory covers for 10 s — "
     "give less, or a broker of your own by SAROS_KAFKA__BOOTSTRAP"),
    ("file/data", {}, "{} cannot be written: Not a directory — give another --data-dir"),
    ("data", {"SAROS_REDIS__PASSWORD": "x"},
     "SAROS_REDIS__PASSWORD is set, and SAROS_REDIS__URL is not — set that too, or unset SAROS_REDIS__PASSWORD"),
])  # fmt: skip
def test_what_cannot_work_is_said_in_a_line(tmp_path: Path, where: str, environ: dict[str, str], said: str) -> None:
    (tmp_path / "file").touch()
    directory, *options = where.split()
    command = [SAROS, "up", "--data-dir", str(tmp_path / directory), *options]
    done = subprocess.run(command, env=CLEAN | environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"saros: {said.format(tmp_path / where)}\n"


def test_where_the_port_is_taken_the_next_free_one_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert port < free_port("127.0.0.1", port, given=False) < port + 100
