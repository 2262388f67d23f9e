"""Servers that the API is measured beside: `python -m saros.lab.bench.answering raw|fastapi FILE`.

Both send the answer in the file, whoever asks, over uvicorn with uvloop and httptools as the API does: `raw` as bytes,
by an ASGI app that does nothing else; `fastapi` the plain way, out of a route with checked parameters through a
response model.
"""

import gc
import json
import socket
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import uvicorn
from fastapi import FastAPI, Query
from fastapi import Path as InPath
from pydantic import BaseModel, Field

_KEEP_ALIVE_S = 75


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


def fastapi_app(answer: bytes) -> Any:
    """Return an app that takes the parameters of the API's hot route, and sends an answer."""
    app, found = FastAPI(openapi_url=None), json.loads(answer)
    text = Query(min_length=1, max_length=256)

    @app.get("/v1/users/{user_id}/recommendations", response_model=Recommendations)
    async def recommend(
        user_id: Annotated[str, InPath(min_length=1, max_length=256)],
        k: Annotated[int, Query(ge=1, le=1000)] = 10,
        exclude: Annotated[list[Annotated[str, Field(min_length=1)]], Query(max_length=1000)] = [],  # noqa: B006
        exclude_seen: bool = True,
        category: Annotated[str | None, text] = None,
        scenario: Annotated[str | None, text] = None,
        min_token: Annotated[str | None, text] = None,
        wait_ms: Annotated[int | None, Query(ge=0, le=10_000)] = None,
    ) -> Any:
        return found

    return app


def main(kind: str, file: str) -> None:
    """Serve until it is ended."""
    app = {"raw": raw_app, "fastapi": fastapi_app}[kind](Path(file).read_bytes())
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
