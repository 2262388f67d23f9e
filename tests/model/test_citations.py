"""The code says where it keeps each rule, by number."""

import re
from pathlib import Path

from tests.model.rules import RULES

SERVICES = Path(__file__).parents[2] / "services" / "saros"
# Those of snapshots and of trimming by ourselves, which are not there yet.
NOT_BUILT = {"trim", "snapshot fence", "snapshot kept", "restore pages", "snapshot log", "snapshot exact",
             "trim log"}  # fmt: skip
_CITED = re.compile(r"\b[Rr]ules? (\d+(?:(?:, | and | to )\d+)*)")


def test_every_rule_that_is_built_is_cited_and_no_other_number_is() -> None:
    cited: set[int] = set()
    for path in sorted(SERVICES.rglob("*.py")) + sorted(SERVICES.rglob("*.lua")):
        for numbers in _CITED.findall(path.read_text()):
            cited |= {int(number) for number in re.findall(r"\d+", numbers)}
    assert cited <= RULES.keys()
    assert {rule.name for number, rule in RULES.items() if number not in cited} == NOT_BUILT
