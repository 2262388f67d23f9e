"""What a GET may say in its query: one table for each route, from which it is read and from which it is documented.

Invariants: a name that is not in the table, a name that is given twice (but for those that may be), a value out of its
limits and bytes that are no UTF-8 are all refused, each with its name.
"""

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from saros.api.limits import TOKEN_MAX, TOKEN_SCHEMA, WAIT_MS, K, Limits, text_schema
from saros.api.problems import invalid
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
    recommend = (
        k,
        exclude,
        Parameter("exclude_seen", _flag, True, {"type": "boolean"}, "Leave out what the user clicked of late.", True),
        category,
        Parameter("scenario", _text(1, SCENARIO_MAX), "", text_schema(SCENARIO_MAX),
                  "Where it is asked, such as home or checkout; handed back.", "home"),
        Parameter("min_token", _text(1, TOKEN_MAX), "", TOKEN_SCHEMA,
                  "A token of `POST /v1/events`: wait until the model has learned from those events.", "2:1041"),
        Parameter("wait_ms", _whole(0, limits.wait_ms_max), None,
                  {"type": "integer", "minimum": 0, "maximum": limits.wait_ms_max},
                  f"How long to wait for the token, {min(WAIT_MS, limits.wait_ms_max)} unless it is given.", 250),
    )  # fmt: skip
    return Tables(
        recommend=_table(*recommend),
        recommend_query=_table(user, *recommend),
        similar=_table(k, exclude, category),
        similar_query=_table(item, k, exclude, category),
        popular=_table(k, category),
    )


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
