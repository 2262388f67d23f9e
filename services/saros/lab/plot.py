"""Pictures, drawn by matplotlib where it is installed (the extra `plot`)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from saros.errors import InputError


def check_plot(path: Path) -> None:
    """Raise InputError unless a picture can be drawn into this file; called before any work is done."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("matplotlib is not installed, and --plot needs it", "pip install 'saros[plot]'") from None
    known = sorted(Figure().canvas.get_supported_filetypes())
    if path.suffix[1:].lower() not in known:
        raise InputError(
            f"--plot {path} does not say what kind of picture", f"end the name in one of {', '.join(known)}"
        )
    if not path.absolute().parent.is_dir():
        raise InputError(f"the folder of --plot {path} does not exist", "make it first, or name another")


def plot_loss(path: Path, title: str, curve: Sequence[tuple[float, float]], levels: Mapping[str, float]) -> None:
    """Draw test loss against seconds of training, with the losses of others as level lines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    seconds, losses = zip(*curve, strict=True)
    axes.plot(seconds, losses, color="#1f6f8b", linewidth=2, label="Saros")
    for k, (name, loss) in enumerate(levels.items()):
        axes.axhline(
            loss, color="#888888", linewidth=1, linestyle=("--", ":", "-.")[k % 3], label=f"{name}: {loss:.3f}"
        )
    axes.set(xlabel="training, seconds", ylabel="test loss (Eq. 1)", title=title, xlim=(0, None))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise InputError(f"--plot {path} cannot be written: {error.strerror}", "name another file") from error
