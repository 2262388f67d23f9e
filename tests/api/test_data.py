"""Items, users and the gate over HTTP, Kafka, the store and trainers: what was written is so, and stays so."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any
from urllib.parse import quote

import httpx

from saros.adapters.redis import Store
from saros.api.model import Wish
from saros.core.events import DAY_MS
from saros.core.ids import hash_texts
from saros.settings import load
from saros.wire.partitions import partitions_of
from tests.api.runs import SHARDS, Sender, run, serving, until
from tests.api.test_end_to_end import PATIENCE_S, Api, click, names, show, started, taught
from tests.store import connect
from tests.trainer.runs import PARTITIONS, Model, await_until, running

WAIT = {"wait_ms": 10_000}
WINDOW_DAYS = 2


def write(api: Api, method: str, item: str, **fields: Any) -> str:
    """Write what is to be known of an item; return the token."""
    body = fields if method != "DELETE" else None
    answer = api.client.request(method, f"/v1/items/{quote(item, safe='')}", json=body)
    assert answer.status_code == 202, answer.text
    assert answer.json()["item_id"] == item
    token: str = answer.json()["token"]
    return token


def read(api: Api, item: str, token: str = "") -> httpx.Response:
    more: dict[str, Any] = {"min_token": token, **WAIT} if token else {}
    return api.client.get("/v1/items", params={"item_id": item, **more})


def served(api: Api, item: str, token: str) -> bool:
    """Whether an item is in an answer; all kinds of answers have to agree."""
    everything = api.recommend("ann", k=100, min_token=token, **WAIT)
    assert everything["token_reached"]
    found = {
        item in names(everything),
        item in names(api.client.get("/v1/popular", params={"k": 100}).json()),
        item in names(api.client.get("/v1/similar", params={"item_id": "good/0", "k": 100}).json()),
        item in names(api.client.post("/v1/rank", json={"user_id": "bob", "candidates": [item, "bad/1"]}).json()),
        item in names(api.client.post("/v1/recommendations", json={"session": [], "k": 100}).json()),
    }
    (same,) = found
    return same


def test_items_are_put_changed_deleted_and_revived(live: Model) -> None:
    with started(live) as api:
        api.await_ready()
        token = api.send(*[event for k in range(4) for event in taught(f"user/{k}", 4)])
        assert read(api, "good/0", token).json()["token_reached"]
        assert read(api, "no/such").json()["type"] == "urn:saros:problem:unknown-item"
        token = write(api, "PUT", "new/ é", categories=["a", "b"], properties={"title": "N"}, expires_at=99999999999)
        told = read(api, "new/ é", token).json()
        assert told == {
            "item_id": "new/ é", "categories": ["a", "b"], "hidden": False, "expires_at": 99999999999000,
            "properties": {"title": "N"}, "served": True, "updates": 0, "clicked": 0, "shown": 0, "token_reached": True,
        }  # fmt: skip
        assert served(api, "new/ é", token)
        assert names(api.recommend("ann", category="b")) == ["new/ é"]

        token = write(api, "PATCH", "new/ é", hidden=True)
        assert not served(api, "new/ é", token)
        changed = read(api, "new/ é").json()
        assert (changed["hidden"], changed["served"], changed["categories"]) == (True, False, ["a", "b"])
        assert changed["properties"] == {"title": "N"}
        token = write(api, "PATCH", "new/ é", hidden=False, categories=["c"], expires_at=None)
        changed = read(api, "new/ é", token).json()
        assert (changed["hidden"], changed["categories"], changed["expires_at"]) == (False, ["c"], None)
        assert changed["properties"] == {"title": "N"}, "what is not given stays"
        assert names(api.recommend("ann", category="b")) == []
        token = write(api, "PUT", "new/ é", hidden=False)
        assert read(api, "new/ é", token).json()["properties"] == {}, "a put replaces all of it"

        # One that has taught is changed, too; and what it learned is its own.
        token = write(api, "PATCH", "good/1", properties={"x": "y"})
        told = read(api, "good/1", token).json()
        assert (told["categories"], told["properties"], told["served"]) == ([], {"x": "y"}, True)
        assert told["updates"] >= told["clicked"] > 0

        for item in ("good/1", "never/heard of"):
            token = write(api, "DELETE", item)
            assert not served(api, item, token)
            assert read(api, item).status_code == 404
            assert api.client.patch("/v1/items", params={"item_id": item}, json={"hidden": False}).status_code == 404
            token = api.send(
                show("zoe", "bad/1", item), click("zoe", item), show("zoe", "bad/2"), click("zoe", "bad/2")
            )
            assert not served(api, item, token), "whatever comes of it later"
            token = write(api, "PUT", item, categories=["back"])
            assert served(api, item, token)
            assert read(api, item).json()["updates"] > 0
        live.sent += 32 + 8
        await_until(lambda: live.audit().differences == 0, PATIENCE_S)


def test_changes_at_the_same_time_both_count(live: Model) -> None:
    with started(live) as one, started(live) as other:
        for api in (one, other):
            api.await_ready()
        token = write(one, "PUT", "alien")
        for api in (one, other):
            assert read(api, "alien", token).status_code == 200

        def change(turn: int) -> list[str]:
            api, word = ((one, "categories"), (other, "properties"))[turn]
            return [
                write(api, "PATCH", "alien", **{word: [f"c{k}"] if turn == 0 else {"k": str(k)}}) for k in range(30)
            ]

        with ThreadPoolExecutor(2) as pool:
            tokens = [token for each in pool.map(change, (0, 1)) for token in each]
        last = max(tokens, key=lambda token: int(token.partition(":")[2]))
        for api in (one, other):
            told = read(api, "alien", last).json()
            assert (told["categories"], told["properties"]) == (["c29"], {"k": "29"})


def test_a_batch_counts_in_its_order(live: Model) -> None:
    with started(live) as api:
        api.await_ready()
        items = [
            {"op": "put", "item_id": "a/b", "categories": ["x"]},
            {"op": "patch", "item_id": "a/b", "hidden": True},
            {"op": "patch", "item_id": "nobody knows", "hidden": True},
            {"op": "put", "item_id": "gone"},
            {"op": "delete", "item_id": "gone"},
        ]
        answer = api.client.post("/v1/items:batch", json={"items": items})
        assert answer.status_code == 202, answer.text
        told = answer.json()
        assert (told["accepted"], [(one["index"], one["reason"]) for one in told["rejected"]]) == (
            4, [(2, "unknown_item")],
        )  # fmt: skip
        kept = read(api, "a/b", told["token"]).json()
        assert (kept["categories"], kept["hidden"]) == (["x"], True)
        assert read(api, "gone").status_code == 404
        assert read(api, "nobody knows").status_code == 404
        nothing = api.client.post("/v1/items:batch", json={"items": items[2:3]})
        assert (nothing.status_code, nothing.json()["rejected"][0]["reason"]) == (422, "unknown_item")


def test_a_store_that_was_lost_has_items_and_gate_again(trained: Model) -> None:
    trainer = trained.trainer()
    with running([trainer]), started(trained) as api:
        api.await_ready()
        api.send(*[event for k in range(4) for event in taught(f"user/{k}", 4)])
        write(api, "PUT", "kept", categories=["a"], properties={"p": "1"})
        write(api, "PUT", "gone")
        write(api, "DELETE", "gone")
        read(api, "kept", write(api, "PUT", "kept", categories=["b"], properties={"p": "2"}))
        write(api, "PATCH", "kept", hidden=True)
        token = write(api, "PATCH", "good/0", categories=["top"])
        gate = api.client.patch("/v1/gate", json={"blocks_max": 9}).json()
        both = ",".join((token, gate["token"]))
        wanted = [read(api, item, both).json() for item in ("kept", "good/0")]
        stood = api.client.get("/v1/gate", params={"min_token": both, **WAIT}).json()
        trainer.terminate()
        assert trainer.wait(60) == 0
    settings = load(trained.settings)
    store = Store(settings.redis.address(), trained.name, SHARDS)
    store.wipe()
    store.close()
    with running([trained.trainer()]), started(trained) as api:
        api.await_ready()
        assert [read(api, item, both).json() for item in ("kept", "good/0")] == wanted
        assert read(api, "gone").status_code == 404
        assert api.client.get("/v1/gate", params={"min_token": both, **WAIT}).json() == stood
        assert names(api.recommend("ann", category="top")) == ["good/0"]


class Watch:
    """What must not be in an answer, since when."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._away: dict[str, int] = {}
        self._turns = 0

    def away(self, item: str, is_away: bool) -> None:
        with self._lock:
            self._turns += 1
            if is_away:
                self._away[item] = self._turns
            else:
                self._away.pop(item, None)

    def now(self) -> dict[str, int]:
        """Items that are away, each with the turn since which it is."""
        with self._lock:
            return dict(self._away)


