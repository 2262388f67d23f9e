"""The command line: `saros <command>`.

Invariants:

- Standard output carries the answer and nothing else; everything said beside it goes to standard error.
- Exit codes: 0 done, 1 stopped by a limit or a closed pipe, 2 the user can mend it, 130 interrupted. An error of ours
  is one line, `saros: <what> — <what to do>`; any other exception is a defect and keeps its traceback.
- A command that needs settings loads them first, so a wrong one stops it before any work.

To add a command, write a function under `@app.command()`, here or in an app's `commands`. Its docstring is its help.
"""

import itertools
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

import saros
from saros import settings
from saros.api import commands as api
from saros.api import key_commands as keys
from saros.console import Json, complain, progress
from saros.environment import Setting, describe
from saros.errors import InputError, SarosError
from saros.kernels import STAGES
from saros.kernels import warm as warm_all
from saros.lab import commands as lab
from saros.lab import topics
from saros.lab import traffic_commands as traffic
from saros.lab.bench import commands as bench
from saros.trainer import commands as trainer
from saros.up import commands as up

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Settings are environment variables. See them all with `saros config`, change one with "
    "`SAROS_GATE__BLOCKS_MAX=p99 saros config`.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"saros {saros.__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """A streaming recommender that learns from every click."""


@app.command()
def config(as_json: Json = False) -> None:
    """Check the settings and print them all.

    Each is printed with its value, where the value comes from (default or environment), and what it means.

    Examples:

      saros config

      SAROS_GATE__BLOCKS_MAX=p99 saros config

      saros config --json | jq .SAROS_GATE__BLOCKS_MAX.value
    """
    lines = describe(settings.load())
    if as_json:
        _print_json(lines)
    elif sys.stdout.isatty():
        _print_table(lines)
    else:
        _print_plain(lines)


@app.command()
def warm(as_json: Json = False) -> None:
    """Compile the kernels, so that nothing waits for a compiler later.

    They are kept on disk: a minute or two the first time, a second afterwards. NUMBA_CACHE_DIR moves the place. Where
    another process compiles them already, this one waits for it.

    Examples:

      saros warm

      saros warm --json | jq .seconds
    """
    start = time.perf_counter()
    with progress("compiling kernels", total=STAGES) as advance:
        told = 0

        def count(done: int, what: str) -> None:
            nonlocal told
            advance(done - told)
            told = done

        warm_all(count)
    seconds, place = round(time.perf_counter() - start, 3), os.environ["NUMBA_CACHE_DIR"]
    if as_json:
        typer.echo(json.dumps({"seconds": seconds, "stages": STAGES, "cache": place}))
    else:
        typer.echo(f"kernels are ready after {seconds:.1f} s, in {place}")


app.add_typer(up.app)
app.add_typer(lab.app)
app.add_typer(bench.app, name="bench")
app.add_typer(topics.app)
app.add_typer(traffic.app)
app.add_typer(trainer.app)
app.add_typer(api.app)
app.add_typer(keys.app, name="key")


def _print_json(lines: list[Setting]) -> None:
    answer = {
        line.variable: {"value": line.value, "source": line.source, "description": line.description} for line in lines
    }
    typer.echo(json.dumps(answer, indent=2))


def _print_table(lines: list[Setting]) -> None:
    """One section per concern, as wide as the terminal. Long texts are folded, never cut."""
    table = Table("variable", "value", "source", "meaning", box=SIMPLE_HEAD)
    for column in table.columns:
        column.overflow = "fold"
    for concern, group in itertools.groupby(lines, key=lambda line: line.concern):
        table.add_section()
        table.add_row(Text(concern, style="bold"))
        for line in group:
            # As `Text`, because a plain string would be read as markup and "[x]" in a value would vanish.
            cells = (line.variable, _shown(line.value), line.source, f"{line.description} ({line.allowed})")
            table.add_row(*map(Text, cells), style="cyan" if line.source == "environment" else None)
    Console().print(table)


def _print_plain(lines: list[Setting]) -> None:
    """One line per setting in even columns: made for grep, not for a screen's width."""
    widths = [max(len(line.variable) for line in lines), max(len(_shown(line.value)) for line in lines)]
    for concern, group in itertools.groupby(lines, key=lambda line: line.concern):
        typer.echo(f"# {concern}")
        for line in group:
            variable, value = line.variable.ljust(widths[0]), _shown(line.value).ljust(widths[1])
            typer.echo(f"{variable}  {value}  {line.source:<11}  {line.description} ({line.allowed})")


def _shown(value: object) -> str:
    """Return `value` as one would write it into the variable in a shell."""
    return json.dumps(value) if isinstance(value, bool) else str(value) or "''"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit. This is the console script `saros`."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    try:
        code = app(list(arguments) or ["--help"], prog_name="saros", standalone_mode=False)
        # Now and not at exit, where a closed pipe could no longer be caught.
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except InputError as error:
        for problem in error.problems:
            complain(f"{problem.message} — {problem.hint}")
        return 2
    except SarosError as error:
        complain(str(error))
        return 1
    except typer.TyperException as error:
        path = getattr(getattr(error, "ctx", None), "command_path", "saros")
        complain(f"{error.format_message().rstrip('.')} — see '{path} --help'")
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        # The reader has gone (`saros config | head -1`). Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
