"""`saros up`: all of it runs and learns, ends in order, leaves nothing behind, and finds its model again."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
import typer
from PIL import Image
from typer.core import TyperOption

from saros.api.keys import entry_of, new_key
from saros.core.catalogue import P0_DRIFT
from saros.lab import traffic_commands
from saros.settings import Settings
from saros.up import commands
from saros.up.looks import last_object
from saros.up.plan import kept
from tests.api.browser import chromium, visit
from tests.broker import Broker
from tests.store import StoreServer
from tests.test_cli import read_terminal
from tests.trainer.runs import SAROS
from tests.up.runs import CLEAN, END_S, START_S, Run, is_alive, running

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="what runs is looked up in /proc")

ROOT = Path(__file__).parents[2]
LEARNED_S = 120
PAGE_S = 60
PEOPLE = ("--users", "150", "--items", "100", "--rate", "1000", "--seed", "7")


def answers(run: Run) -> list[Any]:
    """Return what some are told: users that were there from the beginning, and who is popular."""
    told = [run.ask(f"/v1/users/u{k}/recommendations?k=100&exclude_seen=false&explain=true") for k in range(1, 40)]
    assert any(one["user_state"] != "cold" for one in told)
    return [(one["source"], one["user_state"], one["items"]) for one in told] + [run.ask("/v1/popular?k=20")["items"]]


def learned(run: Run, told: list[Any]) -> tuple[list[Any], list[float]]:
    """Return what is behind answers, which a restart keeps to the bit, and their scores.

    Scores hold the rate of all items, too, which an API that runs takes anew only when its logit has moved by P0_DRIFT.
    """
    vectors = [
        (source, state, sorted((one["item_id"], one["explain"].get("vector", 0)) for one in items))
        for source, state, items in told[:-1]
    ]
    assert sum(source == "model" for source, _, _ in vectors) > 10
    counts = [run.ask(f"/v1/items/film-{film:04}") for film in range(1, 101)]
    users = [run.ask(f"/v1/users/u{k}") for k, (_, state, _) in enumerate(vectors, 1) if state != "cold"]
    scores = [one["score"] for _, _, items in told[:-1] for one in sorted(items, key=itemgetter("item_id"))]
    return [vectors, counts, users], scores


def await_quiet(run: Run) -> None:
    """Let people stand still, without an end of theirs, and wait until all that they did is learned and stored."""
    os.kill(run.child("simulate"), signal.SIGSTOP)
    seen = [run.pulse() for _ in range(3)]
    while len({one["events"]["total"] for one in seen[-3:]}) > 1 or seen[-1]["lag"]["messages"]:
        seen.append(run.pulse())


def judged(run: Run) -> dict[str, Any]:
    """Return what the simulator says when enough was shown. One looks once: who looks all the time sees chance win."""
    run.until(lambda: run.traffic().get("slates", 0) > 24_000, LEARNED_S)
    return run.traffic()


def check_session_of_readme(run: Run) -> None:
    """What README.md says to paste works as it stands there, but for the port."""
    (session,) = re.findall(r"```sh\n(API=.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert session.startswith("API=http://127.0.0.1:8000\n")
    pasted = "set -euo pipefail\n" + session.replace("http://127.0.0.1:8000", run.url).replace("curl -s", "curl -sSf")
    # Each answer is an object on a line that is not ended.
    done = subprocess.run(["bash", "-c", pasted], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    decoder, told, at = json.JSONDecoder(), list[dict[str, Any]](), 0
    while at < len(done.stdout):
        found, at = decoder.raw_decode(done.stdout, at)
        told.append(found)
    hers, similar, guest, ann = told
    assert (len(hers["items"]), hers["token_reached"], hers["source"]) == (5, True, "model")
    assert "film-0002" not in [item["item_id"] for item in hers["items"]], "she has clicked it"
    assert (len(similar["items"]), len(guest["items"]), guest["source"]) == (3, 3, "session")
    assert (ann["blocks"], ann["band"]) == (1, "in_band")


def shoot_for_readme(run: Run) -> None:
    """Keep pictures of the page, small ones: `make screenshot` puts them into docs/."""
    with suppress(pytest.skip.Exception), chromium() as browser:
        for name, scheme in (("dashboard", "light"), ("dashboard-dark", "dark")):
            with visit(browser, run.url, (1280, 740), color_scheme=scheme, reduced_motion="reduce") as page:
                page.until("document.querySelectorAll('#play .item').length > 3 && points.length > 2")
                page.page.locator('[data-user="u2"]').click()
                page.until("play.user === 'u2' && play.ids.length && !play.at('list').hasAttribute('aria-busy')")
                page.page.locator("#play .item").nth(2).click()
                page.until("play.at('told').textContent !== ''", "the list has changed")
                page.page.mouse.move(640, 30)
                path = page.shoot(name, whole=False)
                page.check()
            small = Image.open(path).convert("RGB").quantize(96, dither=Image.Dither.NONE)
            small.save(path, optimize=True)
            assert path.stat().st_size < 100_000


def test_people_are_pleased_better_than_by_chance_and_bots_are_taken_back(tmp_path: Path) -> None:
    # A bot closes a block a second: with a B of 50, as it is where nobody sets it, this would take half a minute more.
    with running(tmp_path, *PEOPLE, "--bots", "3", environ={"SAROS_GATE__BLOCKS_MAX": "30"}) as run:
        assert judged(run)["lift_low95"] > 0
        check_session_of_readme(run)
        # People may pass B, too, if seldom: it is the bots that have to be above it.
        run.until(lambda: all(run.ask(f"/v1/users/bot-{k}")["band"] == "above" for k in range(3)), LEARNED_S)
        taken_back = [run.ask(f"/v1/users/bot-{k}")["taken_back"] for k in range(3)]
        # Each has clicked its films again and again, and taught by the first click on each.
        assert min(taken_back) > 5, taken_back
        pulse = run.pulse()
        assert pulse["gate"]["taken_back"] >= sum(taken_back)
        rates = {one["scenario"]: one["rate"] for one in pulse["scenarios"]}
        assert rates["model"] > rates["random"] > 0
        assert pulse["ready"]
        assert pulse["items"] == 100
        shoot_for_readme(run)
        assert run.end() == 0
        assert "all has ended" in run.errors()


def test_without_learning_they_are_not(tmp_path: Path) -> None:
    """Everybody is shown the same ten films, by the chance of a new hash key. Of forty such tens one is so good that
    the bound is above 0; so one is allowed, and two that follow one another are not."""
    assert any(_learns_nothing(tmp_path / name) for name in ("first", "second"))


def _learns_nothing(data_dir: Path) -> bool:
    off = {"SAROS_GATE__BLOCKS_MIN": "100000", "SAROS_GATE__BLOCKS_MAX": "1000000"}
    with running(data_dir, *PEOPLE, environ=off) as run:
        told, pulse = judged(run), run.pulse()
        assert told["random"]["clicked"] > 300, "there was enough to see a difference by"
        assert pulse["gate"]["decisions"]["learn"] == 0
        assert run.end(signal.SIGTERM) == 0
        return bool(told["lift_low95"] <= 0)


def test_a_model_outlives_an_end_in_order_and_one_by_force_and_a_child_that_dies_ends_all(tmp_path: Path) -> None:
    with running(tmp_path, *PEOPLE) as run:
        run.until(lambda: run.pulse()["gate"]["decisions"].get("learn", 0) > 500, LEARNED_S)
        await_quiet(run)
        exact, scores = learned(run, answers(run))
        assert run.end() == 0
    with running(tmp_path, "--no-traffic") as run:
        assert "goes on with a new log" in run.errors()
        assert "can no longer be taken back" not in run.errors()
        told = answers(run)
        exact_now, scores_now = learned(run, told)
        assert exact_now == exact
        assert scores_now == pytest.approx(scores, abs=P0_DRIFT)
        assert run.ask("/v1/stats")["items"] == 100
        assert run.end(signal.SIGKILL) == -signal.SIGKILL
    # A process counts as dead while the last of its threads still lets go of what it had, of the port too.
    with running(tmp_path, "--no-traffic", port=run.port) as run:
        assert answers(run) == told
        run.until(lambda: "partition was begun" in run.log("trainer"), START_S)
        children = run.children()
        os.kill(run.child("trainer"), signal.SIGKILL)
        assert run.process.wait(END_S) == 1
        errors = run.errors().splitlines()
        at = errors.index("trainer has ended; its last words:")
        assert any("partition was begun" in line for line in errors[at:])
        assert errors[-1] == "saros: trainer ended with code -9, so all the rest was ended, too"
        assert not [pid for pid, started in children.items() if is_alive(pid, started)]


def test_the_banner_says_whether_a_run_that_was_killed_can_be_taken_back(tmp_path: Path) -> None:
    with running(tmp_path, *PEOPLE) as run:
        run.until(lambda: run.pulse()["gate"]["decisions"].get("learn", 0) > 500, LEARNED_S)
        run.end(signal.SIGKILL)
    with running(tmp_path, "--no-traffic", port=run.port) as run:
        rebased = last_object(run.log("rebase"))
        assert rebased is not None
        assert ("can no longer be taken back" in run.errors()) == rebased["clears"]
        assert run.end() == 0


@pytest.mark.parametrize(("rebased", "said"), [
    (None, ""),
    ({"clears": False}, "of the last run, kept"),
    ({"clears": True},
     "of the last run, kept; it was not ended in order, so what was taught until then can no longer be taken back"),
])  # fmt: skip
def test_the_banner_says_what_is_kept(tmp_path: Path, rebased: dict[str, Any] | None, said: str) -> None:
    plan = commands.plan_of(Settings(), tmp_path, None, ())
    told = dict(kept(plan, rebased))
    assert told.get("model", "") == said
    assert "in memory" in told["not kept"]
    assert str(tmp_path) in told["kept"]


def test_where_keys_are_asked_for_people_and_the_numbers_have_one(tmp_path: Path) -> None:
    key = new_key()
    environ = {"SAROS_API__KEYS": entry_of("reader", ["read"], key)}
    with running(tmp_path, *PEOPLE, environ=environ) as run:
        with pytest.raises(HTTPError, match="401"):
            run.ask("/v1/stats")
        run.until(lambda: run.traffic().get("slates", 0) > 100, START_S)
        assert run.ask("/v1/stats", key)["items"] == 100, "people have told of their films, and the user's key is known"
        run.until(lambda: "saros: events: " in run.errors(), START_S)
        assert run.end() == 0


def test_a_second_signal_ends_it_at_once_and_a_directory_has_one(tmp_path: Path) -> None:
    with running(tmp_path, "--no-traffic", ready=False) as run:
        run.until(lambda: run.has("api"), START_S)
        other = subprocess.run(
            [SAROS, "up", "--data-dir", str(tmp_path)], env=CLEAN, capture_output=True, text=True, check=False
        )
        assert other.returncode == 2
        assert "another `saros up` runs with" in other.stderr
        children = run.children()
        run.process.send_signal(signal.SIGTERM)
        time.sleep(0.01)
        run.process.send_signal(signal.SIGTERM)
        begun_s = time.monotonic()
        assert run.process.wait(END_S) in (0, 1)
        while any(is_alive(pid, started) for pid, started in children.items()):
            assert time.monotonic() - begun_s < END_S
            time.sleep(0.05)


def test_people_are_as_many_as_the_simulator_takes() -> None:
    """What it does not take would end all of it when the people are to come."""
    ours, theirs = (
        {one.name: (one.min, one.max, one.default) for one in typer.main.get_command(app).params
         if isinstance(one, TyperOption) and one.name in ("users", "items", "rate", "bots", "seed")}
        for app in (commands.app, traffic_commands.app)
    )  # fmt: skip
    assert len(ours) == 5
    assert ours == theirs


def test_the_page_is_there_before_kernels_are_and_they_may_be_done_early(tmp_path: Path) -> None:
    """A first start as far as it matters: nothing says that kernels are whole, but they take a second only."""
    kernels = tmp_path / "kernels"
    shutil.copytree(os.environ["NUMBA_CACHE_DIR"], kernels)
    (kernels / "progress").unlink()
    with running(tmp_path, "--no-traffic", ready=False, environ={"NUMBA_CACHE_DIR": str(kernels)}) as run:
        run.until(lambda: is_shown(run), PAGE_S)
        run.await_url()
        assert "kernels are compiled, once" in run.errors()
        assert run.end() == 0


def is_shown(run: Run) -> bool:
    """True if a browser would see the page."""
    with suppress(OSError), urllib.request.urlopen(run.url, timeout=2) as answer:
        return b"<title>Saros" in answer.read()
    return False


def test_on_a_terminal_there_is_a_picture(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    command = [SAROS, "up", "--data-dir", str(tmp_path), *PEOPLE]
    environ = CLEAN | {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    # Without --port, so that it looks for one from 8000 on.
    with subprocess.Popen(command, stdout=slave, stderr=slave, stdin=slave, env=environ) as process:
        os.close(slave)
        try:
            seen = read_terminal(master, enough=lambda seen: "model over random" in seen)
            process.send_signal(signal.SIGINT)
            seen += read_terminal(master, enough=lambda seen: "all has ended" in seen)
            assert process.wait(END_S) == 0
        finally:
            process.kill()
    os.close(master)
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen)
    assert re.search(r"http://127\.0\.0\.1:8\d\d\d", plain)
    for word in ("broker", "store", "trainer", "traffic", "events", "learning", "clicks", "gate", "kept", "not kept"):
        assert re.search(rf"^{word} ", plain, flags=re.MULTILINE), word
    assert "request answered" not in plain, "what children say is for their logs"
    assert "SAROS_UP_URL" not in plain


def test_what_is_given_is_used_and_nothing_is_rebased(
    real_broker: Broker, store_server: StoreServer, model_name: str, tmp_path: Path
) -> None:
    given = {
        "SAROS_KAFKA__BOOTSTRAP": real_broker.address,
        "SAROS_REDIS__URL": store_server.url,
        "SAROS_MODEL__NAME": model_name,
    }
    for _ in range(2):
        with running(tmp_path, "--no-traffic", environ=given) as run:
            assert run.ask("/readyz")["status"] == "ready"
            assert not run.has("broker")
            assert not run.has("rebase")
            assert run.process.poll() is None
            run.process.send_signal(signal.SIGTERM)
            assert run.process.wait(END_S) == 0
    refused = {name: text for name, text in given.items() if name != "SAROS_KAFKA__BOOTSTRAP"}
    with running(tmp_path, "--no-traffic", ready=False, environ=refused) as run:
        assert run.process.wait(START_S) == 2
        assert "whose log is on a broker of your own" in run.errors()
