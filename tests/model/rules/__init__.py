"""The rules of the commit protocol, by number: what each says, and what is done instead where it is left out.

Invariant: with all of them no schedule violates the oracle, and with any one left out alone some schedule does.
Processes ask `world.rule("first wins")`, which is false where that rule is left out.
"""

from tests.model.rules.commit import COMMIT
from tests.model.rules.rebase import REBASE
from tests.model.rules.release import RELEASE
from tests.model.rules.rule import Rule

__all__ = ["RULES", "Rule"]

# Their numbers are their places: a new rule goes to the end.
RULES: dict[int, Rule] = dict(enumerate(COMMIT + RELEASE + REBASE, start=1))
