"""Kernels that others compiled: used where they cannot be written, and refused where they cannot run."""

import os
import runpy
import shutil
from pathlib import Path

import llvmlite.binding as llvm
import pytest

import saros
from saros.errors import InputError
from saros.kernels import warm

HAS_ALL = dict.fromkeys(("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"), True)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Saros where this user cannot write; its root knows where kernels are."""
    package = shutil.copytree(Path(saros.__file__).parent, tmp_path / "saros", ignore=shutil.ignore_patterns("__pyc*"))
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: package not in Path(path).parents and real(path, mode))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return package


def cache_of(package: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where kernels are kept by a Saros that is imported now."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    runpy.run_path(str(package / "__init__.py"))
    return Path(os.environ["NUMBA_CACHE_DIR"])


def test_kernels_that_came_with_the_package_are_linked_to_where_they_can_be_written(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = cache_of(installed, monkeypatch)
    assert empty.parent == tmp_path / "cache" / "saros"
    assert not empty.exists(), "nothing came with it"

    came = installed / "core" / "__pycache__" / empty.name / "core_1234"
    came.mkdir(parents=True)
    (came / "step.nbc").write_bytes(b"machine code")
    cache = cache_of(installed, monkeypatch)
    assert cache == empty
    linked = cache / "core_1234" / "step.nbc"
    assert linked.read_bytes() == b"machine code"
    assert list(cache.parent.iterdir()) == [cache], "nothing half done is left"

    (cache / "new").write_bytes(b"more code")
    os.replace(cache / "new", linked)  # as numba writes
    assert cache_of(installed, monkeypatch) == cache
    assert linked.read_bytes() == b"more code", "what was compiled here stays"
    assert (came / "step.nbc").read_bytes() == b"machine code"


def test_nothing_that_can_be_written_is_no_error_of_ours(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (installed / "core" / "__pycache__" / cache_of(installed, monkeypatch).name).mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", os.devnull)
    assert not cache_of(installed, monkeypatch).exists()


def test_kernels_that_this_cpu_cannot_run_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CPU_NAME", "x86-64-v3")
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: HAS_ALL | {"avx2": False, "fma": False})
    with pytest.raises(InputError, match="no x86-64-v3, for which the kernels are compiled: it has no avx2, fma"):
        warm()