def test_what_is_hidden_expired_or_deleted_is_never_served_while_that_changes_under_load(live: Model) -> None:
    watch, done, problems = Watch(), threading.Event(), list[str]()
    answered: Counter[str] = Counter()
    items = [f"good/{k}" for k in range(6)]
    with started(live) as api:
        api.await_ready()
        token = api.send(*[event for k in range(6) for event in taught(f"user/{k}", 6)])
        api.recommend("user/0", min_token=token, **WAIT)
        base = api.client.base_url

        def enough() -> bool:
            """Everything was away often, and asked for meanwhile."""
            ways = ("hide", "expire", "delete")
            return min(answered[how] for how in ways) >= 15 and answered["away"] >= 500

        def change(number: int) -> None:
            """Take an item away in one of three ways, see that the API knows it, and bring it back."""
            item, rng = items[number], Random(number)
            with httpx.Client(base_url=base, timeout=PATIENCE_S) as client:
                path = f"/v1/items/{quote(item, safe='')}"
                while not done.is_set():
                    how = rng.choice(["hide", "expire", "delete"])
                    if how == "hide":
                        answer = client.patch(path, json={"hidden": True})
                    elif how == "expire":
                        until_s = time.time() + 0.05
                        answer = client.patch(path, json={"expires_at": until_s * 1000})
                    else:
                        answer = client.delete(path)
                    assert answer.status_code == 202, answer.text
                    known = client.get(path, params={"min_token": answer.json()["token"], **WAIT})
                    assert known.status_code == (404 if how == "delete" else 200), known.text
                    if how == "expire":
                        time.sleep(max(0.0, until_s + 0.002 - time.time()))
                    watch.away(item, True)
                    done.wait(0.05)
                    watch.away(item, False)
                    answer = client.put(path, json={"categories": ["c"]})
                    assert answer.status_code == 202, answer.text
                    client.get(path, params={"min_token": answer.json()["token"], **WAIT})
                    answered[how] += 1

        def ask(number: int) -> None:
            """Ask in every way there is; what was away before and after must not be in the answer."""
            asks: list[tuple[str, Any]] = [
                ("/v1/users/user%2F1/recommendations?k=50&exclude_seen=false", None),
                ("/v1/users/cold/recommendations?k=50&explore=0.5&explain=true", None),
                ("/v1/users/user%2F2/recommendations?k=50&exclude_seen=false&diversity=0.5&explain=true", None),
                ("/v1/users/user%2F3/recommendations?k=50&explore=1&exclude_seen=false&explain=true", None),
                ("/v1/popular?k=50", None),
                ("/v1/items/bad%2F1/similar?k=50", None),
                ("/v1/rank", {"user_id": "user/1", "candidates": [*items, "bad/1"]}),
                ("/v1/rank", {"session": [{"item": "bad/2", "kind": "click"}], "candidates": [*items, "bad/1"]}),
                ("/v1/recommendations", {"users": ["user/1", "cold"], "k": 50, "exclude_seen": False, "explain": True}),
            ]
            with httpx.Client(base_url=base, timeout=PATIENCE_S) as client:
                while not done.is_set():
                    for path, body in asks:
                        before = watch.now()
                        answer = client.get(path) if body is None else client.post(path, json=body)
                        after = watch.now()
                        if answer.status_code != 200:
                            problems.append(answer.text)
                        away = {item for item, turn in before.items() if after.get(item) == turn}
                        wrong = {item for item in away if f'"{item}"' in answer.text}
                        problems.extend(f"{path} {body}: {wrong}" for _ in wrong)
                        answered["asked"] += 1
                        answered["away"] += bool(away)

        def feed() -> None:
            with httpx.Client(base_url=base, timeout=PATIENCE_S) as client:
                for k in range(100_000):
                    if done.wait(0.01):
                        return
                    item = items[k % len(items)]
                    events = [show(f"feeder {k % 9}", "bad/1", "bad/3", item), click(f"feeder {k % 9}", item)]
                    assert client.post("/v1/events", json=events).status_code == 202

        with ThreadPoolExecutor(16) as pool:
            work = [pool.submit(change, number) for number in range(len(items))]
            work += [pool.submit(ask, number) for number in range(3)]
            work.append(pool.submit(feed))
            await_until(lambda: enough() or any(one.done() for one in work), 150)
            done.set()
            for one in work:
                one.result()
    assert problems == []
    assert enough(), answered


