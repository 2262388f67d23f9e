"""For the tests of the containers: they run where they are asked for and an engine answers."""

import os

import pytest

from tests.compose.stack import BUILD_S, IMAGE, Stack, ask_compose, run
from tests.servers import UnavailableError

ASKED = os.environ.get("SAROS_TEST_COMPOSE") == "1"


@pytest.fixture(scope="session")
def image() -> str:
    """The image, built from what is here."""
    if not ASKED:
        pytest.skip("the containers: SAROS_TEST_COMPOSE=1, as `make test-compose` does")
    try:
        ask_compose()
    except UnavailableError as error:
        pytest.skip(str(error))
    Stack().compose("build", timeout_s=BUILD_S)
    return run("docker", "image", "inspect", "--format", "{{.Id}}", IMAGE).strip()
