"""Items, users and the gate through the client, against a real API."""

import asyncio
from collections.abc import Iterator

import pytest

from saros.client import (
    AsyncClient,
    Client,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NoAnswerError,
    NotFoundError,
    Retries,
)
from tests.client.between import Between, drop_after, problem
from tests.client.conftest import KEYS
from tests.client.test_client import WAIT_MS, taught

SOON = Retries(first_s=0.01, most_s=0.05)


@pytest.fixture
def client(between: Between) -> Iterator[Client]:
    with Client(between.own_url, key=KEYS["admin"], retries=SOON) as found:
        yield found


def test_items(client: Client, between: Between) -> None:
    between.faults = [problem(429, "queue-full"), drop_after]
    token = client.put_item("a/b ?", categories=["horror"], properties={"title": "Ä"})
    item = client.get_item("a/b ?", min_token=token, wait_ms=WAIT_MS)
    assert (item.item_id, item.categories, item.properties, item.served) == ("a/b ?", ("horror",), {"title": "Ä"}, True)
    assert (item.hidden, item.expires_at, item.updates, item.token_reached) == (False, None, 0, True)
    token = client.patch_item("a/b ?", hidden=True, expires_at=4_000_000_000)
    item = client.get_item("a/b ?", min_token=token, wait_ms=WAIT_MS)
    assert (item.categories, item.hidden, item.expires_at) == (("horror",), True, 4_000_000_000_000)
    token = client.patch_item("a/b ?", hidden=False, expires_at=0)
    assert client.get_item("a/b ?", min_token=token, wait_ms=WAIT_MS).expires_at is None
    token = client.delete_item("a/b ?")
    with pytest.raises(NotFoundError):
        client.get_item("a/b ?", min_token=token, wait_ms=WAIT_MS)
    with pytest.raises(InvalidError):
        client.patch_item("a/b ?")


def test_many_items(client: Client) -> None:
    receipt = client.batch_items([
        {"op": "put", "item_id": "one", "categories": ["x"]}, {"op": "patch", "item_id": "nobody", "hidden": True},
        {"op": "patch", "item_id": "one", "hidden": True}, {"op": "delete", "item_id": "two"},
    ])  # fmt: skip
    assert (receipt.accepted, [(bad.index, bad.reason) for bad in receipt.rejected]) == (3, [(1, "unknown_item")])
    assert client.get_item("one", min_token=receipt.token, wait_ms=WAIT_MS).hidden


def test_users(client: Client) -> None:
    token = client.send_events(taught("to be erased")).token
    user = client.get_user("to be erased", min_token=token, wait_ms=WAIT_MS)
    assert (user.blocks, user.band, user.learned, user.token_reached) == (2, "in_band", 2, True)
    erased = client.erase_user("to be erased")
    assert erased.erased
    assert all(what and until for what, until in erased.not_erased)
    with pytest.raises(NotFoundError):
        client.get_user("to be erased", min_token=erased.token, wait_ms=WAIT_MS)


def test_the_gate(client: Client, between: Between, url: str) -> None:
    before = client.gate()
    changed = client.change_gate(blocks_max=14, window_days=3, revision=before.revision)
    after = client.gate(min_token=changed.token, wait_ms=WAIT_MS)
    assert (after.revision, after.in_force) == (changed.revision, True)
    assert (after.settings["blocks_max"], after.settings["window_days"]) == (14, 3)
    assert len(after.partitions) == 3
    with pytest.raises(ConflictError):
        client.change_gate(blocks_max=15, revision=before.revision)
    assert client.simulate_gate(1, 60)["users"]["share"] >= 0
    between.seen.clear()
    between.faults = [problem(429, "queue-full"), drop_after]
    with pytest.raises(NoAnswerError):
        client.change_gate(blocks_max=13)
    assert len(between.seen) == 2, "what was refused is tried again; what may have been done is not"
    with Client(url, key=KEYS["read"]) as reader:
        assert reader.gate().revision >= before.revision
        with pytest.raises(ForbiddenError):
            reader.change_gate(blocks_max=13)


def test_recommendations_with_more(client: Client) -> None:
    token = client.send_events(taught("curious", "other")).token
    answer = client.recommend(
        "curious", k=2, explain=True, diversity=0.3, exclude_seen=False, min_token=token, wait_ms=WAIT_MS
    )
    assert all(item.explain for item in answer.items)
    many = client.recommend_many(["curious"], explore=0.5, seed="fixed", exclude_seen=False)
    assert all(item.explored is not None for item in many[0].items)


def test_the_same_to_be_awaited(url: str) -> None:
    async def ask() -> None:
        async with AsyncClient(url, key=KEYS["admin"]) as client:
            token = await client.put_item("awaited", hidden=True)
            assert (await client.get_item("awaited", min_token=token, wait_ms=WAIT_MS)).hidden
            assert (await client.gate()).partitions

    asyncio.run(ask())
