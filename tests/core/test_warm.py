"""`warm` compiles all that a running service calls: afterwards no kernel meets types it has not seen."""

import json
import subprocess
import sys

import pytest

from saros.core.warm import STAGES

# In a process of its own: here other tests may have compiled anything before.
SCRIPT = """
import importlib, json, pathlib, sys
import numpy as np
import saros.core
from saros.core import bounds, codec, codec_blocks, codec_items, codec_users, fold, popular, ranking, rerank
from saros.core import topk, topk_many
from saros.core.catalogue import Catalogue
from saros.core.guest import Guest
from saros.core.masks import Mask, any_of
from saros.core.warm import warm

def signatures():
    found = {}
    for path in sorted(pathlib.Path(saros.core.__path__[0]).glob("*.py")):
        module = importlib.import_module(f"saros.core.{path.stem}")
        for name, kernel in vars(module).items():
            if hasattr(kernel, "nopython_signatures"):
                found[f"{path.stem}.{name}"] = len(kernel.nopython_signatures)
    return found

stages = list(warm()) if sys.argv[1] == "warm" else []
before = signatures()

from saros.core.events import CLICK, IMPRESSION, Events
from saros.core.gate import MODES, GateRules
from saros.core.items import Items
from saros.core.learner import Learner
from saros.core.rows import paper_rows
from saros.core.sessions import RULES, SessionRules
from saros.core.step import paper_step

rng = np.random.default_rng(0)
for mode in MODES.values():
    for rule in RULES.values():
        items = Items(paper_rows(5), 5000)
        learner = Learner(items, paper_step(), SessionRules(rule=rule), GateRules(blocks_max=3, mode=mode),
                          users_max=8000 if mode == MODES["session"] else 3000, keep_added=mode == 0, evict=True)
        for day in range(3):
            users = learner.intern(rng.integers(0, 2**63, 2000).astype(np.uint64))
            kinds = np.where(rng.random(9000) < 0.4, CLICK, IMPRESSION)
            times = (20_000 + day) * 86_400_000 + np.arange(9000)
            events = Events.of(rng.choice(users, 9000), kinds, rng.integers(0, 900, 9000), times)
            for first in (0, 4500):
                batch = learner.learn(events.cut(first, first + 4500))
                learner.accept(batch)
        fold.fold(items.arrays, batch.blocks.signed())
        state, starts = codec_users.pack_users(learner.users.arrays, users, learner.session_rules)
        learner.restore(users, state.tobytes(), starts, learner.users.arrays.rows[users])
        bounds.dropped(learner.gate, learner.gate_rules, 20_002, 2, 5)
        added = np.flatnonzero(batch.blocks.sign > 0)[:1]
        blocks, offsets = codec_blocks.pack_blocks(batch.blocks, added)
        codec_blocks.unpack_ledger(learner.ledger, 0, blocks.tobytes(), offsets)
        codec_blocks.unpack_blocks(blocks.tobytes(), offsets, 5)
        values = codec_items.pack_items(items, items.table.slots())
        codec_items.unpack_items(Items(items.rules, 5000), items.table.keys[items.table.slots()], values)
        if items.table.size:
            catalogue, some = Catalogue(items, 0.0), items.table.slots()
            hidden = Mask()
            hidden.put(some[1:])
            catalogue.mark(some[:1])
            catalogue.refresh(some)
            catalogue.rebuild(10)
            u = Guest(items, paper_step()).row(items.table.keys[:3].copy(), [False, True, True], 2)
            topk.top_k(catalogue, u, 5, within=[hidden], without=[any_of([hidden])], exclude=[1])
            none = np.zeros(0, np.int32)
            topk_many.top_k_many(catalogue, u[None], [0], 5, catalogue.arrays.known, none, np.zeros(2, np.int64))
            topk.similar(catalogue, int(some[-1]), 5, exclude=some[:1])
            topk.scores_of(catalogue, u, some[:4])
            units = rerank.units_of(catalogue, some[:9])
            rerank.diversify(units, topk.scores_of(catalogue, u, some[:9]), 0.5, 3)
            rerank.nearest(units, units[:2])
            rerank.parts_of(catalogue, u, some[:9])
            rerank.mix(some[:5], rerank.draw(catalogue, catalogue.arrays.known, 3, 2**64 - 1), 0.5, 2**64 - 1, 5)
            rates = popular.positive_rates(catalogue, 20_002, 1.0, 2)
            popular.popular(catalogue, rates, 5, without=[hidden])
ranking.rank(rng.random(9).astype(np.float32), rng.random(9) < 0.5, np.array([0, 4, 9]))

new = {name: count for name, count in signatures().items() if count > before[name]}
print(json.dumps({"stages": stages, "compiled": len(before), "new": sorted(new)}))
"""


def run(argument: str) -> dict[str, list[str]]:
    done = subprocess.run([sys.executable, "-c", SCRIPT, argument], capture_output=True, text=True, check=True)
    answer: dict[str, list[str]] = json.loads(done.stdout)
    return answer


@pytest.mark.timeout(600)
def test_after_warming_up_nothing_is_compiled() -> None:
    answer = run("warm")
    assert answer["stages"] == list(STAGES)
    assert answer["new"] == []


@pytest.mark.timeout(600)
def test_the_test_sees_what_is_compiled() -> None:
    assert {"sessions.feed", "settle.settle", "step.step", "topk.search", "topk_many._search_many"} <= set(
        run("cold")["new"]
    )
