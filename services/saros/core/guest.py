"""A row for a guest: the steps that the clicks of its session would take from the start row. Items stay where they are.

It is the step itself (`saros.core.step`), with blocks that move the user's row and add nothing. Each click closes a
block against what was passed over since the click before. Where nothing was, its only opponent is the step's virtual
negative; without one (the paper's step) such a click says nothing.
"""

from collections.abc import Sequence

import numpy as np

from saros.core import counts
from saros.core.events import WEIGHT_ONE
from saros.core.gate import DECISIONS
from saros.core.items import Items
from saros.core.jit import F32, U64
from saros.core.ledger import NIL, Ledger
from saros.core.scoring import PROGRESSIVE, scratch
from saros.core.settle import MOVE, RESET, Blocks
from saros.core.step import StepRules, Work, step
from saros.core.users import Users

EVENTS_MAX = 256  # in a session
NEGATIVES_MAX = 64  # in a block; the oldest go


class Guest:
    """Room for one guest at a time."""

    def __init__(self, items: Items, rules: StepRules) -> None:
        self.items, self.rules = items, rules
        self._users = Users(items.rules, negatives_max=1, carried_max=1, clicked_max=1, limit=1, evict=False)
        self._users.intern(np.zeros(1, np.uint64))
        self._ledger = Ledger(items.rules.dim, 1)
        self._scratch = scratch(NEGATIVES_MAX + 1, items.rules.dim)

    def row(self, items: U64, clicked: Sequence[bool], passes: int = 1) -> F32:
        """Return the row (float32[d]) of a guest who clicked these items, or saw and passed over them, in this order.

        Items are keys; those that the item table does not know count as new. `passes` goes over the session more often.
        """
        if len(items) != len(clicked) or len(items) > EVENTS_MAX or passes < 1:
            raise ValueError(f"a session has at most {EVENTS_MAX} items, a kind for each, and one pass or more")
        blocks = [
            block
            for block in session_blocks([int(item) for item in items], clicked)
            if len(block) > 1 or self.rules.opponent > 0
        ]
        self._step(passes * blocks)
        return self._users.arrays.rows[0].copy()

    def _step(self, sets: Sequence[Sequence[int]]) -> None:
        """Let the row start anew, and take a step for each block, whose last item was clicked."""
        sizes = [len(block) for block in sets]
        blocks = Blocks.empty(1 + len(sets), sum(sizes), self.items.rules.dim)
        blocks.flags[0], blocks.flags[1:] = RESET, MOVE
        blocks.entry[:] = NIL
        blocks.start[1:] = np.cumsum([0, *sizes])[:-1]
        blocks.negatives[1:] = np.array(sizes, np.int32) - 1
        blocks.positives[1:] = 1
        blocks.items[:] = np.array([item for block in sets for item in block], np.uint64)
        blocks.slots[:] = self.items.table.find(blocks.items)
        blocks.weights[:] = WEIGHT_ONE
        step(
            Work(
                users=self._users.arrays,
                items=self.items.arrays,
                ledger=self._ledger.arrays,
                blocks=blocks,
                signed=blocks.signed(),
                rules=self.rules,
                rows=self.items.rules,
                scratch=self._scratch,
                progressive=np.zeros((len(DECISIONS), len(PROGRESSIVE))),
                counts=counts.zeros(),
            )
        )


def session_blocks(items: Sequence[int], clicked: Sequence[bool]) -> list[list[int]]:
    """Return a block for each click: what was passed over since the one before, then what was clicked.

    As in a user's session, what was clicked before is not passed over, and nothing is twice.
    """
    blocks: list[list[int]] = []
    passed: list[int] = []
    seen: set[int] = set()
    for item, click in zip(items, clicked, strict=True):
        if click:
            seen.add(item)
            blocks.append([*[other for other in passed if other != item][-NEGATIVES_MAX:], item])
            passed = []
        elif item not in seen and item not in passed:
            passed.append(item)
    return blocks
