"""What a micro-batch did, counted: one index per thing that can happen, so that nothing is dropped in silence."""

import numpy as np

from saros.core.jit import I64

NAMES = (
    # what came in, by kind
    "impressions", "clicks", "negatives", "positives", "erases", "ticks",
    # what did not reach a session, or came at an odd time
    "bots", "duplicates", "late", "ahead",
    # pending sets: shown items, clicks, and how they left without a block
    "shown", "shown_again", "shown_clicked", "negatives_clicked", "negatives_capped", "negatives_expired",
    "negatives_erased", "carried", "carried_again", "carried_capped", "carried_expired", "carried_erased",
    "carried_retracted", "clicked_capped", "clicks_alone",
    # sessions and blocks
    "sessions_ended", "users_expired", "blocks", "block_negatives", "block_positives",
    # the gate's word on each block
    "learned", "waited", "held", "over", "ledger_full", "repeat", "items_full",
    # what became of the ledgers
    "released", "crossed", "taken_back", "vested", "waiting_expired", "waiting_dropped", "repeat_clicks",
    # the step
    "clamped", "non_finite", "far",
)  # fmt: skip

(
    IMPRESSIONS, CLICKS, NEGATIVES, POSITIVES, ERASES, TICKS,
    BOTS, DUPLICATES, LATE, AHEAD,
    SHOWN, SHOWN_AGAIN, SHOWN_CLICKED, NEGATIVES_CLICKED, NEGATIVES_CAPPED, NEGATIVES_EXPIRED,
    NEGATIVES_ERASED, CARRIED, CARRIED_AGAIN, CARRIED_CAPPED, CARRIED_EXPIRED, CARRIED_ERASED,
    CARRIED_RETRACTED, CLICKED_CAPPED, CLICKS_ALONE,
    SESSIONS_ENDED, USERS_EXPIRED, BLOCKS, BLOCK_NEGATIVES, BLOCK_POSITIVES,
    LEARNED, WAITED, HELD, OVER, LEDGER_FULL, REPEAT, ITEMS_FULL,
    RELEASED, CROSSED, TAKEN_BACK, VESTED, WAITING_EXPIRED, WAITING_DROPPED, REPEAT_CLICKS,
    CLAMPED, NON_FINITE, FAR,
) = range(len(NAMES))  # fmt: skip


def zeros() -> I64:
    """Return a fresh row of counters."""
    return np.zeros(len(NAMES), np.int64)


def named(counts: I64) -> dict[str, int]:
    """Return the counters by name."""
    return {name: int(count) for name, count in zip(NAMES, counts, strict=True)}
