"""Reads a settings model from environment variables, and says in plain words what is wrong with them.

Knows no setting by name: `saros.settings` holds those. Invariants:

- Nothing is guessed: a wrong value, or a variable that has the prefix and names no setting, is an error that says what
  to change. All wrong variables are reported at once, one line each.
- The value of a secret (`SecretStr`) is never shown, neither by `describe` nor in an error. Nor is the value of a
  variable that names no setting: it may be a misspelt secret.
"""

import os
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Literal, NamedTuple, TypeVar, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource

from saros.errors import Problem, SettingsError

_S = TypeVar("_S", bound=BaseSettings)

_SHOWN_CHARACTERS_MAX = 60

# What pydantic's error types mean to somebody who set a variable. Types not listed here keep pydantic's own words.
_COMPLAINTS = {
    "bool_parsing": "is neither true nor false",
    "finite_number": "is not a finite number",
    "float_parsing": "is not a number",
    "greater_than": "is too small",
    "greater_than_equal": "is too small",
    "int_from_float": "is not a whole number",
    "int_parsing": "is not a whole number",
    "int_parsing_size": "is too large",
    "less_than": "is too large",
    "less_than_equal": "is too large",
    "literal_error": "is not one of the choices",
    "string_pattern_mismatch": "has the wrong form",
}

_LIMITS = {"ge": "from", "gt": "above", "le": "up to"}

# Kubernetes gives every pod variables about the services beside it, named after them: for a service `saros-api`,
# SAROS_API_SERVICE_HOST=10.0.0.7 and SAROS_API_PORT=tcp://10.0.0.7:80. Nobody mistyped those.
_KUBERNETES = re.compile(
    r"\w+_SERVICE_(HOST|PORT(_\w+)?)=.*|\w+_PORT_[0-9]+_(TCP|UDP|SCTP)(_\w+)?=.*|\w+_PORT=(tcp|udp|sctp)://.*"
)


class Allowed(NamedTuple):
    """What a field takes, in words, where its type and its limits do not say it. Stands in the field's `Annotated`."""

    words: str


class Setting(NamedTuple):
    """One setting as it stands, for people and for JSON. A secret's value is already hidden."""

    variable: str
    concern: str
    value: int | float | bool | str
    source: Literal["default", "environment"]
    description: str
    allowed: str


def read(model: type[_S], environ: Mapping[str, str] | None = None) -> _S:
    """Return the settings that `environ` (default: this process's environment) asks for."""
    environ = os.environ if environ is None else environ
    fields = {variable: field for variable, _, _, field in _fields(model)}
    given = {variable: environ[variable] for variable in fields if variable in environ}
    problems = list(_strangers(model, environ, set(fields)))
    source = EnvSettingsSource(model)
    source.env_vars = {variable.lower(): text for variable, text in given.items()}
    try:
        settings = model(**source())
    except ValidationError as error:
        problems += [_problem(model, details, given, fields) for details in error.errors()]
    if problems:
        raise SettingsError(problems)
    return settings


def describe(settings: BaseSettings) -> list[Setting]:
    """Return every setting in the order of the models: its variable, value, source and meaning."""
    # In JSON mode pydantic prints a secret as stars.
    values = settings.model_dump(mode="json")
    return [
        Setting(
            variable=variable,
            concern=concern,
            value=values[concern][name],
            source="environment" if name in getattr(settings, concern).model_fields_set else "default",
            description=field.description or "",
            allowed=_allowed(field),
        )
        for variable, concern, name, field in _fields(type(settings))
    ]


def _fields(model: type[BaseSettings]) -> Iterator[tuple[str, str, str, FieldInfo]]:
    """Yield (variable, concern, name, field) of every setting."""
    for concern, inner in model.model_fields.items():
        kind = inner.annotation
        assert isinstance(kind, type), concern
        assert issubclass(kind, BaseModel), concern
        for name, field in kind.model_fields.items():
            yield _variable(model, concern, name), concern, name, field


def _variable(model: type[BaseSettings], concern: str, name: str) -> str:
    prefix, delimiter = model.model_config["env_prefix"], model.model_config["env_nested_delimiter"]
    return f"{prefix}{concern}{delimiter}{name}".upper()


def _strangers(model: type[BaseSettings], environ: Mapping[str, str], known: set[str]) -> Iterator[Problem]:
    """Yield a problem for each variable that has the prefix and names no setting: most likely a typo."""
    prefix = model.model_config["env_prefix"].upper()
    for variable in sorted(environ):
        upper = variable.upper()
        if variable in known or not upper.startswith(prefix) or upper.startswith(f"{prefix}TEST_"):
            continue
        if "__" not in variable and _KUBERNETES.fullmatch(f"{variable}={environ[variable]}"):
            continue
        close = get_close_matches(upper, sorted(known), n=1)
        hint = f"did you mean {close[0]}?" if close else "unset it; `saros config` then lists all settings"
        yield Problem(f"{_one_line(variable)} names no setting", hint)


def _problem(
    model: type[BaseSettings], details: ErrorDetails, given: Mapping[str, str], fields: Mapping[str, FieldInfo]
) -> Problem:
    """Say what is wrong with one variable, and what it takes."""
    context = details.get("ctx", {})
    path = [str(part) for part in details["loc"]]
    # A check over several fields names the one it complains about; over several concerns, with its concern.
    concern, name = path[:2] if len(path) > 1 else [*path, *context["field"].split(".")]
    variable = _variable(model, concern, name)
    field = fields[variable]
    value = "<hidden>" if _is_secret(field) else _one_line(given[variable])
    complaint = _COMPLAINTS.get(details["type"], details["msg"])
    return Problem(f"{variable}={value} {complaint}", context.get("hint", f"give {_allowed(field)}"))


def _is_secret(field: FieldInfo) -> bool:
    return SecretStr in (field.annotation, *get_args(field.annotation))


def _one_line(text: str) -> str:
    """Return `text` fit for one line of an error: no control characters, not too long."""
    shown = text if text.isprintable() else ascii(text)
    return shown if len(shown) <= _SHOWN_CHARACTERS_MAX else f"{shown[:_SHOWN_CHARACTERS_MAX]}…"


def _allowed(field: FieldInfo) -> str:
    """Say what the field takes: from its `Allowed`, or from its type and limits."""
    for extra in field.metadata:
        if isinstance(extra, Allowed):
            return extra.words
    if get_origin(field.annotation) is Literal:
        *words, last = (f"'{word}'" for word in get_args(field.annotation))
        return f"{', '.join(words)} or {last}" if words else last
    if field.annotation is bool:
        return "'true' or 'false'"
    return _range(field)


def _range(field: FieldInfo) -> str:
    limits = {name: getattr(extra, name) for extra in field.metadata for name in _LIMITS if hasattr(extra, name)}
    noun = "a whole number" if field.annotation is int else "a number" if field.annotation is float else "a text"
    return noun + "".join(f" {_LIMITS[name]} {limit}" for name, limit in limits.items())
