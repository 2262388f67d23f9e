"""Rules 1 to 29: the log, items, users, ledgers, snapshots."""

from tests.model.rules.rule import Rule

LOG = (
    Rule(
        "first wins",
        "A record covers input [first, end), gaps included. Every reader judges it in log order: it is accepted iff "
        "first == next, and then next = end. All others are ignored by everybody.",
        "every record is accepted",
    ),
    Rule(
        "parent",
        "A record names the record on whose state it was computed, by nonce; it is accepted only if that one is the "
        "last accepted record of the partition.",
        "only the range decides",
    ),
    Rule(
        "nonce",
        "A trainer recognises its own records by their nonce, not by their range.",
        "own records are recognised by range",
    ),
    Rule(
        "fence next",
        "A fence is (redo offset, next, nonce of the last accepted record), stored, never derived from the record at "
        "that offset, which may be one that was rejected.",
        "derived from the record at the offset",
    ),
    Rule(
        "trim",
        "Redo is trimmed only below the fences of every kept snapshot and of every state a shard may still fall back "
        "to. A snapshot counts until a newer one of its shard is complete.",
        "trimmed below the fences of the moment",
    ),
    Rule(
        "trimmed",
        "A follower whose next redo offset is trimmed boots again from Redis; it never skips ahead.",
        "goes on at the lowest offset kept",
    ),
)

# Every trainer and API process: base = fold of all partitions.
ITEM = (
    Rule(
        "atomic boot",
        "Rows and vector of a shard are read in one atomic call, the shards at different times; a record is folded "
        "into the rows of a shard only if it lies above the vector read with them.",
        "the vector is read before the rows",
    ),
    Rule(
        "work",
        "work = base + own records in flight; after a rejection or a delivery error, work := base.",
        "work keeps what was rejected",
    ),
    Rule(
        "drain",
        "... but only when no own record of any partition is in flight any more; none is sent meanwhile.",
        "work := base with records in flight",
    ),
    Rule(
        "vector cas",
        "Shard s is written by the owner of partition s mod P: absolute rows and the vector of fences, by "
        "compare-and-swap on the vector read before. It need not wait for the answer.",
        "written unconditionally",
    ),
    Rule(
        "catch up",
        "Before writing, the writer folds up to the stored vector: a vector never goes back,",
        "the stored vector is not waited for",
    ),
    Rule(
        "boot fence",
        "... and up to the vector it booted that shard from.",
        "the boot vector is not waited for",
    ),
    Rule(
        "whole shard",
        "If the stored vector is not the one it wrote last, it writes all rows of the shard.",
        "only changed rows are written",
    ),
)

# Partition p is in shard p mod S, with one fence per partition.
USER = (
    Rule(
        "user cas",
        "Accepted records are flushed in log order, one by one or several as one, by compare-and-swap on the fence. "
        "The owner need not wait for the answer; until it has it, the fence is that of before.",
        "written unconditionally",
    ),
    Rule(
        "flush all",
        "The owner flushes every accepted record of its partitions, whoever wrote it.",
        "only own records are flushed",
    ),
    Rule(
        "fenced read",
        "A read returns the fence in the same atomic call; unless it is the expected one, the reader flushes "
        "everything accepted and reads again.",
        "the fence is not looked at",
    ),
    Rule(
        "expect",
        "The expected fence is the highest one it has flushed or met; it never goes back.",
        "expects whatever was flushed last",
    ),
    Rule(
        "dirty",
        "A user touched by a record in flight, or accepted and not yet flushed, is not evicted.",
        "any user may be evicted",
    ),
    Rule(
        "drop users",
        "After a rejection, a delivery error or a rebalance all cached users of the partition are dropped,",
        "the cache is kept",
    ),
    Rule(
        "foreign",
        "... also when a record is accepted in an owned partition that is not one of the own in flight.",
        "the cache is kept",
    ),
    Rule(
        "reload flush",
        "After dropping, everything accepted is flushed before the first read.",
        "reads at the fence expected so far",
    ),
)

# The blocks a user added or that wait, stored with the user.
LEDGER = (
    Rule(
        "ledger fence",
        "It is changed in the same atomic write as the user's row and the fence.",
        "written after the user, separately",
    ),
    Rule(
        "ledger keys",
        "It is keyed by block number: writing a block twice is the same as once.",
        "blocks are appended to a list",
    ),
    Rule(
        "take-back",
        "A micro-batch in which a user passes B or is erased carries its ledger negated, as the record before it left "
        "it: what the store has under a fence, and on it what every record behind that fence changed, in flight or "
        "not. It adds none of the user's blocks up to that event, and clears the ledger.",
        "takes what the store has",
    ),
    Rule(
        "fenced ledger",
        "The ledger is read like a user (16).",
        "the fence is not looked at",
    ),
)

# One per shard: rows, vector and user fences in one atomic copy, users and ledgers key by key later.
SNAPSHOT = (
    Rule(
        "snapshot fence",
        "Every key is read together with its fence; the snapshot's fence is the lowest one seen.",
        "the first fence is kept",
    ),
    Rule(
        "snapshot kept",
        "A finished snapshot with a fence below what the log still holds is thrown away, the older one stays. (A "
        "shard may have fallen back below an older snapshot of itself.)",
        "it replaces the older one anyway",
    ),
    Rule(
        "restore mark",
        "A restore first replaces all fences by a mark that fails every compare-and-swap and every fenced read, and "
        "writes the snapshot's fences and vector last,",
        "the fences are restored first",
    ),
    Rule(
        "restore pages",
        "... counting in the mark, in the same atomic write, the pages written; it goes on from the count found "
        "there, not from its own. It ends when the result is durable.",
        "goes on from its own count",
    ),
)

COMMIT = LOG + ITEM + USER + LEDGER + SNAPSHOT