def counters(api: Api, item: str) -> tuple[int, int, int]:
    answer = read(api, item)
    if answer.status_code == 404:
        return 0, 0, 0
    told = answer.json()
    return told["updates"], told["clicked"], told["shown"]


def mentions(url: str, model: str, key: bytes) -> list[bytes]:
    """All keys of a model's store that hold eight bytes, in their name, a field or a value."""
    client = connect(url)
    found = []
    for name in client.scan_iter(match=b"{%s:*" % model.encode(), count=1000):
        kind = client.type(name)
        if kind == b"none":
            continue  # it has gone meanwhile
        if kind == b"hash":
            texts = [part for pair in client.hgetall(name).items() for part in pair]
        else:
            assert kind == b"string", (name, kind)
            texts = [client.get(name) or b""]
        if any(key in text for text in (name, *texts)):
            found.append(name)
    client.close()
    return found


def test_who_is_erased_leaves_nothing_and_taught_nothing(live: Model, sender: Sender) -> None:
    settings = load(live.settings)
    with started(live) as api:
        api.await_ready()
        events = [event for k in range(4) for event in taught(f"user/{k}", 4)] + taught("other", 5)
        before = api.send(*events)
        assert api.recommend("other", min_token=before, **WAIT)["token_reached"]
        own = ["good/0", "good/2", "bad/1", "eve/1", "eve/2"]
        stood = {item: counters(api, item) for item in own}
        events = [
            event
            for k in range(3)
            for event in (show("eve", "bad/1", "eve/1", f"good/{k}"), click("eve", f"good/{k}"), show("eve", "eve/2"))
        ]
        token = api.send(*events)
        told = api.client.get("/v1/users/eve", params={"min_token": token, **WAIT}).json()
        assert told["token_reached"]
        assert (told["blocks"], told["blocks_in_window"], told["band"]) == (3, 3, "in_band")
        assert (told["held"], told["learned"], told["left_out"], told["moved"]) == (0, 3, 0, 3)
        assert {item: counters(api, item) for item in own} != stood

        async def work() -> None:
            nonlocal token
            async with serving(live) as model:
                (known,) = await model.recommend([Wish("eve", token=token, wait_ms=9000)])
                assert known.source == "model"
                world = model._world
                assert world is not None
                key = hash_texts(world.hash_key, ["eve"])
                people = world.people
                arrays, slot = people._arrays, int(people._table.find(key)[0])
                row, seen = arrays.rows[slot].tobytes(), arrays.seen[slot, : arrays.seen_count[slot]].tolist()
                assert any(arrays.rows[slot])
                assert seen
                assert mentions(settings.redis.url, live.name, key.tobytes())
                answer = api.client.delete("/v1/users/eve")
                assert answer.status_code == 202
                told = answer.json()
                token = told["token"]
                assert len(told["erased"]) == 4
                assert {"what", "until"} == set(told["not_erased"][0])
                (gone,) = await model.recommend([Wish("eve", token=token, wait_ms=9000)])
                assert (gone.source, gone.user_state, gone.token_reached) == ("popular", "cold", True)
                arrays = people._arrays
                assert row not in arrays.rows.tobytes(), "nothing of it stays in memory"
                assert not arrays.seen[slot].any()
                assert not arrays.numbers[slot].any()
                assert not model._inbox
                await until(lambda: not mentions(settings.redis.url, live.name, key.tobytes()), live.logs)

        run(work())
        answer = api.client.get("/v1/users/eve", params={"min_token": token, **WAIT})
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:saros:problem:unknown-user")
        assert {item: counters(api, item) for item in own} == stood, "what it taught is taken back"
        again = api.recommend("eve")
        assert (again["source"], again["user_state"]) == ("popular", "cold")
        # Whoever was never seen can be erased, too.
        assert api.client.delete("/v1/users", params={"user_id": "nobody/at all"}).status_code == 202
        live.sent += 32 + 10 + len(events) + 2
        await_until(lambda: live.audit().events == live.sent, PATIENCE_S)
    live.check()


