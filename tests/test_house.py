"""The rules of the house that no other tool checks: purity of the core, the lock files, the Makefile."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.markers import Marker

ROOT = Path(__file__).parents[1]
CORE = ROOT / "services" / "saros" / "core"
LOCKS = ("requirements.lock", "requirements-dev.lock")

# All that core may import: arithmetic, types and itself. Nothing that knows the time, the machine or the world.
# `llvmlite.ir` comes with numba: its intrinsics (a prefetch, say) are written in it.
CORE_IMPORTS = {
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "functools",
    "itertools",
    "llvmlite.ir",
    "math",
    "numba",
    "numpy",
    "operator",
    "saros.core",
    "saros.errors",
    "struct",
    "sys",
    "typing",
}
# Ways to the world that need no import.
CORE_BUILTINS_REFUSED = {"__import__", "eval", "exec", "input", "open", "print"}


def imported(tree: ast.AST, package: str) -> Iterator[str]:
    """Yield the full name of everything a module of `package` imports, wherever in the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{name.name}" for name in node.names)


def impurities(source: str) -> list[str]:
    """Return what a module of core uses and must not."""
    tree = ast.parse(source)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    found = [name for name in sorted(names) if name in CORE_BUILTINS_REFUSED]
    for name in imported(tree, "saros.core"):
        parts = name.split(".")
        if not any(".".join(parts[:length]) in CORE_IMPORTS for length in range(1, len(parts) + 1)):
            found.append(name)
    return found


def test_core_is_pure() -> None:
    sources = sorted(CORE.rglob("*.py"))
    assert len(sources) >= 2
    assert {str(path.relative_to(CORE)): impurities(path.read_text()) for path in sources} == {
        str(path.relative_to(CORE)): [] for path in sources
    }


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import time", ["time"]),
        ("import numpy as np, os.path", ["os.path"]),
        ("from datetime import datetime", ["datetime.datetime"]),
        ("def f():\n    import random", ["random"]),
        ("from saros import settings", ["saros.settings"]),
        ("from saros.environment import read", ["saros.environment.read"]),
        ("from .. import cli", ["saros.cli"]),
        ("from ..wire import codec", ["saros.wire.codec"]),
        ("import numbagg", ["numbagg"]),
        ("print(open('x'))", ["open", "print"]),
        (
            "from . import jit\nfrom .jit import kernel\nfrom saros import errors\nfrom saros.errors import LimitError",
            [],
        ),
        ("import numpy.typing\nfrom collections.abc import Callable\nimport math, numba", []),
    ],
)
def test_the_purity_check_sees_impurity(source: str, found: list[str]) -> None:
    assert impurities(source) == found


def requirements(lock: str) -> dict[str, str]:
    """Return the text of each requirement in a lock file, by its name."""
    text = re.sub(r"^ *#.*\n", "", (ROOT / lock).read_text(), flags=re.MULTILINE)
    entries = [entry.replace("\\\n", " ") for entry in re.split(r"\n(?=\S)", text.strip())]
    return {entry.split("==")[0]: entry for entry in entries}


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_pin_and_hash_everything_and_name_no_place(lock: str) -> None:
    entries = requirements(lock)
    assert len(entries) > 10
    for name, entry in entries.items():
        assert re.match(rf"{re.escape(name)}==[0-9][^ ]* .*--hash=sha256:[0-9a-f]{{64}}", entry), entry[:80]
    text = (ROOT / lock).read_text()
    for place in (
        "://",
        "www.",
        "index-url",
        "find-links",
        "trusted-host",
        " @ ",
        "file:",
        str(ROOT),
        str(Path.home()),
    ):
        assert place not in text, place


def test_the_dev_lock_holds_the_running_lock() -> None:
    running, dev = (requirements(lock) for lock in LOCKS)
    assert {name: dev.get(name) for name in running} == running
    assert {"pytest", "mypy", "ruff", "import-linter", "setuptools"} <= set(dev) - set(running)


def test_the_locks_hold_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = {"requirements.lock": project["dependencies"]}
    lines["requirements-dev.lock"] = [*project["dependencies"], *extras["dev"], *extras["plot"]]
    for lock, asked in lines.items():
        names = {re.split(r"[<>=!~\[ ]", line)[0] for line in asked}
        assert names - {"saros"} <= set(requirements(lock))


@pytest.mark.parametrize(("machine", "python", "asked"), [
    ("x86_64", "3.13", True), ("aarch64", "3.13", False), ("x86_64", "3.14", False),
])  # fmt: skip
def test_atheris_is_asked_for_where_there_is_a_build(machine: str, python: str, asked: bool) -> None:
    entry = requirements("requirements-dev.lock")["atheris"]
    marker = Marker(entry.partition(";")[2].partition("--hash")[0])
    where = {"sys_platform": "linux", "platform_machine": machine, "python_full_version": f"{python}.0"}
    assert marker.evaluate(where) is asked


def make(*arguments: str) -> str:
    environ = {name: text for name, text in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.run(
        ["make", *arguments], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    ).stdout


def test_make_help_lists_every_target() -> None:
    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert phony is not None
    targets = phony[1].split()
    assert {"help", "install", "test", "check", "lock", "clean"} <= set(targets)
    text = make("help")
    for target in targets:
        assert re.search(rf"^  {target} +[A-Z].+\.$", text, flags=re.MULTILINE), target
    assert make() == text, "help is what plain `make` prints"


def test_a_python_that_cannot_make_environments_is_said(tmp_path: Path) -> None:
    """Debian's, without the package python3-venv."""
    bare = tmp_path / "python3"
    bare.write_text(f'#!/bin/sh\ncase "$*" in *ensurepip*) exit 1 ;; esac\nexec {sys.executable} "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(subprocess.CalledProcessError) as failed:
        make("--silent", "install", f"VENV={tmp_path / 'venv'}", f"PYTHON={bare}")
    said = f'saros: "{bare}" cannot make environments — on Debian and Ubuntu: apt install python3-venv'
    assert failed.value.stderr.splitlines()[0] == said
    assert not (tmp_path / "venv").exists()


def test_continuous_integration_can_be_started() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert "make check test" in script.read_text()
