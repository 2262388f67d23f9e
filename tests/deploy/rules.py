"""The rules that Prometheus is given, and the metrics that their expressions name."""

import re
from typing import Any

import yaml

from tests.deploy.tools import DEPLOY

RULES = sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"))

# Of an expression, what names no metric: texts, labels, times, and words of the language.
_ASIDE = re.compile(
    r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)|\boffset\s+\w+'
)
_WORDS = {"and", "or", "unless", "bool"}


def rules(kind: str) -> list[dict[str, Any]]:
    """Return the rules of a kind: `record` or `alert`."""
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


def metrics_in(expr: str) -> set[str]:
    """Return the metrics that an expression names: what is no function, nor set aside above."""
    return set(re.findall(r"(?<![\w:.])[a-zA-Z_:][\w:]*(?![\w:]|\s*\()", _ASIDE.sub("", expr))) - _WORDS
