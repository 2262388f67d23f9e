"""Saros: a streaming online-learning recommender."""

import hashlib
import os
from pathlib import Path

__version__ = "0.1.0"


def _kernel_cache() -> str:
    """Return where compiled kernels are kept: a directory named after the digest of all source that shares kernels.

    Numba looks only at the file a kernel stands in. A change in a function that the kernel inlined from another file
    would go unnoticed, and old machine code would run.
    """
    package = Path(__file__).parent
    core, digest = package / "core", hashlib.sha256()
    for source in [*sorted(core.glob("*.py")), *sorted((package / "wire").glob("*.py"))]:
        digest.update(source.read_bytes())
    home = core / "__pycache__"
    if not os.access(core, os.W_OK):
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "saros"
    return str(home / f"kernels-{digest.hexdigest()[:16]}")


os.environ.setdefault("NUMBA_CACHE_DIR", _kernel_cache())
