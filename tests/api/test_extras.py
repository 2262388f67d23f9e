"""Explore, diversity and explain, on a model that learns from a real log: what they say is so, and is so again."""

import numpy as np
import pytest

from saros.api.model import Model as Served
from saros.api.model import Wish
from saros.api.plan import Answer, Extras
from saros.core import rerank
from saros.wire.v1.events_pb2 import Event, ItemUpsert
from tests.api.runs import Sender, reached, run, serving
from tests.naive import rerank as naive
from tests.trainer.runs import Model

HIDDEN = "cid/1"


async def asked(model: Served, wish: Wish, seed: str = "s", **more: float) -> Answer:
    extras = Extras("id", seed, more.get("explore", 0.0), more.get("diversity", 0.0), bool(more.get("explain")))
    (answer,) = await model.recommend([wish._replace(extras=extras)])
    return answer


def ids(answer: Answer) -> list[str]:
    return [item for item, _ in answer.items]


@pytest.fixture
def taught(live: Model, sender: Sender) -> Model:
    for user in ("ann", "bob", "cid", "dan"):
        sender.learn(user, 4)
    for k in range(20):
        sender.send(Event(item_upsert=ItemUpsert(item_id=f"new/{k}", categories=["new"])))
    sender.send(Event(item_upsert=ItemUpsert(item_id=HIDDEN, hidden=True)))
    return live


def test_what_a_score_is_made_of(taught: Model) -> None:
    async def work() -> None:
        async with serving(taught) as model:
            await reached(model, taught)
            wish = Wish("bob", k=12)
            (plain,) = await model.recommend([wish])
            answer = await asked(model, wish, explain=1)
            assert (answer.items, answer.source, answer.user_state) == (plain.items, "model", "in_band"), "to the bit"
            assert plain.notes is None
            assert answer.notes is not None
            for (item, score), note in zip(answer.items, answer.notes, strict=True):
                assert note.keys() == {"explain"}
                why = note["explain"]
                assert isinstance(why, dict)
                assert np.float32(why["prior"]) + np.float32(why["vector"]) == np.float32(score)
                near = why["nearest_click"]
                clicks = {f"bob/{k}" for k in range(4)}
                similar = [pair for pair in model.similar(item, 100) or [] if pair[0] in clicks]
                assert near["item_id"] == similar[0][0]
                assert near["similarity"] == pytest.approx(similar[0][1], abs=1e-5)
            # A click that is hidden is not told, though it may be the nearest.
            own = await asked(model, Wish("cid", k=50, exclude_seen=False), explain=1)
            assert HIDDEN not in str(own.items) + str(own.notes)
            assert "cid/0" in str(own.notes)
            cold = await asked(model, Wish("nobody", k=3), explain=1)
            assert cold.source == "popular"
            assert cold.notes == [{"explain": {"rate": score, "nearest_click": None}} for _, score in cold.items]
            guest = await asked(model, Wish(session=(("bob/0", True), ("left/0", False)), k=3), explain=1)
            assert guest.source == "session"
            assert guest.notes is not None
            assert all("bob/0" in str(note) for note in guest.notes), "the only click of the session"

    run(work())


def test_exploring_is_a_function_of_the_seed(taught: Model) -> None:
    async def work() -> None:
        async with serving(taught) as model:
            await reached(model, taught)
            for wish in (Wish("bob", k=12), Wish("nobody", k=12)):
                (plain,) = await model.recommend([wish])
                answers = [await asked(model, wish, seed=f"seed {k}", explore=0.4) for k in range(40)]
                drawn = []
                for answer in answers:
                    assert answer.notes is not None
                    assert len(set(ids(answer))) == 12
                    marks = [note["explored"] for note in answer.notes]
                    rest = [pair for pair, mark in zip(answer.items, marks, strict=True) if not mark]
                    assert rest == plain.items[: len(rest)], "what is not drawn is the best, in order"
                    drawn += [item for item, mark in zip(ids(answer), marks, strict=True) if mark]
                assert 0.3 < len(drawn) / (40 * 12) < 0.5
                assert HIDDEN not in drawn
                fresh = sum(item.startswith("new/") for item in drawn)
                assert fresh > 0.6 * len(drawn), "those of which little is known come more often"
                assert answers == [await asked(model, wish, seed=f"seed {k}", explore=0.4) for k in range(40)]
                assert len({tuple(ids(answer)) for answer in answers}) > 30
            all_drawn = await asked(model, Wish("bob", k=12, category="new", exclude=("new/1",)), explore=1)
            assert all(item.startswith("new/") and item != "new/1" for item in ids(all_drawn))
            # Where everything is in the list already there is nothing to draw.
            everything = await asked(model, Wish("bob", k=200), explore=1)
            assert everything.notes is not None
            assert not any(note["explored"] for note in everything.notes)
            assert (await asked(model, Wish("bob", k=0), explore=1, diversity=1, explain=1)).items == []

    run(work())


def test_diversity_moves_down_what_is_alike(taught: Model) -> None:
    async def work() -> None:
        async with serving(taught) as model:
            await reached(model, taught)
            (deep,) = await model.recommend([Wish("bob", k=40)])
            world = model._world
            assert world is not None
            units = rerank.units_of(world.shelf.catalogue, world.shelf.slots_of(ids(deep)))
            scores = np.array([score for _, score in deep.items], np.float32)
            for share in (0.3, 0.9):
                answer = await asked(model, Wish("bob", k=10), diversity=share)
                assert answer.notes is None
                assert answer.items == [deep.items[place] for place in naive.marginal(units, scores, share, 10)]
            assert ids(await asked(model, Wish("bob", k=10), diversity=0.9)) != ids(deep)[:10]

    run(work())
