"""Programs that check and run what is in deploy/: those on the PATH, or those that `make tools` has got."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from pydantic import SecretStr

from saros.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
TOOLS = ROOT / "build" / "tools"


# All settings whose values are never shown.
SECRETS = {
    f"SAROS_{concern}__{name}".upper()
    for concern, field in Settings.model_fields.items()
    for name, value in field.default
    if isinstance(value, SecretStr)
}


def secrets_in(names: Iterable[str]) -> set[str]:
    """Return the variables whose values would be secrets, of ours and of others."""
    return {name for name in names if name in SECRETS or re.search("PASSWORD|SECRET|TOKEN", name)}


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
