"""Rules 37 to 55: the redo topic is lost as a whole, and `saros rebase` lets the store go on with a new log.

The topic is there again, empty and with another id, and what was on its way may still land in it. The input is kept.
A run of rebase goes over all shards, may end at any step, and is run again, perhaps while another still runs:

1. it reads log and mark of every shard, then the id of the redo topic; if all are on that topic's log, it is done;
2. it marks every shard that is not on that topic's log, naming the topic;
3. unless redo partition 0 holds a genesis for this topic: it reads all fences, decides, and sends a genesis;
4. with the first genesis there it goes over the shards that are still marked: ledgers page by page if they are to be
   cleared, then genesis, fences and vector, and the mark goes.
"""

from tests.model.rules.rule import Rule

READERS = (
    Rule(
        "log id",
        "Every record carries the id of its log; one of another log is ignored by everybody, wherever it lands.",
        "records carry none",
    ),
    Rule(
        "fence log",
        "Every fence carries it, too: who finds a fence of another log stops, and no compare-and-swap takes one log's "
        "fence for another's.",
        "fences carry none",
    ),
    Rule(
        "lost log",
        "A process remembers the id of the redo topic from before it read the store. When it has read from the log and "
        "is about to write to the store, and every now and then, it makes sure that the id is still the same; else it "
        "stops. (A place beyond the log's end stops it, too; but a new log may have outgrown any place.)",
        "only a place beyond the end is noticed",
    ),
    Rule(
        "boot log",
        "It boots only from shards that are all on one log, the one for this topic: every shard holds its genesis, "
        "and that the id of its topic.",
        "each shard is taken as it is found",
    ),
)

OTHER_JOBS = (
    Rule(
        "snapshot log",
        "A snapshot is of one log: it is given up when it meets another, and is restored only into a shard that is "
        "on its log.",
        "any snapshot is kept and restored",
    ),
    Rule(
        "snapshot exact",
        "A snapshot is brought to the highest fence seen, with the records of redo above the lowest (26): it is the "
        "state of one fence, and a restore needs no log to become so.",
        "it stays at the lowest fence",
    ),
    Rule(
        "trim log",
        "Redo is trimmed only while all shards are on its log, and no other log's fence counts (5).",
        "fences of any log count",
    ),
)

RUN = (
    Rule(
        "rebase mark",
        "No fence is read before all shards are marked; the mark fails what that of a restore fails (28). A shard that "
        "is being restored is not marked.",
        "fences are read while others write",
    ),
    Rule(
        "mark cas",
        "Log and mark of a shard are read before the topic's id, and it is marked only if they are still the same.",
        "marked whatever log it is on",
    ),
    Rule(
        "rebase durable",
        "The mark is durable before the fences are read, and the new fences before the run ends.",
        "marks and fences may be lost",
    ),
    Rule(
        "user start",
        "The input of a partition goes on at the next of its user fence.",
        "at the lowest next of the vectors",
    ),
    Rule(
        "first genesis",
        "The first genesis for this topic in redo partition 0 decides log id, starts and clearing, for every run.",
        "each run decides by itself",
    ),
    Rule(
        "genesis topic",
        "A genesis names the topic it was made for, and is none in another.",
        "it counts wherever it lands",
    ),
    Rule(
        "finish cas",
        "A marked shard is changed only while it has the mark for this topic.",
        "changed whatever its mark",
    ),
    Rule(
        "ledgers cleared",
        "Unless every vector is at the records of the user fences (next, nonce and log are the same; the offset may "
        "be that of a rejected record) what was added leaves all ledgers, since the items may not hold it;",
        "ledgers are kept anyway",
    ),
    Rule(
        "ledgers kept",
        "... else all stay as they are,",
        "ledgers are cleared anyway",
    ),
    Rule(
        "waiting kept",
        "... and what waits stays always: it is of the user fence alone.",
        "what waits is cleared, too",
    ),
    Rule(
        "fences last",
        "A shard's mark goes in the write that sets genesis, fences and vector, when its ledgers are done,",
        "fences first, ledgers later",
    ),
    Rule(
        "rebase pages",
        "... and the pages of ledgers done are counted in the mark, as in a restore (29).",
        "goes on from its own count",
    ),
)

REBASE = READERS + OTHER_JOBS + RUN
