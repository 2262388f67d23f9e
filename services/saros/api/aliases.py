"""Routes with an id in the path: each is another form of one that has it in the query.

The framework sees a path only when its escapes are gone, and with them what tells a "/" of an id from others. So the
id is taken from the raw path, and put into the query of the other form, which the framework serves. It is checked
there; one that stands in both places is given twice.
"""

from typing import NamedTuple
from urllib.parse import quote_from_bytes, unquote_to_bytes

from starlette.types import ASGIApp, Receive, Scope, Send


class Alias(NamedTuple):
    """A route `head` + id, which is `path` with the id as a parameter."""

    template: str
    head: bytes
    path: str
    name: str  # of the parameter


ALIASES = (
    Alias("/v1/items/{item_id}", b"/v1/items/", "/v1/items", "item_id"),
    Alias("/v1/users/{user_id}", b"/v1/users/", "/v1/users", "user_id"),
)


class Aliased:
    """An app that is asked in the other form."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "http":
            for alias in ALIASES:
                if scope["raw_path"].startswith(alias.head):
                    _rewrite(scope, alias)
        await self._app(scope, receive, send)


def _rewrite(scope: Scope, alias: Alias) -> None:
    """Make a request's scope what the other form would have."""
    # In a path "+", "&" and "=" stand for themselves.
    raw = quote_from_bytes(unquote_to_bytes(scope["raw_path"][len(alias.head) :]), safe="")
    own = f"{alias.name}={raw}".encode()
    scope["query_string"] = b"&".join(filter(None, (own, scope["query_string"])))
    scope["path"], scope["raw_path"] = alias.path, alias.path.encode()
