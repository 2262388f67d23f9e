"""What the lab's commands share: options, and how flags and settings become a plan.

What a command line flag and a setting both say is one thing, and the flag wins. Numba is imported by what a command
does, not by this module: `saros --help` must not wait for it.
"""

import math
import os
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from saros.console import complain, progress
from saros.errors import InputError, Problem, SettingsError
from saros.settings import Settings, load

if TYPE_CHECKING:
    from saros.lab.log import Log, ToRank
    from saros.lab.passes import PassRules
    from saros.lab.replay import Plan

_BAD_LINES_SHOWN = 10

Rule = Literal["click", "algorithm", "authors"]
Source = Annotated[str, typer.Argument(metavar="DATA", help="ml-1m, ml-100k, a file, or - for standard input.")]
RuleOption = Annotated[Rule, typer.Option(help="When a block closes.")]
Gate = Annotated[
    str,
    typer.Option(metavar="default|B|none", help="default = the settings' gate; B = so many blocks; none = no gate."),
]
Partitions = Annotated[int, typer.Option(min=1, max=1024, help="Partitions, each with a gate of its own.")]
Seed = Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of rows and of the hash key.")]
PositiveFrom = Annotated[float, typer.Option(help="Ratings from here on are clicks, lower ones negatives.")]
Dim = Annotated[int, typer.Option(min=2, max=512, help="Coordinates of a row.")]


class Flags(NamedTuple):
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
                prior=settings.step.prior_strength,
            )
        both = {"lr_user": self.lr, "lr_item": self.lr, "mu_user": self.mu, "mu_item": self.mu}
        own = {"lr_user": self.lr_user, "lr_item": self.lr_item}
        given = [(name, value) for flags in (both, own) for name, value in flags.items() if value is not None]
        return rules._replace(**dict(given))


def plan_of(
    log: "Log", settings: Settings, flags: Flags, rule: Rule, partitions: int, *, rating_gap_ms: int = 0
) -> "Plan":
    """Return how to learn this log; a session of ratings ends after so long a gap, or never."""
    from saros.core.gate import SESSION
    from saros.core.rows import live_rows, paper_rows
    from saros.core.sessions import RULES
    from saros.lab.replay import NO_GATE, RATING_SESSIONS, Plan

    session = settings.session.rules() if log.sessions else RATING_SESSIONS._replace(gap_ms=rating_gap_ms)
    gate = NO_GATE if flags.gate == "none" else settings.gate.rules()
    if gate.mode == SESSION and session.gap_ms == 0:
        raise InputError(
            "rating data has no sessions, which SAROS_GATE__MODE=session waits for", "set SAROS_GATE__MODE=immediate"
        )
    rows = (live_rows if flags.step == "live" else paper_rows)(flags.dim, flags.seed)
    return Plan(rows, settings.step.rules(), session._replace(rule=RULES[rule]), gate, partitions)


def split_log(log: "Log", source: str) -> tuple["Log", "ToRank", int]:
    """Return the train part, what there is to rank in the test part, and how many events that has."""
    from saros.lab.log import items_to_rank, split

    train, test = split(log)
    if not len(train.user) or not len(test.user):
        raise InputError(f"{source} has too few events to split", "give users with at least two events each")
    return train, items_to_rank(test), len(test.user)


def read_log(source: str, positive_from: float) -> "Log":
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
