"""The commands of docs/operations.md: a shell takes them, and those of Saros are there. Addresses are the reader's."""

import re
import subprocess

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from saros.cli import app
from tests.deploy.tools import ROOT

TEXT = (ROOT / "docs" / "operations.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
INLINE = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL))


def test_a_shell_takes_them() -> None:
    assert len(BLOCKS) > 10
    for block in BLOCKS:
        done = subprocess.run(["sh", "-n"], input=block, capture_output=True, text=True, check=False)
        assert done.returncode == 0, block + done.stderr
        assert "…" not in block.replace("=…", ""), "what nobody can paste"


def commands() -> list[str]:
    """Return all commands of Saros that the page names."""
    lines = [*"".join(BLOCKS).splitlines(), *INLINE]
    return sorted({found[1].strip() for line in lines if (found := re.match(r"saros ((?!-)[^|>&#]+)", line))})


@pytest.mark.parametrize("command", commands())
def test_saros_has_them(command: str) -> None:
    found, words = get_command(app), command.split()
    while isinstance(found, TyperGroup):
        name = words.pop(0)
        assert name in found.commands, command
        found = found.commands[name]
    options = {option for parameter in found.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= options, command
