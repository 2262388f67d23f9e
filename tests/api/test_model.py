"""Serving, over a real broker and a real store: what was clicked a moment ago is in the next answer."""

import asyncio
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from saros.adapters.redis import UserReads
from saros.api import desk
from saros.api.model import Model as Served
from saros.api.model import Wish
from saros.api.plan import Extras, read_token
from saros.api.service_schemas import Stats
from saros.core.gate import GateRules
from saros.wire.v1.events_pb2 import Event, ItemUpsert
from tests.api.runs import Sender, reached, run, serving, trim_all, until, written
from tests.trainer.runs import PARTITIONS, Model


def ids(items: list[tuple[str, float]]) -> list[str]:
    return [item for item, _ in items]


@pytest.mark.parametrize("served_from", ["store_server", "store_cluster"], indirect=True)
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
            sender.show("bob", best, "passed/over")
            token = sender.click("bob", best)
            (after,) = await model.recommend([Wish("bob", token=token, wait_ms=9000)])
            assert after.token_reached
            assert best not in ids(after.items), "it was seen"
            (all_of,) = await model.recommend([Wish("bob", exclude_seen=False)])
            assert best in ids(all_of.items)
            assert dict(all_of.items)[best] != before.items[0][1]
            assert after.model_time_ms > before.model_time_ms > 0

    run(work())


def test_stats_are_what_the_document_says(live: Model, sender: Sender) -> None:
    async def work() -> None:
        sender.learn("bob", 3)
        async with serving(live, ready=False) as model:
            early = Stats.model_validate(model.stats(), strict=True)
            assert model.stats().keys() == early.model_fields_set == {"model", "ready", "why_not_ready"}
            await until(lambda: not model.why_not_ready())
            told = Stats.model_validate(model.stats(), strict=True)
            assert told.model_fields_set == model.stats().keys() == Stats.model_fields.keys() - {"why_not_ready"}

    run(work())


def test_the_gate_is_told_as_the_log_has_it_and_not_as_the_settings_do(live: Model, sender: Sender) -> None:
    async def work() -> None:
        token = sender.learn("bob", 3)
        async with serving(live, gate=GateRules(blocks_min=9, blocks_max=99)) as model:
            await model.recommend([Wish("bob", token=token, wait_ms=9000)])
            told: Any = model.gates().told()
            assert (told["revision"], told["in_force"]) == (0, True), "though two partitions have said nothing"
            assert {told["settings"][name] for name in ("blocks_min", "window_days")} == {2}
            assert [(part["blocks_min"], part["blocks_max"]) for part in told["partitions"]] == [(2, 12)] * 3

    run(work())


def test_read_your_writes_a_hundred_times(live: Model, sender: Sender) -> None:
    async def work() -> None:
        async with serving(live, cache_users=16) as model:
            for k in range(100):
                user, item = f"user-{k % 10}", f"item/{k}"
                sender.show(user, item, "other/1", "other/2")
                token = sender.click(user, item)
                (answer,) = await model.recommend([Wish(user, k=500, token=token, wait_ms=9000)])
                assert answer.token_reached, k
                assert not answer.stale
                assert item not in ids(answer.items), k
                if k >= 10:  # b = 2, and B = 12
                    assert (answer.source, answer.user_state) == ("model", "in_band")
            for wrong in ("0", "0:", "x:1", "3:0", "0:-1", "0:1,", "0:1;1:1"):
                with pytest.raises(ValueError, match="token"):
                    await model.recommend([Wish("user-1", token=wrong)])
            (late,) = await model.recommend([Wish("user-1", token="0:1000000", wait_ms=30)])
            assert late.token_reached is False
            assert late.items
            several = [Wish("user-1", token=text) for text in ("", token, "0:1000000", "0:0,0:1000000,0:1")]
            assert [each.token_reached for each in await model.recommend(several)] == [None, True, False, False]

    run(work())


