"""Compiles every kernel by a tiny run through all of the core, so that no live batch waits for a compiler.

Kernels are kept on disk, so this takes a minute or two once per version and machine, and a second afterwards.
"""

from collections.abc import Iterator

import numpy as np

from saros.core import (
    bounds,
    codec,
    codec_blocks,
    codec_items,
    codec_users,
    glance,
    popular,
    ranking,
    rerank,
    topk,
    topk_many,
)
from saros.core.catalogue import Catalogue
from saros.core.events import CLICK, ERASE, IMPRESSION, NEGATIVE, TICK, Events
from saros.core.fold import fold, fold_rows
from saros.core.gate import SESSION, GateRules
from saros.core.guest import Guest
from saros.core.ids import derive_key, hash_texts
from saros.core.items import Items
from saros.core.learner import Learner
from saros.core.masks import Mask
from saros.core.rows import live_rows
from saros.core.sessions import SessionRules
from saros.core.step import live_step
from saros.core.table import SlotTable

STAGES = ("hashes and tables", "sessions and gate", "ledger and step", "fold", "bytes", "ranking metrics", "top-K")


def warm() -> Iterator[str]:
    """Compile stage by stage; yield the name of each stage of `STAGES` when it is done."""
    keys = hash_texts(derive_key(0), ["a", "b", "c"])
    items = Items(live_rows(2), limit=64)
    learner = Learner(items, live_step(), gate_rules=GateRules(blocks_max=1, mode=SESSION, ignore_repeats=True))
    users = learner.intern(keys)
    items.intern(keys[:1])
    table = SlotTable(limit=2, capacity=1)
    table.intern(keys[:2])
    table.intern(keys[2:])
    slots = table.find(keys[2:])
    table.pin(slots)
    table.remove(slots)
    yield STAGES[0]
    # The last user's session is still open when its state is written and read.
    events = Events.of(
        user=[*users[[0, 0, 0, 0, 1, 1]], -1],
        kind=[IMPRESSION, NEGATIVE, CLICK, ERASE, IMPRESSION, CLICK, TICK],
        items=keys[[0, 1, 0, 2, 0, 1, 2]],
        time_ms=np.arange(1, 8) * 1000,
        start=[0, 2, 3, 4, 4, 6, 7, 7],
    )
    learner.open(events.cut(0, len(events.user)))
    yield STAGES[1]
    batch = learner.close()
    learner.accept(batch)
    yield STAGES[2]
    fold(items.arrays, batch.blocks.signed())
    fold_rows(items.arrays, batch.blocks.signed(), -1)
    yield STAGES[3]
    state, starts = codec_users.pack_users(learner.users.arrays, users, learner.session_rules)
    learner.restore(users, state, starts, learner.users.arrays.rows[users])
    seen = glance.glance_arrays(len(users), items.rules.dim, learner.session_rules)
    flags, rows = np.full(len(users), glance.ROW, np.uint8), learner.users.arrays.rows[users]
    glance.absorb(
        seen, np.arange(len(users), dtype=np.int32), flags, state, starts, rows, np.zeros(len(users), np.int64)
    )
    glance.blank(seen, 0, 0)
    which, one, at = np.arange(len(users), dtype=np.int32), np.zeros(len(users), np.uint8), np.zeros(64, np.int64)
    glance.pick(seen, seen, which, glance.WHOLE)
    glance.put(seen, which, seen, which)
    glance.settle(seen, which, seen, which, which, at, at, at, one, which)
    glance.tell_states(seen, which, np.zeros((len(users), 2), np.int64), one)
    blocks, offsets = codec_blocks.pack_blocks(batch.blocks, np.arange(1))
    codec_blocks.unpack_ledger(learner.ledger, int(users[0]), blocks, offsets)
    codec_blocks.unpack_blocks(blocks, offsets, items.rules.dim)
    found = items.table.slots()
    codec_items.unpack_items(Items(items.rules, 64), items.table.keys[found], codec_items.pack_items(items, found))
    codec.unpack_partition(codec.pack_partition(learner.timeline, learner.gate), learner.timeline, learner.gate)
    bounds.dropped(learner.gate, learner.gate_rules, 0, 1, 1)
    learner.ledger.compact(force=True)
    yield STAGES[4]
    _warm_metrics()
    yield STAGES[5]
    _warm_topk(items)
    yield STAGES[6]


def warm_serving() -> None:
    """Compile what ranks, by itself."""
    items = Items(live_rows(2), limit=64)
    items.intern(hash_texts(derive_key(0), ["a"]))
    _warm_topk(items)
    _warm_metrics()


def _warm_metrics() -> None:
    ranking.rank(np.arange(2.0), np.array([0, 1], np.uint8), np.array([0, 2], np.int64))


def _warm_topk(items: Items) -> None:
    """Compile what a catalogue does."""
    catalogue, mask = Catalogue(items, 4.0), Mask()
    found = items.table.slots()
    mask.put(found)
    catalogue.mark(found)
    catalogue.refresh(found)
    catalogue.rebuild(len(found))
    row = Guest(items, live_step()).row(items.table.keys[found], [True] * len(found))
    stamps = glance.Stamps(items.limit)
    stamps.extend(items.table.keys, len(found))
    stamps.find(items.table.keys, np.zeros(1, np.uint32))
    topk.top_k(catalogue, row, 1, within=[mask])
    seen = glance.glance_arrays(1, items.rules.dim, SessionRules())
    out, starts = stamps.seen_by(items.table.keys, seen, np.zeros(1, np.int32))
    topk_many.top_k_many(catalogue, seen.rows, [0], 1, catalogue.arrays.known, out, starts)
    topk.similar(catalogue, 0, 1)
    topk.scores_of(catalogue, row, found)
    units = rerank.units_of(catalogue, found)
    rerank.diversify(units, np.ones(len(found), np.float32), 0.5, 1)
    rerank.nearest(units, units)
    rerank.parts_of(catalogue, row, found)
    rerank.mix(found, rerank.draw(catalogue, catalogue.arrays.known, 1, 0), 0.5, 0, 1)
    popular.popular(catalogue, popular.positive_rates(catalogue, popular.newest_day(items), 4.0), 1)
