"""Programs that check and run what is in deploy/: those on the PATH, or those that `make tools` has got."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
TOOLS = ROOT / "build" / "tools"


def program(name: str) -> str:
    """Return the path of a program; where it is not here, the test is skipped."""
    found = shutil.which(name, path=os.pathsep.join([str(TOOLS), os.environ.get("PATH", os.defpath)]))
    if found is None:
        pytest.skip(f"needs {name}: `make tools` gets it on Debian, or have it on the PATH")
    return found


def output_of(*command: str | Path) -> str:
    """Return what a command says; it has to end well."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
