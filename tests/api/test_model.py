"""Serving, over a real broker and a real store: what was clicked a moment ago is in the next answer."""

import pytest

from saros.api.model import Wish
from tests.api.runs import Sender, run, serving
from tests.trainer.runs import Model


def ids(items: list[tuple[str, float]]) -> list[str]:
    return [item for item, _ in items]


def test_a_click_changes_the_next_answer(live: Model, sender: Sender) -> None:
    async def work() -> None:
        token = sender.learn("bob", 3)
        async with serving(live) as model:
            before, cold = await model.recommend([Wish("bob", token=token, wait_ms=9000), Wish("nobody")])
            assert (before.source, before.user_state, before.stale, before.token_reached) == (
                "model", "in_band", False, True
            )  # fmt: skip
            assert (cold.source, cold.user_state, cold.token_reached) == ("popular", "cold", None)
            assert not {"bob/0", "bob/1", "bob/2"} & set(ids(before.items))
            assert "bob/0" in ids(cold.items)
            best = before.items[0][0]
            sender.show("bob", best, "left/0")
            token = sender.click("bob", best)
            (after,) = await model.recommend([Wish("bob", token=token, wait_ms=9000)])
            assert after.token_reached
            assert best not in ids(after.items), "it was seen"
            (all_of,) = await model.recommend([Wish("bob", exclude_seen=False)])
            assert best in ids(all_of.items)
            assert dict(all_of.items)[best] != before.items[0][1]
            assert after.model_time_ms > before.model_time_ms > 0

    run(work())