def test_a_change_of_the_gate_comes_into_force_everywhere(live: Model) -> None:
    with started(live) as api, started(live) as other:
        for each in (api, other):
            each.await_ready()
        first = api.client.get("/v1/gate").json()
        assert (first["revision"], first["in_force"]) == (0, True)
        assert (first["settings"]["blocks_min"], first["settings"]["blocks_max"]) == (2, 12)
        assert [part["revision"] for part in first["partitions"]] == [0] * PARTITIONS
        token = api.send(*taught("ann", 6))
        told = api.client.get("/v1/users/ann", params={"min_token": token, **WAIT}).json()
        assert (told["band"], told["learned"]) == ("in_band", 6)

        changed = api.client.patch("/v1/gate", json={"blocks_max": 6, "own_row": "learn", "revision": 0})
        assert changed.status_code == 202, changed.text
        assert (changed.json()["revision"], changed.json()["settings"]["blocks_max"]) == (1, 6)
        asked = {"min_token": changed.json()["token"], **WAIT}
        for each in (api, other):
            stands = each.client.get("/v1/gate", params=asked).json()
            assert stands["token_reached"]
            assert (stands["revision"], stands["in_force"]) == (1, True)
            assert stands["settings"] == first["settings"] | {"blocks_max": 6, "own_row": "learn"}
            assert stands["partitions"] == [
                {"partition": partition, "revision": 1, "blocks_min": 2, "blocks_max": 6}
                for partition in range(PARTITIONS)
            ]
        late = other.client.patch("/v1/gate", json={"blocks_max": 7, "revision": 0})
        assert (late.status_code, late.json()["type"]) == (409, "urn:saros:problem:conflict")
        assert late.json()["revision"] == 1
        token = api.send(show("ann", "bad/1"), click("ann", "good/50"))
        told = api.client.get("/v1/users/ann", params={"min_token": token, **WAIT}).json()
        assert (told["band"], told["learned"]) == ("above", 0), "she has passed B: all goes out"
        assert (told["taken_back"], told["taken_back_in_window"], told["left_out"]) == (6, 6, 1)

        # Two who do not know of each other: all partitions end with the same.
        with ThreadPoolExecutor(2) as pool:
            ways = [(api, {"blocks_max": 8}), (other, {"window_days": 1})]
            answers = list(pool.map(lambda way: way[0].client.patch("/v1/gate", json=way[1]), ways * 3))
        assert {answer.status_code for answer in answers} == {202}
        ends = [answer.json()["token"] for answer in answers]
        for token in ends:
            for each in (api, other):
                stands = each.client.get("/v1/gate", params={"min_token": token, **WAIT}).json()
        assert stands["in_force"]
        assert api.client.get("/v1/gate").json() == other.client.get("/v1/gate").json()
        live.sent += 14
        live.await_learned()
        with started(live) as booted:
            booted.await_ready()
            assert booted.client.get("/v1/gate").json() == api.client.get("/v1/gate").json(), "the store has it, too"
            assert booted.client.get("/v1/stats").json()["gate_revision"] == stands["revision"]
    found = live.audit()
    assert found.differences == 0, found.told
    assert found.events == live.sent


