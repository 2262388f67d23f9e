"""A model check of the commit protocol: random schedules of small processes, with every fault, against an oracle.

    python -m tests.model [runs] [seed]

The input (partitioned by user) is learned by trainers; every micro-batch of one input partition becomes one record of
the same partition of redo, the model's log. The log keeps what it acknowledged, until all of it is lost at once. Redis
is only a fold of the log, in shards that may each fall back at any time. A user's events are numbered blocks, and a
block adds contributions to items: none of a user with fewer than b blocks, all of a user with b to B, none of a user
with more. An erased user contributes nothing and starts anew.

What is where:

- `rules`: the rules of the protocol, by number, and what is done instead where one is left out;
- `world`: the log, the network, the shards, and what stands in them;
- `follower`, `owner`, `trainer`, `batch`: the processes; an API process is a plain follower;
- `snapshots`, `rebase`: what an operator runs;
- `oracle`: what must be true, from the input alone;
- `run`: the faults and the schedules.

Nothing here imports Saros: this is the protocol's specification, and the code cites its rules by number.
"""
