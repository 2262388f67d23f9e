"""Rules 30 to 36: blocks of users below b wait in the ledger with sign 0, and are added when b is reached."""

from tests.model.rules.rule import Rule

RELEASE = (
    Rule(
        "waiting read",
        "Blocks that wait are read with their user, in the same fenced atomic call (16).",
        "read after the user, no fence looked at",
    ),
    Rule(
        "waiting cached",
        "They are cached with their user, those of records in flight included, and a release takes them from there.",
        "read from the store for each batch",
    ),
    Rule(
        "waiting fence",
        "A record carries the blocks that begin to wait, and they are written with the user and the fence (22).",
        "written after the user, separately",
    ),
    Rule(
        "released once",
        "The record in which a user reaches b adds all that waits, in order, with coefficients of that moment; from "
        "then on nothing waits.",
        "they stay in the cache",
    ),
    Rule(
        "released over",
        "In the ledger a released block takes the place of the waiting one, by block number (23).",
        "put beside the waiting one",
    ),
    Rule(
        "waiting sign",
        "A take-back (24) negates what was added, and only that.",
        "what waits is negated, too",
    ),
    Rule(
        "waiting ended",
        "For a user that passes B or is erased nothing waits any more: it leaves the ledger with what was added (24).",
        "it stays in ledger and cache",
    ),
)
