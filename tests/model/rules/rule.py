"""What a rule is."""

from typing import NamedTuple


class Rule(NamedTuple):
    """`says` is the protocol, `instead` the mistake that is made where the rule is left out."""

    name: str
    says: str
    instead: str
