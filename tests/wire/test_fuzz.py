"""The fuzzer runs for a moment here, and finds what is broken on purpose; `make fuzz` takes a minute."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from saros.core.ids import siphash
from saros.wire import columns
from saros.wire.v1.events_pb2 import Event
from tests.fuzz.builds import BROKEN, PLAIN, Change, DisagreementError, Harness, Input, OutsideError, checked, plain
from tests.fuzz.wire import INPUT_MAX, NO_ATHERIS, main, seeds

ROOT = Path(__file__).parents[2]

needs_atheris = pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason=NO_ATHERIS)

CLICK = Event(user_id="ann", click={"item_id": "alien"}).SerializeToString()
# The last text says that it has five bytes, and has two.
CUT = Input([CLICK + b"\x12\x05ab"], 0).to_bytes()


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz.wire", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


@needs_atheris
def test_nothing_is_found_in_a_moment(tmp_path: Path) -> None:
    run = fuzz("--seconds", "5", "--found", str(tmp_path))
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.startswith("fuzz: ")
    assert run.stdout.count("\n") == 1
    assert int(run.stdout.split()[1]) > len(seeds())
    assert list(tmp_path.iterdir()) == []


@needs_atheris
def test_a_broken_decoder_is_found_and_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = fuzz("--seconds", "60", "--found", str(tmp_path), "--broken")
    [file] = tmp_path.iterdir()
    assert run.returncode == 1
    assert any(f"{kind.__name__}: " in run.stdout for kind in (OutsideError, DisagreementError))
    assert f"make fuzz ARGS={file}\n" in run.stdout
    assert main([str(file), "--broken"]) == 1
    assert str(Input.of(file.read_bytes())) in capsys.readouterr().out
    assert main([str(file)]) == 0
    assert capsys.readouterr().out == "fuzz: 1 inputs run again, 0 of them bad\n"


def test_a_read_behind_the_end_raises_in_plain_python() -> None:
    good = plain()
    Harness(good, good).run(CUT)
    with pytest.raises(OutsideError, match="byte 18 of 18 was read"):
        Harness(plain(PLAIN | BROKEN), good).run(CUT)


def test_bytes_behind_the_end_may_have_no_say() -> None:
    good, broken = plain(), plain({"siphash": lambda _: siphash} | BROKEN)
    with pytest.raises(DisagreementError, match=r"real, among b'\\x00', build fills other columns"):
        Harness(good, good, broken).run(CUT)


def test_what_all_builds_get_wrong_the_twin_finds() -> None:
    blind: dict[str, Change] = {"is_utf8": lambda _: lambda *_: True}
    unreadable = Input([CLICK + b"\x12\x01\xff"], 0).to_bytes()
    good, bad, real = plain(), plain(PLAIN | blind), plain({"siphash": lambda _: siphash} | blind)
    Harness(good, good).run(unreadable)
    with pytest.raises(DisagreementError, match="the twin has another row 0"):
        Harness(bad, bad, real).run(unreadable)


def test_a_field_number_0_is_refused_where_protobuf_takes_it() -> None:
    good = plain()
    for kind in (b"\x72", b"\x82\x01"):  # erase and tick, which know no field
        event = CLICK + kind + b"\x02\x00\x05"
        assert Event.FromString(event).WhichOneof("kind") != "click"
        Harness(good, good).run(Input([event, event + CLICK], 0).to_bytes())


def test_the_checked_build_checks() -> None:
    build = checked().module
    three, zero = np.zeros(3, np.uint8), np.uint64(0)
    assert build.siphash is not siphash
    with pytest.raises(IndexError):
        build.span(three[:0], 0, 1)
    for end in (8, 11):
        with pytest.raises(IndexError):
            build.siphash(zero, zero, three, 0, end)
    with pytest.raises(IndexError):
        build.murmur2_of(three, 0, 4)


def test_builds_share_no_kernel() -> None:
    assert not any(hasattr(value, "py_func") for value in vars(columns).values())  # the one module that they share
    assert not any(hasattr(value, "py_func") for value in vars(plain().module).values())


def test_any_bytes_are_an_input() -> None:
    assert Input.of(b"") == Input([b""], 0)
    assert Input.of(b"\x01") == Input([b""], 0)
    assert Input.of(b"\x01\xff") == Input([b"", b""], 0)
    assert Input.of(b"\x05\x02\x01abcdef") == Input([b"ab", b"c", b"def"], 1)
    for seed in seeds():
        assert Input.of(seed.to_bytes()) == seed
        assert len(seed.to_bytes()) <= INPUT_MAX
