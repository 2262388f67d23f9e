"""Servers that the API is measured beside: `python -m saros.lab.bench.answering raw|fastapi|model FILE STORE`.

All are on uvicorn with uvloop and httptools, as the API is. `raw` and `fastapi` send the answer in the file, whoever
asks: `raw` as bytes, by an ASGI app that does nothing else; `fastapi` out of a route with checked parameters through a
response model. `model` is a recommender as it is usually written: such a route, in a thread, that reads the user's row
from the store with redis-py and scores all items with numpy.
"""

import gc
import json
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import uvicorn
from fastapi import FastAPI, Query
from fastapi import Path as InPath
from pydantic import BaseModel, Field

from saros.adapters.redis import Address
from saros.adapters.redis.client import Client

_KEEP_ALIVE_S = 75
_ITEMS, _DIM = 10_000, 64


class Item(BaseModel):
    """An item of an answer."""

    item_id: str
    score: float
    rank: int


class Recommendations(BaseModel):
    """An answer."""

    recommendation_id: str
    items: list[Item]
    source: Literal["model", "session", "popular"]
    user_state: Literal["cold", "below", "in_band", "above"]
    model_time: str | None
    stale: bool
    took_ms: float


def raw_app(answer: bytes) -> Any:
    """Return an ASGI app that sends bytes, with the headers of the API."""
    headers = [
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        (b"content-length", b"%d" % len(answer)),
    ]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    return app


def row_key(user_id: str) -> bytes:
    """Return where the store has the row of a user for `model`."""
    return b"{bench}:row:" + user_id.encode()  # one slot, where the store is a cluster


@contextmanager
def rows_of(users: Sequence[str], store: Address) -> Iterator[None]:
    """Let the store have rows of these users for `model`."""
    client, keys = Client(store), [row_key(user) for user in users]
    rows = np.random.default_rng(0).normal(0, _DIM**-0.5, (len(keys), _DIM)).astype(np.float32)
    client.transaction(*(("SET", key, row.tobytes()) for key, row in zip(keys, rows, strict=True)))
    try:
        yield
    finally:
        client.unlink(keys)
        client.close()


Asked = Annotated[str, InPath(min_length=1, max_length=256)]
Size = Annotated[int, Query(ge=1, le=1000)]
Excluded = Annotated[list[Annotated[str, Field(min_length=1)]], Query(max_length=1000)]
Text = Annotated[str | None, Query(min_length=1, max_length=256)]
Wait = Annotated[int | None, Query(ge=0, le=10_000)]


def fastapi_app(answer: bytes) -> Any:
    """Return an app that takes the parameters of the API's hot route, and sends an answer."""
    app, found = FastAPI(openapi_url=None), json.loads(answer)

    @app.get("/v1/users/{user_id}/recommendations", response_model=Recommendations)
    async def recommend(
        user_id: Asked, k: Size = 10, exclude: Excluded = [], exclude_seen: bool = True,  # noqa: B006
        category: Text = None, scenario: Text = None, min_token: Text = None, wait_ms: Wait = None,
    ) -> Any:  # fmt: skip
        return found

    return app


def model_app(answer: bytes, client: Client) -> Any:
    """Return an app that finds an answer of its own."""
    app, found = FastAPI(openapi_url=None), json.loads(answer)
    items = np.random.default_rng(1).normal(0, 0.4 / _DIM**0.5, (_ITEMS, _DIM)).astype(np.float32)

    @app.get("/v1/users/{user_id}/recommendations", response_model=Recommendations)
    def recommend(
        user_id: Asked, k: Size = 10, exclude: Excluded = [], exclude_seen: bool = True,  # noqa: B006
        category: Text = None, scenario: Text = None, min_token: Text = None, wait_ms: Wait = None,
    ) -> Any:  # fmt: skip
        scores = items @ np.frombuffer(client.get(row_key(user_id)) or bytes(4 * _DIM), np.float32)
        best = np.argpartition(scores, -k)[-k:]
        best = best[np.argsort(-scores[best])]
        listed = [
            Item(item_id=f"item-{item}", score=float(scores[item]), rank=rank)
            for rank, item in enumerate(best.tolist(), start=1)
        ]
        return Recommendations(**found | {"items": listed})

    return app


def main(kind: str, file: str, store: str) -> None:
    """Serve until it is ended."""
    kinds: dict[str, Callable[[bytes], Any]] = {
        "raw": raw_app,
        "fastapi": fastapi_app,
        "model": lambda answer: model_app(answer, Client(Address(store))),
    }
    app = kinds[kind](Path(file).read_bytes())
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        sys.stdout.write(f"{kind} is listening port={listener.getsockname()[1]}\n")
        sys.stdout.flush()
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 50)  # as the API does
        config = uvicorn.Config(
            app, loop="uvloop", http="httptools", ws="none", lifespan="off", log_config=None, access_log=False,
            server_header=False, proxy_headers=False, timeout_keep_alive=_KEEP_ALIVE_S,
        )  # fmt: skip
        uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main(*sys.argv[1:])
