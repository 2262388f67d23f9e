"""The errors Saros raises on purpose. Anything else that escapes is a defect and may crash loudly.

SarosError
├── InputError          the user gave something wrong: the command line prints it and exits with 2
│   ├── SettingsError   one or more settings are wrong, each of them named
│   └── RefusedError    log, store or settings are not those of the model: nothing is guessed
├── LimitError          a limit was reached: nothing is wrong with the input, there is no room for it
├── BrokerError         Kafka is away, or refuses: nothing is lost, and trying again may help
└── StoreError          Redis is away, or refuses: nothing is lost, and trying again may help

This module imports nothing of Saros, so that everything may import it.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Problem(NamedTuple):
    """One thing that is wrong, and what to do about it."""

    message: str
    hint: str

    def __str__(self) -> str:
        return f"{self.message}: {self.hint}"


class SarosError(Exception):
    """The root of the tree: `except SarosError` catches all that Saros raises on purpose."""


class InputError(SarosError):
    """The user gave something wrong. `message` says what, `hint` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.problems: tuple[Problem, ...] = (Problem(message, hint),)

    @property
    def message(self) -> str:
        return self.problems[0].message

    @property
    def hint(self) -> str:
        return self.problems[0].hint

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class SettingsError(InputError):
    """One or more settings are wrong; `problems` holds one entry for each, so that they are mended in one go."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        assert problems, "an error without a problem"
        super().__init__(*problems[0])
        self.args = (tuple(problems),)
        self.problems = tuple(problems)


class RefusedError(InputError):
    """Log, store or settings are not those the model was made with. The hint names what resolves it."""


class LimitError(SarosError):
    """A limit was reached. The message names the limit, its value and the setting that moves it."""


class BrokerError(SarosError):
    """Kafka is away, or refuses. The message says what was tried, and what the broker said."""


class StoreError(SarosError):
    """Redis is away, or refuses. The message says what the store said, or what it holds and should not."""
