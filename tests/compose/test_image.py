"""The image: nobody's user, a root that cannot be written, kernels that need no compiler, and little else."""

import ast
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.compose.stack import IMAGE, Stack, run
from tests.deploy.tools import secrets_in

pytestmark = pytest.mark.timeout(2400)  # the image is built in the first one

CONFINED = ("docker", "run", "--rm", "--read-only", "--network", "none", "--cap-drop", "ALL")


def of_image(image: str, what: str) -> Any:
    return json.loads(run("docker", "image", "inspect", "--format", f"{{{{json .{what}}}}}", image))


def test_it_runs_as_nobody_and_writes_nowhere_but_in_tmp(image: str) -> None:
    assert of_image(image, "Config.User") == "10001:10001"
    script = "id -u; for place in / /opt/saros/bin /tmp; do touch $place/x 2>/dev/null && echo $place; done"
    told = run(*CONFINED, "--tmpfs", "/tmp", "--entrypoint", "sh", image, "-c", script)
    assert told.split() == ["10001", "/tmp"]


@pytest.mark.parametrize("user", ["10001", "4711"])
def test_kernels_are_there_for_any_user(image: str, user: str) -> None:
    """Compiling takes a minute at least; `saros warm` counts what it takes to load them and to run each once."""
    environ = ("--env", "NUMBA_DEBUG_CACHE=1")
    told = run(*CONFINED, "--tmpfs", "/tmp", "--user", user, *environ, image, "warm", "--json")
    assert json.loads(told.splitlines()[-1])["cache"].startswith("/tmp/cache/saros/kernels-")
    assert told.count("[cache] data loaded from") > 50
    assert "[cache] data saved to" not in told, "nothing had to be compiled"


def test_kernels_are_compiled_for_any_cpu(image: str) -> None:
    """Those of the very CPU that built the image would be loaded there, and nowhere else."""
    script = "import platform; from numba.core.config import CPU_FEATURES, CPU_NAME; "
    script += "print([platform.machine(), CPU_NAME, CPU_FEATURES])"
    machine, name, features = ast.literal_eval(run(*CONFINED, "--entrypoint", "python", image, "-c", script))
    assert (name, features) == ("x86-64-v3" if machine == "x86_64" else "generic", "")


def test_it_starts_no_threads_of_blas_and_says_where_it_stands_when_asked(image: str) -> None:
    # As process 1, like a trainer: a signal that it does not handle would not even reach it.
    script = "import numpy, os, signal; print(len(os.listdir('/proc/self/task')), flush=True); "
    script += "signal.raise_signal(signal.SIGABRT)"
    command = [*CONFINED, "--entrypoint", "python", image, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "1"
    assert "Fatal Python error: Aborted" in done.stderr


def test_it_has_no_compiler_no_pip_and_no_tests(image: str) -> None:
    script = "ls /opt/saros/bin; find /opt/saros -name tests; python -c 'import pip' 2>&1 | tail -1; which gcc || true"
    told = run(*CONFINED, "--entrypoint", "sh", image, "-c", script).split("\n")
    assert "saros" in told
    assert not [line for line in told if re.search(r"^pip|gcc|tests", line)], told
    assert "ModuleNotFoundError: No module named 'pip'" in told
    assert of_image(image, "Size") < 700e6


def test_every_service_is_confined(image: str) -> None:
    """What one setting in a new service would undo."""
    services = json.loads(Stack().compose("config", "--format", "json"))["services"]
    assert {"kafka", "redis", "init", "trainer", "api", "prometheus", "grafana", "demo"} < set(services)
    for name, service in services.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["restart"] in ("unless-stopped", "on-failure"), name
        assert {"cpus", "memory", "pids"} <= set(service["deploy"]["resources"]["limits"]), name
        for port in service.get("ports", []):
            assert port["host_ip"] == "127.0.0.1", name
        assert not secrets_in(service.get("environment", {})), name


def test_nothing_is_sent_to_the_engine_but_what_it_is_built_from(image: str, tmp_path: Path) -> None:
    """Settings that hold secrets, or a virtual environment, must not get into the image by a slip."""
    (tmp_path / "Dockerfile").write_text(f"FROM {IMAGE}\nCOPY . /tmp/sent\n")
    sent = run("docker", "build", "--quiet", "--file", str(tmp_path / "Dockerfile"), ".").strip()
    try:
        told = run("docker", "run", "--rm", "--entrypoint", "find", sent, "/tmp/sent", "-printf", "%P\n").split()
    finally:
        run("docker", "image", "rm", sent)
    tops = {"LICENSE", "README.md", "pyproject.toml", "requirements.lock", "services"}
    assert {Path(path).parts[0] for path in told} == tops
    assert "services/saros/cli.py" in told
    assert not [path for path in told if path.endswith((".pyc", ".egg-info", "__pycache__"))]
