"""What a GET may say in its query: one table for each route, from which it is read and from which it is documented.

Invariants: a name that is not in the table, a name that is given twice (but for those that may be), a value out of its
limits and bytes that are no UTF-8 are all refused, each with its name.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from saros.api.limits import EXTRAS_K_MAX, SEED_MAX, TOKEN_MAX, TOKEN_SCHEMA, WAIT_MS, K, Limits, text_schema
from saros.api.plan import Extras
from saros.api.problems import invalid
from saros.api.replies import new_id
from saros.wire.columns import ID_MAX, SCENARIO_MAX
from saros.wire.rare import CATEGORY_MAX


class Parameter(NamedTuple):
    """A parameter: how it is read from its text, and what the documentation says of it."""

    name: str
    read: Callable[[str, str], Any]  # of its name, for errors, and its text
    default: Any
    schema: dict[str, object]
    says: str
    example: object
    many: int = 0  # may be given so many times; 0: once
    required: bool = False


Table = dict[str, Parameter]
EXTRAS = frozenset(("explore", "diversity", "explain"))  # whatever has none of them is answered the plain way
_BOUND_MAX = 1_000_000  # of b and B
_PULSES_MAX = 3600  # that may be asked for; who wants more leaves the stream open
_NUMBER = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")


def text_of(name: str, text: str, least: int, most: int, where: str = "query") -> str:
    """Return a text if it has as many bytes as it should."""
    size = len(text) if text.isascii() else len(text.encode())
    if not least <= size <= most:
        raise invalid(where, name, f"has {size} bytes, not {least} to {most}")
    return text


def decoded(raw: bytes, where: str, name: str) -> str:
    """Return percent-encoded bytes as text."""
    try:
        return (unquote_to_bytes(raw) if b"%" in raw else raw).decode()
    except UnicodeDecodeError:
        raise invalid(where, name, "is not UTF-8") from None


def _whole(least: int, most: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        # Python itself would also take "+5", " 5", "1_0" and other scripts' digits.
        if len(text) <= 10 and text.isascii() and text.isdecimal() and least <= (number := int(text)) <= most:
            return number
        raise invalid("query", name, f"is not a whole number from {least} to {most}")

    return read


def _share(name: str, text: str) -> float:
    # Python itself would also take "nan", " 1", "1_0" and other scripts' digits.
    if len(text) <= 32 and _NUMBER.fullmatch(text) and (number := float(text)) <= 1:
        return number
    raise invalid("query", name, "is not a number from 0 to 1, such as 0.25")


def _flag(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise invalid("query", name, "is neither true nor false")
    return text == "true"


def _text(least: int, most: int) -> Callable[[str, str], str]:
    return lambda name, text: text_of(name, text, least, most)


def _table(*parameters: Parameter) -> Table:
    return {parameter.name: parameter for parameter in parameters}


class Tables(NamedTuple):
    """The tables of all routes with a query."""

    recommend: Table  # for the user in the path
    recommend_query: Table  # for the user in the query
    similar: Table
    similar_query: Table
    popular: Table
    item: Table  # these have their id in the query; in the path is another form of them
    item_write: Table
    user: Table
    user_write: Table
    gate: Table
    simulate: Table
    live: Table


def tables_of(limits: Limits) -> Tables:
    """Return the tables with the limits that are set."""
    id_schema = text_schema(ID_MAX)
    user = Parameter("user_id", _text(1, ID_MAX), None, id_schema, "Whose; any UTF-8 of 1 to 256 bytes.", "ann",
                     required=True)  # fmt: skip
    item = Parameter("item_id", _text(1, ID_MAX), None, id_schema, "Of which item; any UTF-8 of 1 to 256 bytes.",
                     "alien", required=True)  # fmt: skip
    k = Parameter("k", _whole(1, limits.k_max), min(K, limits.k_max),
                  {"type": "integer", "minimum": 1, "maximum": limits.k_max}, "How many items.", 5)  # fmt: skip
    exclude = Parameter(
        "exclude", _text(1, ID_MAX), (), {"type": "array", "items": id_schema, "maxItems": limits.exclude_max},
        "An item to leave out; may be given again and again.", ["brazil"], many=limits.exclude_max,
    )  # fmt: skip
    category = Parameter("category", _text(1, CATEGORY_MAX), "",
                         text_schema(CATEGORY_MAX),
                         "Only items of this category.", "horror")  # fmt: skip
    share_schema: dict[str, object] = {"type": "number", "minimum": 0, "maximum": 1}
    waiting = (
        Parameter("min_token", _text(1, TOKEN_MAX), "", TOKEN_SCHEMA,
                  "A token of an earlier answer: wait until the model has learned of what was written then.", "2:1041"),
        Parameter("wait_ms", _whole(0, limits.wait_ms_max), None,
                  {"type": "integer", "minimum": 0, "maximum": limits.wait_ms_max},
                  f"How long to wait for the token, {min(WAIT_MS, limits.wait_ms_max)} unless it is given.", 250),
    )  # fmt: skip
    bound_schema: dict[str, object] = {"type": "integer", "minimum": 1, "maximum": _BOUND_MAX}
    recommend = (
        k,
        exclude,
        Parameter("exclude_seen", _flag, True, {"type": "boolean"}, "Leave out what the user clicked of late.", True),
        category,
        Parameter("scenario", _text(1, SCENARIO_MAX), "", text_schema(SCENARIO_MAX),
                  "Where it is asked, such as home or checkout; handed back.", "home"),
        *waiting,
        Parameter("explore", _share, 0.0, share_schema,
                  "The share of places that go to items of which little is known yet.", 0.1),
        Parameter("diversity", _share, 0.0, share_schema,
                  "How much it counts against an item that it is like those before it.", 0.3),
        Parameter("explain", _flag, False, {"type": "boolean"}, "Say of each item what its score is made of.", True),
        Parameter("seed", _text(1, SEED_MAX), "", text_schema(SEED_MAX),
                  "What is drawn with `explore` comes from it; the `recommendation_id`, unless it is given.",
                  "5f0c8a1e9d3b7c42-1a"),
    )  # fmt: skip
    return Tables(
        recommend=_table(*recommend),
        recommend_query=_table(user, *recommend),
        similar=_table(k, exclude, category),
        similar_query=_table(item, k, exclude, category),
        popular=_table(k, category),
        item=_table(item, *waiting),
        item_write=_table(item),
        user=_table(user, *waiting),
        user_write=_table(user),
        gate=_table(*waiting),
        simulate=_table(
            Parameter("blocks_min", _whole(1, _BOUND_MAX), None, bound_schema, "The paper's b.", 1, required=True),
            Parameter("blocks_max", _whole(1, _BOUND_MAX), None, bound_schema, "The paper's B.", 60, required=True),
        ),
        live=_table(
            Parameter(
                "count",
                _whole(1, _PULSES_MAX),
                None,
                {"type": "integer", "minimum": 1, "maximum": _PULSES_MAX},
                "End after so many pulses; without it the stream has no end.",
                1,
            ),
        ),
    )


def extras_of(given: Mapping[str, Any], where: str, k: int) -> Extras | None:
    """Return what is asked for beyond the best items, or None; k is how many of them."""
    explore, diversity, explain = given.get("explore", 0.0), given.get("diversity", 0.0), given.get("explain", False)
    if not (explore or diversity or explain):
        return None
    if k > EXTRAS_K_MAX:
        raise invalid(where, "k", f"is above {EXTRAS_K_MAX}, the most with explore, diversity or explain")
    own_id = new_id()
    return Extras(own_id, given.get("seed") or own_id, explore, diversity, explain)


def read_query(table: Table, query: bytes) -> dict[str, Any]:
    """Return the values that a query gives, by name; what it does not give is not in there."""
    found: dict[str, Any] = {}
    for pair in query.split(b"&") if query else ():
        if not pair:
            continue
        raw_name, _, raw = pair.partition(b"=")
        parameter = table.get(name := decoded(raw_name.replace(b"+", b" "), "query", "a name"))
        if parameter is None:
            raise invalid("query", name[:64], f"is not known here; known are {', '.join(table)}")
        value = parameter.read(name, decoded(raw.replace(b"+", b" "), "query", name))
        if not parameter.many:
            if name in found:
                raise invalid("query", name, "is given twice")
            found[name] = value
            continue
        values = found.setdefault(name, [])
        if len(values) == parameter.many:
            raise invalid("query", name, f"is given more than {parameter.many} times")
        values.append(value)
    for name, parameter in table.items():
        if parameter.required and name not in found:
            raise invalid("query", name, "is missing")
    return found
