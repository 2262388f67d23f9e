"""The commands `saros key`: keys of callers of the API."""

import json
import sys
from typing import Annotated

import typer

from saros.console import Json
from saros.errors import InputError

app = typer.Typer(help="Make keys for callers of the API.")

_Name = Annotated[str, typer.Argument(help="Whose key it is, such as 'shop'; stands in the log.", show_default=False)]
_Scopes = Annotated[
    list[str],
    typer.Option("--scope", "-s", help="ingest (events in), read (answers out) or admin (all of it); may be repeated."),
]


@app.command()
def new(name: _Name, scope: _Scopes, as_json: Json = False) -> None:
    """Make a key and print it with its entry.

    The caller gets the key, which is kept nowhere; the entry, which holds its hash only, goes into SAROS_API__KEYS or a
    line of SAROS_API__KEYS_FILE. A file that changes is read again at once, without a restart.

    Examples:

      saros key new shop --scope ingest --scope read

      saros key new operator -s admin --json | jq -r .entry >> keys
    """
    from saros.api.keys import entry_of, new_key

    key = new_key()
    entry = entry_of(name, scope, key)
    typer.echo(json.dumps({"key": key, "entry": entry}) if as_json else f"key    {key}\nentry  {entry}")


@app.command(name="hash")
def hash_(name: _Name, scope: _Scopes, as_json: Json = False) -> None:
    """Print the entry of a key that you have.

    The key is read from standard input, as everybody on this machine can see the arguments of a command.

    Example:

      saros key hash shop --scope read < key.txt
    """
    from saros.api.keys import KEY_MOST, entry_of

    if sys.stdin.isatty():
        raise InputError("the key comes from standard input", "write: saros key hash NAME --scope read < key.txt")
    given = sys.stdin.buffer.read(KEY_MOST + 2)
    entry = entry_of(name, scope, given.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r"))
    typer.echo(json.dumps({"entry": entry}) if as_json else entry)