def test_what_was_taken_back_is_told_each_time_that_a_user_passes_b(live: Model) -> None:
    def told(user: str, token: str) -> tuple[str, list[int]]:
        answer = api.client.get(f"/v1/users/{user}", params={"min_token": token, **WAIT}).json()
        assert answer["token_reached"]
        names = ("blocks_in_window", "held", "learned", "taken_back", "taken_back_in_window", "left_out")
        return answer["band"], [answer[name] for name in names]

    def blocks(user: str, first: int, end: int) -> list[dict[str, Any]]:
        return [event for k in range(first, end) for event in (show(user, "bad/1"), click(user, f"good/{k}"))]

    def until_b(high: int) -> None:
        changed = api.client.patch("/v1/gate", json={"blocks_max": high}).json()
        assert api.client.get("/v1/gate", params={"min_token": changed["token"], **WAIT}).json()["in_force"]

    with started(live) as api:
        api.await_ready()
        until_b(6)
        assert told("ann", api.send(*blocks("ann", 0, 1))) == ("below", [1, 1, 0, 0, 0, 0])
        assert told("ann", api.send(*blocks("ann", 1, 6))) == ("in_band", [6, 0, 6, 0, 0, 0])
        again = blocks("ann", 5, 6)
        assert told("ann", api.send(*again)) == ("above", [7, 0, 0, 6, 6, 1])
        # Within one batch, most of it is never added; it counts as if it had been.
        assert told("bob", api.send(*blocks("bob", 0, 8))) == ("above", [8, 0, 0, 6, 6, 2])
        until_b(9)
        assert told("ann", api.send(*blocks("ann", 7, 9))) == ("in_band", [9, 0, 2, 6, 6, 1])
        assert told("ann", api.send(*blocks("ann", 9, 10))) == ("above", [10, 0, 0, 8, 8, 2])
        live.sent += 2 * (10 + 8)
        live.await_learned()
    found = live.audit()
    assert found.differences == 0, found.told
    assert found.events == live.sent


