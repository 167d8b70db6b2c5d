"""Generate ``docs/quality.md`` from the checks: ``python -m evenlag.quality.checks_reference``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from evenlag.policy.gate_contract import Comparison
from evenlag.quality.checks import CHECKS, QualitySetting, Suite

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from evenlag.quality.checks import Check

_INTRODUCTION: Final = """\
# Data quality

This page is generated from `evenlag/quality/checks.py` by `python -m evenlag.quality.checks_reference`; a
test compares the two.

[Gates](gates.md) judge plans; checks judge the data that plans are made from. `observe` aggregates each
snapshot that it has written to one row of numbers, and Great Expectations evaluates two suites for that row.
The verdicts are rows of the table `quality_results`, with the observed value, the limit and a message, and
[Data Docs](how-to/maintain-the-lake.md#data-docs) show them run by run. A snapshot is checked once; a
repeat keeps the verdicts.
"""
_BRONZE: Final = """\
## The suite `bronze`: what the brokers answered
"""
_SILVER: Final = """\
## The suite `silver`: the lag computed from it
"""
_POLICY: Final = """\
## What a failure leads to

`quality` of a cluster in the policy decides:

```yaml
clusters:
  orders:
    bootstrap_servers: kafka-1:9093
    quality:
      on_failure: stop          # default: warn
      min_completeness: 0.995
      max_age_s: 900
```

- `warn`: the failure is recorded, logged, shown by `evenlag doctor` (`lake.quality`) and raises the alert
  `INVALID_DATA` for its table (`snapshot_complete`: `INCOMPLETE_SNAPSHOT`). Groups are planned, and each plan
  has to pass its gates. Checks that cannot run are an error in the log.
- `stop`: as `warn`, and `decide` plans no group of the cluster from this snapshot; a failure of `one_owner`
  excludes only the groups concerned. The step succeeds, with `stopped` and the reasons in its summary: plans
  that were approved earlier are still published or expire. A decision on record is kept. If the checks
  cannot run, the step ends with an error, and nothing is planned. Use it for a cluster whose snapshots
  normally pass.

A high watermark that falls within a topic id means that records are gone (an unclean leader election), or
that another cluster answered. The log start offset may go back when a follower takes over, so no check
compares it.
"""


def render_checks(checks: Iterable[Check] = CHECKS) -> str:
    """Render the page.

    Returns markdown, with a newline at its end.
    checks: The checks in the order of the page; all of them by default.
    """
    chosen = tuple(checks)
    parts = [
        _INTRODUCTION,
        _BRONZE,
        "\n".join(_rows(chosen, Suite.BRONZE)),
        _SILVER,
        "\n".join(_rows(chosen, Suite.SILVER)),
        _POLICY,
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def main() -> None:
    """Print the page."""
    sys.stdout.write(render_checks())


def _rows(checks: Iterable[Check], suite: Suite) -> Iterator[str]:
    yield "| check | table | fails when | limit |"
    yield "| --- | --- | --- | --- |"
    for check in checks:
        if check.suite is suite:
            yield f"| `{check.name}` | `{check.table}` | {check.fails_when} | {_limit(check)} |"


def _limit(check: Check) -> str:
    if isinstance(check.limit, QualitySetting):
        bound = "at least" if check.comparison is Comparison.AT_LEAST else "at most"
        return f"{bound} `{check.limit.name}`"
    return f"`{check.limit}`"


if __name__ == "__main__":
    main()