def test_whoever_waits_for_a_token_says_so_and_nobody_else(live: Model, sender: Sender) -> None:
    asked, inside, most = 0, 0, 1

    @contextmanager
    def waiting() -> Iterator[None]:
        nonlocal asked, inside
        asked += 1
        if inside == most:
            raise LookupError("too many wait")
        inside += 1
        try:
            yield
        finally:
            inside -= 1

    async def work() -> None:
        token = sender.learn("bob", 3)
        async with serving(live) as model:
            (there,) = await model.recommend([Wish("bob", token=token, wait_ms=9000)])
            await written(live)
            model._waiting = waiting
            far = Wish("bob", token="0:1000000", wait_ms=300)
            for wish in (Wish("bob"), Wish("bob", token=token, wait_ms=9000), far._replace(wait_ms=0)):
                assert (await model.recommend([wish]))[0].items == there.items
            assert (await model.person("bob", token, 9000))[1]
            assert asked == 0, "what is there is not waited for"
            first = asyncio.create_task(model.recommend([far, far]))
            await until(lambda: inside == 1)
            with pytest.raises(LookupError):
                await model.rank(far, ["left/0"])
            with pytest.raises(LookupError):
                await model.person("bob", far.token, 300)
            assert [answer.token_reached for answer in await first] == [False, False]
            assert inside == 0
            found, reached_it = await model.person("bob", far.token, 100)
            assert (found is not None, reached_it, inside) == (True, False, 0)

    run(work())


