"""Pictures, drawn by matplotlib where it is installed (the extra `plot`)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from saros.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from saros.lab.attack import Trial

_COLOURS = ("#bbbbbb", "#1f6f8b", "#d1495b", "#edae49")  # of up to four gates
_FIRST_HOURS = 0.01  # where the hours of an attack begin


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
    _save(figure, path)


def plot_attacks(path: Path, title: str, trials: Sequence["Trial"]) -> None:
    """Draw, attack by attack, the share of honest users reached against hours, a line for each gate."""
    from matplotlib.figure import Figure

    attacks = list(dict.fromkeys(trial.attack for trial in trials))
    modes = list(dict.fromkeys(trial.mode for trial in trials))
    figure = Figure(figsize=(7.5, 1.2 + 1.8 * len(attacks)), layout="constrained")
    panels = figure.subplots(len(attacks), sharex=True, squeeze=False)[:, 0]
    for attack, axes in zip(attacks, panels, strict=True):
        for trial in (trial for trial in trials if trial.attack == attack):
            learns, place = trial.repeat_clicks == "learn", modes.index(trial.mode)
            hours, shares = zip(*trial.curve, strict=True)
            axes.plot(
                hours,
                shares,
                color=_COLOURS[place],
                linestyle="-" if learns else "--",
                linewidth=4 - place,  # where lines lie upon each other, those below still show
                label=trial.mode + ("" if learns else ", repeats ignored"),
            )
        axes.set(title=attack, ylabel="users reached", ylim=(-0.05, 1.05), xscale="log", xlim=(_FIRST_HOURS, None))
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("hours since the first bot")
    figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, ncols=2, loc="outside lower center")
    figure.suptitle(f"{title}: honest users with a promoted item in their top 10")
    _save(figure, path)


def _save(figure: "Figure", path: Path) -> None:
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise InputError(f"--plot {path} cannot be written: {error.strerror}", "name another file") from error
