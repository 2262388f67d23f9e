"""All kernels of the service, compiled once on a machine.

Compiling takes a minute or two, loading what was compiled a second. Whoever comes while another process compiles waits
for it and loads what it made: two that compile the same take each other's time. A file beside the kernels is locked
meanwhile, and says how far it is. Where it cannot be written nobody waits. A compiler uses one core, so a child
compiles at the same time what learning has no part in.
"""

import fcntl
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import IO

from saros import children
from saros.errors import InputError

STAGES = 8  # those of the core, and the wire
_LOOK_S = 0.1
# What a CPU must have to be called that, in LLVM's words.
_LEVELS = {"x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")}

Told = Callable[[int, str], None]  # how many stages are done, and what is under way


def warm(told: Told = lambda done, what: None) -> None:
    """Compile all kernels, or load them. What `told` raises, between stages or while it waits, ends it."""
    _check_cpu()
    with _turn(told) as note, _beside(needed=note is _note):
        # Here and not above: numba takes its time, and who only asks `is_whole` should not pay for it.
        from saros.core.warm import STAGES as CORE
        from saros.core.warm import warm as warm_core

        core, names = warm_core(), (*CORE, "wire")
        assert len(names) == STAGES, "one is told of each"
        for done, name in enumerate(names):
            note(f"{done} {name}")
            told(done, name)
            if name in CORE:
                next(core)
            else:
                _warm_wire()
        note(_whole())


def warm_aside() -> None:
    """Compile what can be compiled without that which learns."""
    from saros.core.warm import warm_serving

    _warm_wire()
    warm_serving()


def _warm_wire() -> None:
    from saros.wire.coalesce import warm as warm_operations
    from saros.wire.decode import warm as warm_decoder
    from saros.wire.split import warm as warm_split

    warm_decoder()
    warm_operations()
    warm_split()


@contextmanager
def _beside(*, needed: bool) -> Iterator[None]:
    """Let a child compile, too; whatever becomes of it, we go through all stages ourselves, and load what it made."""
    if not needed:
        yield
        return
    with open(os.devnull, "wb") as nowhere:
        child = children.start([sys.executable, "-c", f"from {__name__} import warm_aside; warm_aside()"], nowhere)
    try:
        yield
    finally:
        children.end(child, None, 0)


def is_whole() -> bool:
    """True if all kernels were compiled here before, so that they will be loaded. (By a CPU like this one, we hope.)"""
    return _read() == _whole()


def _check_cpu() -> None:
    """Refuse kernels, those in an image for one, that this CPU cannot run: the first would end us without a word."""
    name = os.environ.get("NUMBA_CPU_NAME", "")
    if name in _LEVELS:
        import llvmlite.binding as llvm

        found = llvm.get_host_cpu_features()
        if missing := [feature for feature in _LEVELS[name] if not found.get(feature)]:
            raise InputError(
                f"this CPU is no {name}, for which the kernels are compiled: it has no {', '.join(missing)}",
                "set NUMBA_CPU_NAME=generic to compile them here, or build the image with --build-arg CPU=generic",
            )


def _whole() -> str:
    """Return what the file says when all is done: whose kernels they are."""
    return f"whole {platform.python_version()} {version('numba')}"


@contextmanager
def _turn(told: Told) -> Iterator[Callable[[str], None]]:
    """Have the lock, or wait until whoever had it is done; yield how to note how far we are."""
    try:
        _file().parent.mkdir(parents=True, exist_ok=True)
        lock = _file().open("a+")
    except OSError:
        yield lambda text: None
        return
    with lock:
        first = _is_free(lock, fcntl.LOCK_EX)
        # Those that waited load what there is at the same time: nobody needs to be the only one for that.
        while not (first or _is_free(lock, fcntl.LOCK_SH)):
            done, _, name = _read().partition(" ")
            told(*((int(done), name) if done.isdigit() else (0, "another process has begun")))
            time.sleep(_LOOK_S)
        yield _note if first and not is_whole() else lambda text: None


def _is_free(lock: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError:  # a disk that knows no locks
        return True


def _file() -> Path:
    return Path(os.environ["NUMBA_CACHE_DIR"]) / "progress"


def _read() -> str:
    with suppress(OSError):
        return _file().read_text()
    return ""


def _note(text: str) -> None:
    """Say how far we are. Readers may find nothing for a moment."""
    _file().write_text(text)
