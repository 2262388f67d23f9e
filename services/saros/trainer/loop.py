"""The trainer's loop: from events to records, from records to the store.

    1  follow   read the log; judge every record; fold what others learned, confirm what is ours
    2  flush    bring the users of owned partitions up to the last record that counts; about once a second the shards.
                Threads do the writing, and the loop goes on
    3  take     read events; bad ones become dead letters. Where 4 waits for the store, the next ones are taken ahead
    4  learn    per partition and micro-batch, while it has room: load users, sessions, gate, step
    5  send     the record, with the last one as its parent; nothing waits for it
    6  commit   to the group, for those who watch its lag: nobody goes on from there

A partition has room while at most one of its records is in flight and the store is not far behind. Where none has, the
loop waits; if that lasts, it lets the partitions pause and goes on polling, so that the group keeps it.

Only the log says what counts. A record that is not read back, or read back and rejected, is taken out of the table
again and its partition begins anew behind the last one that counted. Numbers of rules are those of tests/model.
"""

import logging
import secrets
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from saros.adapters.intake import Intake, Taken
from saros.adapters.kafka import LostPlaceError, Reader
from saros.adapters.kafka import Place as Offset
from saros.adapters.places import Same, start_of
from saros.adapters.redis import Store
from saros.adapters.redo import Message, RedoLog
from saros.core.counts import CROSSED
from saros.core.fold import fold_rows
from saros.core.learner import Batch, Learner
from saros.errors import BrokerError, SarosError
from saros.redo.genesis import check_partitions
from saros.redo.replica import Replica
from saros.telemetry import (
    FOREIGN,
    LEARN_SECONDS,
    MESSAGES,
    PAUSED,
    RECORDS,
    REDO_BYTES,
    REJECTED,
    log,
)
from saros.trainer.naming import named_by
from saros.trainer.observe import Tables, expect_scenarios, observe_batch, observe_scenarios
from saros.trainer.plan import LoopRules
from saros.trainer.points import reach
from saros.trainer.shards import ShardWriter
from saros.trainer.share import Share
from saros.trainer.stop import Stop
from saros.trainer.turn import Turn, stats_of
from saros.trainer.users import Threads, UserStore
from saros.wire.columns import ITEMS_FULL

FLIGHTS_MAX = 2
_COMMIT_EVERY_S = 1.0
_IDLE_S, _BUSY_S = 0.05, 0.005
_WAIT_S = 0.002  # for the store, mostly, which cannot wake us
_POLL_EVENTS = 64_000  # about so many at once
_LINGER_S = 0.02  # after the first event: each record costs all who follow the log, however few events are in it
_PAUSE_S = 0.5  # without room for so long, partitions pause: what was fetched ahead of them is then fetched again


class Tally(NamedTuple):
    """What was learned since the start, counted as it was sent."""

    events: int = 0
    records: int = 0
    redo_bytes: int = 0
    crossed: int = 0  # times that a user passed B with blocks to be taken back


class _Ahead(NamedTuple):
    """Events that were taken, and the shares that they are for: one that began anew since then reads its own again."""

    taken: Taken
    shares: list[Share]


