"""Bots that promote films which nobody likes: each shows itself some films and clicks one of the promoted, on and on.

They never stop and never leave, so each passes B; then what it taught is taken back. Pure, as `saros.lab.people` is.
"""

from typing import NamedTuple

import numpy as np

from saros.lab.people import I64, World, draws

TARGETS = 10
AROUND = 5  # films that are shown beside the promoted one and passed over
BLOCK_EVENTS = 2  # an impression and a click
BLOCKS_S = 1.0  # that a bot closes in a second: a B of 50 is passed within a minute
SHARE_MAX = 0.2  # of all events, however many bots there are
_AROUND = 200


class Block(NamedTuple):
    """What a bot does at a time: it shows itself films, and clicks the last of them."""

    bot: int
    films: list[int]


def bot_id(bot: int) -> str:
    """Return what a bot is called in events."""
    return f"bot-{bot}"


def events_a_second(bots: int, rate: float) -> float:
    """Return how many of the events are theirs."""
    return min(SHARE_MAX * rate, bots * BLOCKS_S * BLOCK_EVENTS)


class Gang:
    """Bots that take turns."""

    def __init__(self, world: World, bots: int) -> None:
        self._world, self.bots, self.blocks = world, bots, 0
        self.targets: I64 = world.poorest(min(TARGETS, world.films // 2))

    def next(self, count: int) -> list[Block]:
        """Return so many blocks, each of the bot whose turn it is."""
        made = []
        for block in range(self.blocks, self.blocks + count):
            turn, bot = divmod(block, self.bots)
            keys = draws(self._world.seed, _AROUND, bot, turn, np.arange(self._world.films))
            keys[self.targets] = 2.0
            around = np.argsort(keys)[: min(AROUND, self._world.films - len(self.targets))]
            made.append(Block(bot, [*around.tolist(), int(self.targets[turn % len(self.targets)])]))
        self.blocks += count
        return made
