"""Run the model check and print what came of it: python -m tests.model [runs] [seed].

Exit codes: 0 the protocol has no violation and every rule is needed, 1 not so.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence

from tests.model.rules import RULES, Rule
from tests.model.run import ALL_FAULTS, Count, count

ENOUGH = 5  # violations that show that a rule is needed
RUNS_OF_A_RULE = 10_000
WIDTH = 62
# From nothing to everything, so that a violation is seen with as few faults as it takes.
FAULT_SETS = tuple(ALL_FAULTS[:length] for length in (0, 3, 4, 5, 8, 9))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _line(title: str, found: Count) -> str:
    return f"{title:{WIDTH}}{found.violations:5} / {found.runs:<7}{found.kinds}".rstrip()


def _title(faults: Sequence[str]) -> str:
    missing = [fault for fault in ALL_FAULTS if fault not in faults]
    if len(missing) > 1:
        return ", ".join(faults) or "none"
    return f"all but {missing[0]}" if missing else "all"


def check_protocol(runs: int, seed: int, fault_sets: Iterable[Sequence[str]] = FAULT_SETS) -> bool:
    """Print how often the protocol is violated; whether it never is."""
    sound = True
    _say(f"{'the protocol, with faults':{WIDTH}}violations / runs")
    for faults in fault_sets:
        found = count(range(seed, seed + runs), faults)
        sound = sound and found.violations == 0
        _say(_line(_title(faults), found))
    return sound


def check_rules(runs: int, seed: int, rules: Iterable[tuple[int, Rule]] = RULES.items()) -> bool:
    """Print how often it is violated with one rule left out; whether each of them is needed."""
    needed = True
    _say(f"{f'all faults, one rule left out (until {ENOUGH} violations)':{WIDTH}}violations / runs")
    for number, rule in rules:
        found = count(range(seed, seed + runs), ALL_FAULTS, rule.name, ENOUGH)
        needed = needed and found.violations > 0
        _say(_line(f"{number:2} {rule.name}: {rule.instead}", found))
    return needed


def main(given: Sequence[str]) -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description="Check the commit protocol.")
    parser.add_argument("runs", nargs="?", type=int, default=1000, help="schedules for each set of faults")
    parser.add_argument("seed", nargs="?", type=int, default=0, help="of the first schedule")
    arguments = parser.parse_args(given)
    sound = check_protocol(arguments.runs, arguments.seed)
    _say("")
    needed = check_rules(max(arguments.runs, RUNS_OF_A_RULE), arguments.seed)
    return 0 if sound and needed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
