"""The OpenAPI document against the API that serves it, with broker, store and trainer: schemathesis finds nothing.

SAROS_TEST_EXAMPLES and SAROS_TEST_SEED look further than the few seconds that a run of all tests should spend on it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from saros.api.keys import entry_of, new_key
from tests.api.test_end_to_end import started
from tests.trainer.runs import Model

HERE = Path(__file__).parent
# Small, so that what is just beyond is made as well; but for headers, which are refused before there is a request.
LIMITS = {
    "K_MAX": 50, "EXCLUDE_MAX": 20, "USERS_MAX": 10, "SESSION_MAX": 20, "CANDIDATES_MAX": 20, "WAIT_MS_MAX": 20,
    "HEADER_MAX_BYTES": 2**20,
}  # fmt: skip
EXAMPLES = os.environ.get("SAROS_TEST_EXAMPLES", "10")
SEED = os.environ.get("SAROS_TEST_SEED", "9")


@pytest.mark.timeout(max(300, 20 * int(EXAMPLES)))
def test_the_document_says_what_the_api_does(live: Model, tmp_path: Path) -> None:
    key = new_key()
    settings = {f"SAROS_API__{name}": str(value) for name, value in LIMITS.items()}
    with started(live, SAROS_API__KEYS=entry_of("all", ["admin"], key), **settings) as api:
        api.await_ready()
        found = subprocess.run(
            [
                str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(HERE / "schemathesis.toml"),
                "run", f"{api.client.base_url}/openapi.json", "-H", f"X-API-Key: {key}", "--max-examples", EXAMPLES,
                "--seed", SEED, "--generation-database", "none", "--continue-on-failure",
            ],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(HERE.parents[1])}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        told = "\n".join(line[:1000] for line in found.stdout.splitlines())
        assert found.returncode == 0, told + found.stderr
        assert "Tested: " in told
        operations = sum(len(methods) for methods in api.client.get("/openapi.json").json()["paths"].values())
        assert f"Selected: {operations}/{operations}" in told
        assert "Traceback" not in api.words()