def test_a_simulated_gate_drops_what_counting_says(live: Model) -> None:
    rng, today = Random(5), 19_800
    blocks: dict[str, list[int]] = {
        f"user {k}": sorted(today - min(3, rng.randrange(5)) for _ in range(rng.choice([1, 2, 3, 5, 8, 13, 40, 150])))
        for k in range(60)
    }
    with started(live) as api:
        api.await_ready()
        nothing = api.client.get("/v1/gate/simulate?blocks_min=1&blocks_max=1").json()
        assert (nothing["users"]["total"], nothing["clicks"]["total"]) == (0, None), "nobody knows what a block has"
        token = ""
        for day in range(today - 3, today + 1):
            events = []
            for user, days in blocks.items():
                for k in range(days.count(day)):
                    at = day * DAY_MS // 1000 + 60 * k
                    shown = {"kind": "impression", "user": user, "items": ["bad"], "time": at}
                    clicked = {"kind": "click", "user": user, "item": f"{day} {k}", "time": at}
                    events += [shown, clicked]
            live.sent += len(events)
            for first in range(0, len(events), 1000):
                token = api.send(*events[first : first + 1000])
                api.client.get("/v1/gate", params={"min_token": token, **WAIT})
        homes = dict(zip(blocks, partitions_of(list(blocks), PARTITIONS).tolist(), strict=True))
        newest = {home: max(max(days) for user, days in blocks.items() if homes[user] == home) for home in range(3)}
        # A user counts with its blocks in the window that ended with its last one, if that is in the window of now.
        counts = [
            sum(day > days[-1] - WINDOW_DAYS for day in days)
            for user, days in blocks.items()
            if days[-1] > newest[homes[user]] - WINDOW_DAYS
        ]
        assert max(counts) >= 64 > min(counts)
        for low, high in ((1, 5), (2, 12), (3, 63), (1, 1), (5, 1000), (10, 40)):
            told = api.client.get("/v1/gate/simulate", params={"blocks_min": low, "blocks_max": high}).json()
            dropped = [count for count in counts if not low <= count <= high]
            assert told["users"] == {
                "total": len(counts), "dropped": len(dropped), "share": len(dropped) / len(counts), "exact": True,
            }  # fmt: skip
            assert told["blocks"]["exact"]
            assert (told["blocks"]["total"], told["blocks"]["dropped"]) == (sum(counts), sum(dropped)), (low, high)
            assert told["clicks"] == {
                "total": sum(counts), "dropped": sum(dropped), "share": told["blocks"]["share"], "exact": False,
            }, "each block has one"  # fmt: skip
        rough = api.client.get("/v1/gate/simulate?blocks_min=1&blocks_max=66").json()
        assert not rough["users"]["exact"]
        await_until(lambda: live.audit().events == live.sent, PATIENCE_S)
    live.check()
