"""The command line, run as a user runs it: the installed script in its own process."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from subprocess import PIPE

import pytest

import saros
from saros.environment import describe
from saros.settings import load

SCRIPT = str(Path(sys.executable).parent / "saros")
CLEAN = {name: text for name, text in os.environ.items() if not name.startswith(("SAROS_", "COLUMNS", "NO_COLOR"))}

# A command line with more commands, as `saros.cli` is meant to be extended.
EXTENDED = """
import sys
from saros import cli
from saros.errors import InputError, LimitError

@cli.app.command()
def wait() -> None:
    print("ready", flush=True)
    sys.stdin.read()

@cli.app.command()
def wrong() -> None:
    raise InputError("the file is\\nempty", "give another")

@cli.app.command()
def full() -> None:
    raise LimitError("items_max=5 is reached")

@cli.app.command()
def defect() -> None:
    raise ZeroDivisionError("a defect")

cli.main(sys.argv[1:])
"""

WORK = """
import sys
from saros.console import progress

with progress("compiling kernels", total=3, silent_s=float(sys.argv[1])) as advance:
    advance(1)
    sys.stdin.read()
    print("an answer")
"""


def run(*command: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, env=CLEAN | (environ or {}), check=False)


def run_extended(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-c", EXTENDED, *arguments)


def read_terminal(master: int, enough: Callable[[str], bool]) -> str:
    """Read what was written to a terminal until it is enough or the other side is closed."""
    seen = ""
    while not enough(seen):
        try:
            seen += os.read(master, 65536).decode()
        except OSError:
            break
    return seen


def run_on_terminal(*command: str, environ: dict[str, str]) -> str:
    """Return what a command prints when its standard output is a terminal."""
    master, slave = pty.openpty()
    with subprocess.Popen(command, stdout=slave, env=CLEAN | {"TERM": "xterm"} | environ):
        os.close(slave)
        seen = read_terminal(master, enough=lambda seen: False)
    os.close(master)
    return seen


def test_without_a_command_it_prints_the_help() -> None:
    plain, asked = run(SCRIPT), run(SCRIPT, "--help")
    assert (plain.returncode, plain.stderr) == (0, "")
    assert plain.stdout == asked.stdout
    assert "config" in plain.stdout
    assert "SAROS_GATE__BLOCKS_MAX=p99 saros config" in plain.stdout, "help teaches by example"


def readme_examples() -> list[tuple[str, str]]:
    """Return the commands of README.md with the output it promises."""
    text = (Path(__file__).parents[1] / "README.md").read_text()
    return re.findall(r"^```console\n\$ (.+)\n((?:.*\n)*?)```$", text, flags=re.MULTILINE)


def test_the_readme_tells_the_truth() -> None:
    examples = readme_examples()
    assert len(examples) >= 2
    path = f"{Path(SCRIPT).parent}:{os.environ['PATH']}"
    for command, promised in examples:
        answer = run("bash", "-c", f"exec 2>&1; {command}", environ={"PATH": path})
        assert answer.stdout == promised, command


def test_version() -> None:
    assert run(SCRIPT, "--version").stdout == f"saros {saros.__version__}\n"
    assert version("saros") == saros.__version__


def test_config_prints_every_setting_whole() -> None:
    name = "a" * 32
    answer = run(SCRIPT, "config", environ={"SAROS_MODEL__NAME": name, "COLUMNS": "20"})
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    concerns = ["model", "session", "gate", "step", "kafka", "redis", "trainer", "api", "client", "log"]
    assert [line for line in lines if line.startswith("#")] == [f"# {concern}" for concern in concerns]
    for setting in describe(load({"SAROS_MODEL__NAME": name})):
        (line,) = [line for line in lines if line.startswith(f"{setting.variable} ")]
        value = {"False": "false", "True": "true", "": "''"}.get(str(setting.value), str(setting.value))
        assert line.split(maxsplit=3)[1:3] == [value, setting.source]
        assert line.endswith(f"  {setting.description} ({setting.allowed})")


def test_config_on_a_terminal_is_a_table_that_cuts_nothing() -> None:
    name = "a" * 32
    wide = run_on_terminal(SCRIPT, "config", environ={"SAROS_MODEL__NAME": name, "COLUMNS": "140"})
    for setting in describe(load({})):
        assert setting.variable in wide
        assert setting.description.split()[0] in wide
    assert name in wide
    narrow = run_on_terminal(SCRIPT, "config", environ={"SAROS_MODEL__NAME": name, "COLUMNS": "50"})
    assert "…" not in narrow
    assert narrow.count("a") >= 32


def test_config_as_json_is_one_object_and_nothing_else() -> None:
    environ = {"SAROS_GATE__BLOCKS_MAX": "77", "SAROS_SESSION__SPLIT_ON_ID": "yes"}
    answer = run(SCRIPT, "config", "--json", environ=environ)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert json.loads(answer.stdout) == {
        setting.variable: {"value": setting.value, "source": setting.source, "description": setting.description}
        for setting in describe(load(environ))
    }
    assert json.loads(answer.stdout)["SAROS_GATE__BLOCKS_MAX"]["value"] == 77
    assert json.loads(answer.stdout)["SAROS_SESSION__SPLIT_ON_ID"]["value"] is True


@pytest.mark.parametrize("arguments", [("config",), ("config", "--json")])
def test_wrong_settings_are_one_line_each_and_exit_2(arguments: tuple[str, ...]) -> None:
    answer = run(SCRIPT, *arguments, environ={"SAROS_GATE__BLOCK_MAX": "5", "SAROS_MODEL__DIM": "1"})
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.splitlines() == [
        "saros: SAROS_GATE__BLOCK_MAX names no setting — did you mean SAROS_GATE__BLOCKS_MAX?",
        "saros: SAROS_MODEL__DIM=1 is too small — give a whole number from 2 up to 512",
    ]


@pytest.mark.parametrize(
    ("arguments", "where", "about"),
    [
        (("confg",), "saros", "'confg'"),
        (("--jsn",), "saros", "--jsn"),
        (("config", "--jsn"), "saros config", "--jsn"),
        (("config", "more"), "saros config", "more"),
    ],
)
def test_wrong_usage_is_one_line_that_points_to_the_help(arguments: tuple[str, ...], where: str, about: str) -> None:
    answer = run(SCRIPT, *arguments)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("saros: ")
    assert about in answer.stderr
    assert answer.stderr.endswith(f" — see '{where} --help'\n")
    assert answer.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "code", "stderr"),
    [("wrong", 2, "saros: the file is empty — give another\n"), ("full", 1, "saros: items_max=5 is reached\n")],
)
def test_errors_of_ours_are_one_line(command: str, code: int, stderr: str) -> None:
    answer = run_extended(command)
    assert (answer.returncode, answer.stdout, answer.stderr) == (code, "", stderr)


def test_a_defect_keeps_its_traceback() -> None:
    answer = run_extended("defect")
    assert answer.returncode == 1
    assert answer.stderr.startswith("Traceback")
    assert answer.stderr.endswith("ZeroDivisionError: a defect\n")


def test_an_interrupt_exits_130_without_a_traceback() -> None:
    command = [sys.executable, "-c", EXTENDED, "wait"]

    def listen() -> None:
        """A shell that runs the tests in the background lets them, and their children, ignore interrupts."""
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with subprocess.Popen(
        command, text=True, env=CLEAN, stdin=PIPE, stdout=PIPE, stderr=PIPE, preexec_fn=listen
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate()
    assert (process.returncode, stderr) == (130, "")


@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("config",), ("config", "--json")])
def test_a_reader_that_has_gone_is_no_noise(arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    answer = subprocess.run([SCRIPT, *arguments], stdout=writer, stderr=PIPE, text=True, env=CLEAN, check=False)
    os.close(writer)
    assert (answer.returncode, answer.stderr) == (1, "")


def test_progress_appears_on_a_terminal_when_work_is_long() -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-c", WORK, "0"]
    environ = CLEAN | {"TERM": "xterm"}
    with subprocess.Popen(command, text=True, env=environ, stdin=PIPE, stdout=PIPE, stderr=slave) as process:
        os.close(slave)
        seen = read_terminal(master, enough=lambda seen: "compiling kernels" in seen)
        stdout, _ = process.communicate()
    os.close(master)
    assert "compiling kernels" in seen
    assert (process.returncode, stdout) == (0, "an answer\n"), "the bar leaves standard output alone"


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_progress_keeps_silent_when_work_is_short(term: str) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-c", WORK, "600"]
    environ = CLEAN | {"TERM": term}
    answer = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=slave, env=environ, timeout=60, check=False)
    os.close(slave)
    seen = read_terminal(master, enough=lambda seen: False)
    os.close(master)
    assert (answer.returncode, seen) == (0, "")


def test_progress_keeps_silent_without_a_terminal() -> None:
    answer = run(sys.executable, "-c", WORK.replace("sys.stdin.read()", "advance(2)"), "0")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "an answer\n", "")


@pytest.mark.timeout(600)
def test_warm_says_how_long_it_took_and_where_the_kernels_are() -> None:
    done = run(SCRIPT, "warm", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert answer.keys() == {"seconds", "stages", "cache"}
    assert answer["seconds"] > 0
    assert list(Path(answer["cache"]).rglob("*.nbc")), "compiled kernels are kept there"
    assert run(SCRIPT, "warm").stdout.startswith("kernels are ready after ")