def test_those_who_come_together_cost_the_store_one_read(trained: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    sent, send = list[bytes](), UserReads._send

    def counted(reads: UserReads, commands: tuple[bytes, int]) -> "asyncio.Future[list[Any]]":
        if b"MGET" in commands[0]:  # or it only asks whether the store is there
            sent.append(commands[0])
        return send(reads, commands)

    async def work() -> None:
        await asyncio.to_thread(trained.drain)
        async with serving(trained) as model:
            users = [f"user-{k}" for k in range(50)]
            await asyncio.gather(*(model.recommend([Wish(user)]) for user in users))
            assert len(sent) == 1, "of all partitions"
            assert sent[0].count(b"MGET") == PARTITIONS
            await asyncio.gather(*(model.recommend([Wish(user)]) for user in users))
            assert len(sent) == 1, "now they are in memory"

    trained.send(300)
    monkeypatch.setattr(UserReads, "_send", counted)
    run(work())


def test_at_the_end_nobody_waits_for_a_token_any_more(live: Model, sender: Sender) -> None:
    async def work() -> None:
        token = sender.learn("bob", 3)
        async with serving(live) as model:
            await model.recommend([Wish("bob", token=token, wait_ms=9000)])
            await written(live)
            far = Wish("bob", token="0:1000000", wait_ms=600_000)
            entered = asyncio.Event()

            @contextmanager
            def waiting() -> Iterator[None]:
                entered.set()
                yield

            model._waiting = waiting
            first = asyncio.create_task(model.recommend([far]))
            await entered.wait()
            model.end_waits()
            async with asyncio.timeout(30):
                assert [answer.token_reached for answer in await first] == [False]
                assert (await model.rank(far, ["left/0"])).token_reached is False
                found, reached_it = await model.person("bob", far.token, far.wait_ms)
            assert (found is not None, reached_it) == (True, False)

    run(work())


def test_a_token_is_read_once_for_all_users_of_a_call(
    live: Model, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        token = sender.learn("bob", 3)
        async with serving(live) as model:
            texts = list[str]()

            def read(text: str, partitions: int) -> dict[int, int]:
                texts.append(text)
                return read_token(text, partitions)

            monkeypatch.setattr("saros.api.model.read_token", read)
            many = [Wish(f"user-{k}", token=token, wait_ms=9000) for k in range(50)]
            assert all(answer.token_reached for answer in await model.recommend(many))
            assert texts == [token]

    run(work())


def test_a_token_is_folded_to_the_furthest_place_of_each_partition() -> None:
    assert read_token("1:7", 2) == {1: 7}
    assert read_token("1:7,0:0,1:9,1:8", 2) == {0: 0, 1: 9}
    assert read_token(",".join(["0:5"] * 1024), 2) == {0: 5}
    with pytest.raises(ValueError, match="1024 places at most"):
        read_token(",".join(["0:5"] * 1025), 2)


def test_one_call_of_many_wishes_gives_way_between_its_pieces(
    live: Model, sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        token = sender.learn("bob", 3)
        async with serving(live) as model:
            await model.recommend([Wish(token=token, wait_ms=9000)])
            turns, wishes = 0, [Wish(session=((f"bob/{k % 3}", True),), k=2 + k) for k in range(50)]

            async def others() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            alone = [(await model.recommend([wish]))[0].items for wish in wishes]
            monkeypatch.setattr(desk, "SLICE_S", 0.0)
            monkeypatch.setattr(desk, "_SLICE_ROWS", 1)
            task = asyncio.create_task(others())
            await asyncio.sleep(0)
            turns = 0
            together = await model.recommend(wishes)
            task.cancel()
            assert turns >= len(wishes)
            assert [answer.items for answer in together] == alone

    run(work())


def test_pieces_are_what_a_slice_has_room_for() -> None:
    plain, long = Wish(), Wish(k=1000)
    extra = plain._replace(extras=Extras("id", "seed", explain=True))

    def sizes(*wishes: Wish, items: int = 100) -> list[int]:
        found = list(desk.pieces(wishes, items))
        assert [first for first, _ in found] == [0, *[end for _, end in found[:-1]]]
        assert found[-1][1] == len(wishes)
        return [end - first for first, end in found]

    assert sizes(plain) == [1]
    assert sizes(*[plain] * 150) == [64, 64, 22]
    assert sizes(*[plain] * 5, items=150_000) == [2, 2, 1]
    assert sizes(*[plain] * 3, items=10**7) == [1, 1, 1]
    assert sizes(*[long] * 3) == [1, 1, 1]
    assert sizes(plain, extra, extra, plain) == [1, 1, 1, 1]


def test_who_is_erased_vanishes(live: Model, sender: Sender) -> None:
    async def work() -> None:
        token = sender.learn("eve", 3)
        async with serving(live) as model:
            (known,) = await model.recommend([Wish("eve", k=100, token=token, wait_ms=9000)])
            assert known.source == "model"
            event = Event(user_id="eve")
            event.user_erase.SetInParent()
            token = sender.send(event)
            (gone,) = await model.recommend([Wish("eve", k=100, token=token, wait_ms=9000)])
            assert (gone.source, gone.user_state, gone.token_reached) == ("popular", "cold", True)
        async with serving(live) as booted:
            (again,) = await booted.recommend([Wish("eve", k=100)])
            assert (again.source, again.user_state) == ("popular", "cold")
            assert {rate for _, rate in again.items} == {booted.p0}, "what it taught was taken back"

    run(work())


def upsert(item: str, *categories: str, **more: Any) -> Event:
    return Event(item_upsert=ItemUpsert(item_id=item, categories=categories, **more))


def test_what_is_told_of_items_is_kept_over_a_boot(live: Model, sender: Sender) -> None:
    async def asked(model: Served, category: str = "") -> list[str]:
        (answer,) = await model.recommend([Wish("ann", k=100, category=category)])
        assert ids(model.popular(100, category)) == ids(answer.items) or answer.source == "model"
        return ids(answer.items)

    async def check(model: Served) -> None:
        assert "left/0" not in await asked(model), "hidden"
        assert "left/1" not in await asked(model), "expired"
        assert "right/0" not in await asked(model), "deleted"
        assert "ghost" not in await asked(model), "deleted before anybody had clicked it"
        assert sorted(await asked(model, "red")) == ["new/item", "right/1"]
        assert await asked(model, "blue/no such") == []
        assert ids(model.similar("right/1", 10, (), "red") or []) == ["new/item"]
        assert model.similar("no such", 10, (), "") is None
        assert ids(model.similar("right/1", 10, ("new/item",), "red") or []) == []

    async def work() -> None:
        sender.learn("bob", 3)
        async with serving(live) as early:
            token = sender.send(upsert("ghost", "red", deleted=True))
            await early.recommend([Wish(token=token, wait_ms=9000)])
            sender.show("bob", "ghost", "left/2")
            sender.click("bob", "ghost")
            await reached(early, live)
            assert "ghost" not in await asked(early)
            assert early.similar("ghost", 10) is not None, "it has a row"
        sender.send(upsert("left/0", hidden=True))
        sender.send(upsert("left/1", "blue", expires_at_ms=1000))
        sender.send(upsert("right/0", deleted=True))
        sender.send(upsert("right/1", "blue", properties={"price": "3"}))
        sender.send(upsert("right/1", "red", "round"))
        sender.send(upsert("left/2", "red", expires_at_ms=int(1000 * time.time()) + 2500))
        token = sender.send(upsert("new/item", "red"))
        async with serving(live) as model:
            await reached(model, live)
            (first,) = await model.recommend([Wish("ann", token=token, wait_ms=9000, category="red")])
            await until(lambda: "left/2" not in ids(model.popular(100)))
            await check(model)
            assert first.token_reached
            token = sender.send(upsert("left/0"))
            await model.recommend([Wish("ann", token=token, wait_ms=9000)])
            assert "left/0" in await asked(model), "an upsert replaces what was known"
            sender.send(upsert("left/0", hidden=True))
            await reached(model, live)
        await written(live)
        trim_all(live)
        async with serving(live) as booted:
            assert booted.stats()["items"] == model.stats()["items"]
            await check(booted)

    run(work())


def test_guests_rank_and_what_nobody_knows(live: Model, sender: Sender) -> None:
    async def work() -> None:
        for user in ("ann", "bob", "cid"):
            token = sender.learn(user, 4)
        async with serving(live) as model:
            await reached(model, live)
            session = (("left/0", False), ("bob/0", True), ("left/1", False), ("bob/1", True))
            guest, silent, everything, nothing = await model.recommend([
                Wish(session=session, k=100),
                Wish(session=session[:1], k=100),
                Wish("ann", k=10_000, exclude_seen=False),
                Wish("ann", k=0, exclude=("left/0",)),
            ])  # fmt: skip
            assert (guest.source, guest.user_state, guest.stale) == ("session", "cold", False)
            assert not {"bob/0", "bob/1"} & set(ids(guest.items))
            assert (silent.source, silent.user_state) == ("popular", "cold")
            assert len(everything.items) == model.stats()["items"]
            assert sorted(everything.items, key=lambda pair: -pair[1]) == everything.items
            assert nothing.items == []
            (cold,) = await model.recommend([Wish("new user", k=100, session=session)])
            assert (cold.source, cold.items) == ("session", guest.items)

            ranked = await model.rank(Wish("ann", k=100, exclude_seen=False), [*ids(everything.items)[::-1], "no such"])
            known = [pair for pair in ranked.items if pair[0] != "no such"]
            assert known == everything.items, "to the bit"
            assert dict(ranked.items)["no such"] == pytest.approx(math.log(model.p0 / (1 - model.p0)), rel=1e-6)
            assert (ranked.source, ranked.user_state) == ("model", "in_band")
            few = await model.rank(
                Wish("ann", k=2, exclude=("left/1", "no such"), exclude_seen=False), ["left/1", "left/0", "no such"]
            )
            assert ids(few.items) == ["left/0"]
            unknown = await model.rank(Wish("x", category="red"), ["left/0", "no such"])
            assert (unknown.items, unknown.source) == ([], "popular")
            assert token

    run(work())
