"""Feed the decoder bytes that no one thought of, and see that all its builds agree: `make fuzz`.

    python -m tests.fuzz.wire --seconds 60            # where there is atheris
    python -m tests.fuzz.wire build/fuzz/crash-…      # only what was found before; anywhere

libFuzzer ends its process itself, without a word to Python. So it runs in a child, and this process reports what the
child said. Exit codes: 0 nothing was found, 1 something was, or nothing was done.
"""

import argparse
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from saros.wire.v1.events_pb2 import Event, EventBatch, GateChange
from tests.fuzz.builds import BROKEN, PLAIN, Harness, Input, checked, plain
from tests.wire.strategies import PIECES

ROOT = Path(__file__).parents[2]
FOUND = ROOT / "build" / "fuzz"
INPUT_MAX = 512  # bytes: enough for ids that are too long; limits of whole messages have tests of their own
INPUT_SECONDS_MAX = 10
NO_ATHERIS = "needs atheris, which there is for Linux on x86-64 only, and for Python before 3.14"
_DONE = re.compile(r"^#(\d+)\s+DONE\s+cov: (\d+) ft: (\d+)", re.MULTILINE)
_WRITTEN = re.compile(r"Test unit written to (\S+)")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _events() -> list[Event]:
    """One event of every kind, the rare ones too, and two at the limit of ids."""
    time_ms, gate = 1_700_000_000_000, GateChange(
        revision=1, blocks_min=3, blocks_max=50, percentile=97.0, blocks_max_floor=50, blocks_max_ceiling=100,
        window_days=7, ledger_max_bytes=524_288,
    )  # fmt: skip
    slate = Event(
        user_id="ann", event_time_ms=time_ms, event_id="e1", session_id="s1", recommendation_id="r1", scenario="home",
        impression={"items": [{"item_id": "alien"}, {"item_id": "é", "position": 1}, {"item_id": "日本語"}]},
    )  # fmt: skip
    return [
        slate,
        Event(user_id="bob/1", known_bot=True, click={"item_id": "alien", "position": 2}),
        Event(user_id="ann", event_time_ms=time_ms, feedback={"item_id": "alien", "sign": 2, "weight": 2.5}),
        Event(user_id="ann", feedback={"item_id": "brazil", "sign": 1}),
        Event(user_id="ann", user_erase={}),
        Event(event_time_ms=time_ms, tick={}),
        Event(item_upsert={"item_id": "alien", "categories": ["film"], "properties": {"year": "1979"}}),
        Event(gate_change=gate),
        Event(user_id="a" * 256, click={"item_id": "b"}),
        Event(user_id="é" * 129, click={"item_id": "b"}),
    ]


def seeds() -> list[Input]:
    """What the fuzzer starts from: events alone, together and as batches; and every piece."""
    events = _events()
    alone = [event.SerializeToString() for event in events]
    batches = [EventBatch(events=events[:count]).SerializeToString() for count in (1, 3, 8)]
    together = [Input([alone[1], alone[0]], 2), Input([alone[2], alone[5], batches[1]], 1), Input([b"", alone[4]], 0)]
    return [*(Input([message], 0) for message in (*alone, *batches, *PIECES)), *together, Input([alone[3]], 2)]


def _harness(broken: bool, instrument: Callable[[Any], Any] = lambda function: function) -> Harness:
    return Harness(plain(PLAIN | BROKEN if broken else PLAIN, instrument), checked())


def _engine(arguments: argparse.Namespace) -> None:
    """Fuzz, from what the parent has put into a directory; never returns."""
    atheris = importlib.import_module("atheris")
    harness = _harness(arguments.broken, atheris.instrument_func)
    flags = {
        "max_total_time": arguments.seconds,
        "artifact_prefix": f"{arguments.found}{os.sep}",
        "timeout": INPUT_SECONDS_MAX,
        "max_len": INPUT_MAX,
        "dict": arguments.engine / "words",
    }
    words = [f"-{flag}={value}" for flag, value in flags.items()]
    atheris.Setup([sys.argv[0], *words, str(arguments.engine / "corpus")], harness.run)
    atheris.Fuzz()


def _run_engine(given: Sequence[str]) -> tuple[int, str]:
    """Run the engine in a child; return its exit code and all it said."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "corpus").mkdir()
        for k, seed in enumerate(seeds()):
            (place / "corpus" / f"{k:03}").write_bytes(seed.to_bytes())
        lines = ["".join(f"\\x{byte:02x}" for byte in piece) for piece in PIECES]
        (place / "words").write_text("".join(f'"{line}"\n' for line in lines))
        child = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.wire", *given, "--engine", name],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    return child.returncode, child.stdout.decode(errors="replace")


def _fuzz(arguments: argparse.Namespace, given: Sequence[str]) -> int:
    """Fuzz, and report what came of it."""
    if importlib.util.find_spec("atheris") is None:
        _say(f"saros: nothing was fuzzed: {NO_ATHERIS}")
        return 1
    arguments.found.mkdir(parents=True, exist_ok=True)
    code, said = _run_engine([*given, "--found", str(arguments.found)])
    done, written = _DONE.search(said), _WRITTEN.search(said)
    if code == 0 and done and not written:
        _say(f"fuzz: {done[1]} inputs, coverage {done[2]}, features {done[3]}; all builds and the twin agree")
        return 0
    _say(said)
    if written:
        file = Path(written[1])
        file = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
        _say(f"saros: the fuzzer found something; run it again with: make fuzz ARGS={file}")
    else:
        _say(f"saros: the fuzzer ended with exit code {code} and wrote no input")
    return 1


def _replay(files: Sequence[Path], broken: bool) -> int:
    """Run what these files hold."""
    harness, bad = _harness(broken), 0
    for file in files:
        data = file.read_bytes()
        try:
            harness.run(data)
        except Exception:
            bad += 1
            _say(f"{file}: {Input.of(data)}\n{traceback.format_exc()}")
    _say(f"fuzz: {len(files)} inputs run again, {bad} of them bad")
    return 1 if bad else 0


def main(given: Sequence[str]) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.wire", description="Fuzz the decoder.")
    parser.add_argument("files", nargs="*", type=Path, help="run these inputs only")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--found", type=Path, default=FOUND, help="where bad inputs are written")
    parser.add_argument("--broken", action="store_true", help="with a decoder that is broken, to see that it is found")
    parser.add_argument("--engine", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    if arguments.seconds < 1:
        parser.error("--seconds must be at least 1")  # 0 would never end
    arguments.found = arguments.found.absolute()
    if arguments.files:
        return _replay(arguments.files, arguments.broken)
    if arguments.engine:
        _engine(arguments)
    return _fuzz(arguments, given)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