class Trainer:
    """Owns partitions of the events, learns from them, and keeps the store."""

    def __init__(
        self, store: Store, redo: RedoLog, replica: Replica, shards: ShardWriter, new_learner: Callable[[], Learner],
        reader: Reader, intake: Intake, events: Same, rules: LoopRules, threads: Threads, stop: Stop,
    ) -> None:  # fmt: skip
        """Work until a stop is asked for: what was taken by then and not learned is left to the next owner."""
        self._store, self._redo, self._replica, self._shards = store, redo, replica, shards
        self._new_learner, self._reader, self._intake = new_learner, reader, intake
        self._events, self._topic = events, events.name
        self._rules, self._threads, self._stop, self._poll = rules, threads, stop, rules.poll_messages
        self._tables = Tables()
        expect_scenarios(rules.scenarios)
        self.shares: dict[int, Share] = {}
        self._stale: set[int] = set()  # partitions that have to begin anew
        self._warned = False  # that settings of ours are not in force
        self._is_behind = False  # the broker failed us, and the log was not followed to its end since
        self._ahead: _Ahead | None = None
        self.tally = Tally()
        self._shards_at = self._commit_at = time.monotonic()

    # --- ownership ---------------------------------------------------------------------------------------------------

    def gained(self, partitions: list[int]) -> list[Offset]:
        """Own more partitions: fold the log to its end, flush, then begin at `next`."""
        genesis = self._replica.genesis
        check_partitions(genesis, self._topic, max([genesis.partitions, *(each + 1 for each in partitions)]))
        self.catch_up()
        return [(partition, self._begin(partition)) for partition in partitions]

    def lost(self, partitions: list[int]) -> None:
        """Own fewer: what counts is flushed, what is in flight is left to the log."""
        for partition in partitions:
            share = self.shares.pop(partition, None)
            self._stale.discard(partition)
            if share is not None:
                self._undo(share)
                share.users.flush()

    def abandon(self) -> None:
        """Own nothing any more, and write nothing: the next owners read from the log what the store lacks."""
        self.shares.clear()
        self._stale.clear()

    def _begin(self, partition: int) -> int:
        """Make a share that stands where the log does; return the offset to read events from (rules 19, 21)."""
        fence, genesis, learner = self._replica.fences[partition], self._replica.genesis, self._new_learner()
        users = UserStore(
            self._store, self._redo, genesis, partition, self._rules, self._threads, learner.users.table.unpin,
            learner.users.limit, self._stop.check_late,
        )  # fmt: skip
        users.catch_up(fence)
        share = Share(partition, learner, users, fence, self._rules)
        self.shares[partition] = share
        if share.unheeded and not self._warned:
            self._warned = True
            hint = "the log has those the model began with, or was given since: `PATCH /v1/gate` changes them"
            log("gate settings are not in force", logging.WARNING, settings=" ".join(share.unheeded), hint=hint)
        log("partition was begun", partition=partition, next=share.next, record=f"{fence.nonce:x}")
        self._events.check()
        # Where retention took events away the next record covers the gap: it has to begin where the last one ended.
        return start_of(self._reader, self._topic, partition, share.next, stop_at_gap=self._rules.stop_at_gap)

    def catch_up(self, check: Callable[[], None] | None = None) -> None:
        """Follow the log to the ends that it has now; `check` may end it halfway."""
        check = check or self._stop.check_late
        ends = [self._redo.end(partition) for partition in range(self._replica.genesis.partitions)]
        while any(fence.offset + 1 < end for fence, end in zip(self._replica.fences, ends, strict=True)):
            check()
            if self.follow(_IDLE_S):
                reach("following")
        self._redo.topic.check()  # rule 39

    # --- 1 follow ----------------------------------------------------------------------------------------------------

    def follow(self, timeout_s: float) -> int:
        """Step 1: read what the log has; return how many messages."""
        try:
            messages = self._redo.poll(timeout_s)
        except LostPlaceError as error:
            # No broker trouble, which passes: what the table lacks is nowhere but in the store (rule 6).
            raise SarosError(
                f"{error}: it was cut before it was followed; a trainer that starts anew goes on from the store"
            ) from error
        for message in messages:
            self._judge(message)
        return len(messages)

    def _judge(self, message: Message) -> None:
        partition, offset, record = message
        share = self.shares.get(partition)
        own = record is not None and share is not None and any(f.record.nonce == record.nonce for f in share.flights)
        counts = self._replica.judge(partition, offset, record)
        if counts:
            assert record is not None
            told = self._replica.told(record)
            if own:
                assert share is not None
                flight = share.accept(self._replica.fences[partition])  # by nonce, not by range (rule 3)
                assert flight.record.nonce == record.nonce, (
                    "a partition's records are judged in the order they were sent"
                )
                blocks = flight.blocks
                self._replica.confirm(record, blocks)
                RECORDS.inc()
                reach("accepted")
            else:
                blocks = self._replica.fold(partition, offset, record)
                if share is not None:
                    share.users.append(self._replica.fences[partition], record)
                    self._stale.add(partition)  # rule 20
                    FOREIGN.inc()
            self._shards.mark(blocks, told)
        elif own:
            REJECTED.inc()
            self._stale.add(partition)

    # --- 2 flush -----------------------------------------------------------------------------------------------------

    def flush(self, *, wait: bool = False) -> None:
        """Step 2: let what counts be written to the store; with `wait` return when it is there."""
        due = wait or time.monotonic() >= self._shards_at
        if due:
            self._redo.topic.check()  # rule 39, no more often as it takes 1.5 ms; until then rules 37 and 38 guard
            self._events.check()
        for partition in sorted(self._stale):
            self._restart(partition)
        for share in self.shares.values():
            share.users.flush(wait=wait)
        if due and self._replica.caught_up:  # rules 11, 12
            reach("between")
            in_flight = (flight.blocks for share in self.shares.values() for flight in share.flights)
            self._shards.write(list(self.shares), in_flight, wait=wait)
            self._shards_at = time.monotonic() + self._rules.shards_every_s

    def _undo(self, share: Share) -> None:
        """Take what a share has in flight out of the table again (rule 8).

        Others' records stay in flight, since only its own are subtracted; where work := base, rule 9 waits for them.
        """
        for flight in share.flights:
            fold_rows(self._replica.items.arrays, flight.blocks, -1)
        share.flights.clear()

    def _restart(self, partition: int) -> None:
        """Begin a partition anew where the log stands.

        It is stale until that is done: where the broker fails us on the way, the next call goes on, with or without a
        share, since the group takes the partition for ours.
        """
        share = self.shares.pop(partition, None)
        if share is not None:
            self._undo(share)
            share.users.flush()
        log("partition begins anew", logging.WARNING, partition=partition)
        self._reader.seek(self._topic, (partition, self._begin(partition)))
        self._stale.discard(partition)

    # --- 3 take, 4 learn, 5 send -------------------------------------------------------------------------------------

    def take(self) -> int:
        """Steps 3 to 5: read events and learn them; return how many messages were read."""
        now, self._ahead = self._ahead or self._take(_BUSY_S if self._flying() else _IDLE_S, _LINGER_S), None
        if now is None:
            return 0
        offsets = now.taken.polled.offsets()
        turns = [
            Turn(share, now.taken, offsets)
            for share in now.shares
            if self.shares.get(share.partition) is share and share.partition not in self._stale
        ]
        since = time.monotonic()
        try:
            while any(turns) and not self._stop.asked:
                learned = [turn for turn in turns if turn and self._learn_next(turn)]
                since = time.monotonic() if learned else since
                if not learned and self._ahead is None and not self._reader.is_paused:
                    self._ahead = self._take(0, 0)
                self._go_on(waiting=not learned, for_s=time.monotonic() - since)
        finally:
            self._reader.resume()  # whatever went wrong: nobody else would
        return len(now.taken.polled.values)

    def _take(self, timeout_s: float, linger_s: float) -> _Ahead | None:
        """Step 3: read events, and decode them; None where there are none."""
        try:
            taken = self._intake.take(self._poll, timeout_s, linger_s)
        except LostPlaceError:
            self._stale |= set(self.shares)  # step 2 is next
            return None
        count = len(taken.polled.values)
        if not count:
            return None
        # Messages may hold a thousand events: as many of them as make a few micro-batches.
        self._poll = max(1, min(self._rules.poll_messages, count * _POLL_EVENTS // max(1, len(taken.decoded.kind))))
        MESSAGES.inc(count)
        for partition, behind in taken.polled.next_offsets().items():
            if partition in self.shares:
                self.shares[partition].taken = behind
        return _Ahead(taken, list(self.shares.values()))

    def _learn_next(self, turn: Turn) -> bool:
        """Learn the next micro-batch of a partition if it has room; False where it has none."""
        share = turn.share
        if self.shares.get(share.partition) is not share or share.partition in self._stale:
            turn.drop()
        elif not turn.is_ready() or not share.has_room(FLIGHTS_MAX) or not self._learn(turn):
            return False
        turn.ask()
        return True

    def _go_on(self, *, waiting: bool, for_s: float) -> None:
        """Steps 1 and 2 between two micro-batches; where we wait for room, wait for the log."""
        self._redo.check_sent()
        self.follow(_WAIT_S if waiting else 0)
        self.flush()
        self._tell(waiting=waiting)
        if for_s > _PAUSE_S:
            if not self._reader.is_paused:
                PAUSED.inc()
            self._reader.stay()

    def _learn(self, turn: Turn) -> bool:
        """Steps 4 and 5 for one micro-batch; False where ledgers have to be read first."""
        share, taken, run = turn.share, turn.taken, turn.take()
        messages, rows, users, asked, ledgers, end = run
        place = share.place(self._replica.genesis.log_id, secrets.randbits(63) + 1, end)
        with LEARN_SECONDS.time():
            share.load(users, asked)
            events = taken.events(rows, share.learner)
            leaving = share.leaving(events.user, events.kind)
            if share.ledger_bytes(leaving).sum() > self._rules.taken_back_bytes and len(messages) > 1:
                turn.split(messages)  # all of it goes into the record: into two, then
                return True
            if not share.has_all(ledgers, leaving):
                turn.put_back(run, share.ask_ledgers(leaving))
                return False
            fresh, refused = named_by(taken, messages, self._replica, self.shares.values())
            if len(refused):
                self._intake.refuse(taken, refused, ITEMS_FULL)
            learnt = share.learn(events, ledgers)
        if learnt is None:
            self._stale.add(share.partition)
            return True
        batch, touched, before = learnt
        rare = taken.rare_of(messages)
        share.change_gate([event.gate_change for event in rare if event.HasField("gate_change")])
        names, stats = self._new_names(batch), stats_of(taken, messages, rows, batch, self._rules.scenarios)
        record = share.record(batch, touched, before, place, names, stats, fresh)
        record.upserts.extend(event.item_upsert for event in rare if event.HasField("item_upsert"))
        reach("learned")
        size = self._redo.send(share.partition, record)
        share.note_size(len(rows), size)
        more = (len(rows), 1, size, int(batch.counts[CROSSED]))
        self.tally = Tally(*map(sum, zip(self.tally, more, strict=True)))
        REDO_BYTES.inc(size)
        reach("sent")
        share.newest_ms = stats.newest_ms
        observe_batch(taken.kinds(messages), batch)
        observe_scenarios(stats)
        return True

    def _new_names(self, batch: Batch) -> dict[int, bytes]:
        """Return the texts of items that are added and have not been named in the log, as far as they are known."""
        slots = batch.blocks.slots[np.repeat(batch.blocks.sign > 0, batch.blocks.negatives + batch.blocks.positives)]
        keys = self._replica.nameless(slots)
        texts = self._intake.names.texts(keys) if len(keys) else []
        return {key: text for key, text in zip(keys.tolist(), texts, strict=True) if text}

    # --- 6 commit, and the whole -------------------------------------------------------------------------------------

    def commit(self, *, waiting: bool = False) -> None:
        """Step 6: tell the group how far the records that count have come."""
        fences = self._replica.fences
        reach("committing")
        self._reader.commit(self._topic, [(partition, fences[partition].next) for partition in self.shares])
        reach("committed")
        # Who waits has not read all there is. Who does not has read to the end that the log had: what seems to be left
        # before it are the marks of transactions.
        ends = {
            p: self._reader.known_end(self._topic, p) if waiting else share.taken for p, share in self.shares.items()
        }
        self._tables.observe(self._replica.items, self.shares.values(), fences, ends)
        self._commit_at = time.monotonic() + _COMMIT_EVERY_S

    def step(self) -> int:
        """Go once through all steps; return how many messages were taken."""
        try:
            if self._is_behind:
                self.catch_up()
                self._is_behind = False
            self.follow(0)
            self.flush()
            taken = self.take()
            self._redo.check_sent()
        except BrokerError as error:
            self._start_over(error)
            return 0
        self._tell(waiting=False)
        return taken

    def _tell(self, *, waiting: bool) -> None:
        """Step 6, about once a second, also where we wait for room: whoever watches sees then how far behind we are."""
        if time.monotonic() >= self._commit_at:
            self.commit(waiting=waiting)

    def _flying(self) -> bool:
        return any(share.flights for share in self.shares.values())

    def _start_over(self, error: BrokerError) -> None:
        """Something that was sent may never arrive, or arrive late: begin anew where the log stands, once it can be
        read again."""
        log("records could not be delivered", logging.ERROR, error=str(error))
        self._redo.topic.check()  # rule 39
        self._redo.start_over()
        for share in self.shares.values():
            self._undo(share)
        self._stale |= set(self.shares)
        self._is_behind = True

    def drain(self) -> bool:
        """Let all that is in flight come back, and flush everything; False where the broker failed us, as in `step`."""
        try:
            while self._flying():
                self._stop.check_late()
                self._redo.check_sent()
                self.follow(_IDLE_S)
                self.flush()
            self.flush(wait=True)
            self.commit()
        except BrokerError as error:
            self._start_over(error)
            return False
        return True
