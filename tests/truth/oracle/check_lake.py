"""Compares every number that the commands show with the content of the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.truth.oracle.checks import Checks
from tests.truth.oracle.delta_files import read_rows
from tests.truth.oracle.expected.adherence import check_adherence
from tests.truth.oracle.expected.anomalies import check_anomalies
from tests.truth.oracle.expected.churn import check_churn
from tests.truth.oracle.expected.compare import check_compare
from tests.truth.oracle.expected.lag import check_lag
from tests.truth.oracle.expected.lag_table import check_lag_table
from tests.truth.oracle.expected.owners import check_diff, check_owners
from tests.truth.oracle.expected.plans import check_plans
from tests.truth.oracle.expected.report import check_report
from tests.truth.oracle.expected.tables import check_tables
from tests.truth.oracle.lake_rows import LakeRows
from tests.truth.oracle.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.truth.oracle.checks import Runner

Part = tuple[str, "Callable[[Session], None]"]

PARTS: Final[tuple[Part, ...]] = (
    ("lag", check_lag),
    ("plans", check_plans),
    ("compare", check_compare),
    ("report", check_report),
    ("lake status", check_tables),
    ("table lag", check_lag_table),
)
# These need the audit's tables: a lake that was not audited has none.
AUDIT_PARTS: Final[tuple[Part, ...]] = (
    ("audit owner", check_owners),
    ("audit diff", check_diff),
    ("audit churn", check_churn),
    ("audit adherence", check_adherence),
    ("audit anomalies", check_anomalies),
)


def check_lake(lake: Path, run: Runner, folder: Path, *, clusters: Sequence[str] | None = None) -> Checks:
    """Run all commands on a lake and compare their output.

    lake: The root of the lake; read only.
    run: Runs the command; its output must be wide enough for unwrapped cells.
    """
    checks = Checks()
    for cluster in clusters if clusters is not None else clusters_of(lake):
        session = Session(LakeRows(lake, cluster), run, checks, folder)
        check_cluster(session)
    return checks


def check_cluster(session: Session) -> None:
    """Compare all output about one cluster."""
    for part in (*PARTS, *AUDIT_PARTS):
        check_part(session, part)


def check_part(session: Session, part: Part) -> None:
    """Compare the output of one command."""
    if part in AUDIT_PARTS and not session.rows.rows("audited_snapshots"):
        session.fails("audit churn", exit_code=4)
        return
    part[1](session)


def clusters_of(lake: Path) -> list[str]:
    """Return the clusters with snapshots in a lake."""
    return sorted({row["cluster"] for row in read_rows(lake, "snapshots")})


def summary(checks: Checks) -> str:
    """Return one line about the comparisons."""
    count, commands = checks.num_compared.total(), len({name.split(" --")[0] for name in checks.num_compared})
    message = f"{count:,} values of {commands} commands compared with the lake"
    if not checks.differences:
        return f"{message}: all the same"
    return f"{message}: {len(checks.differences):,} differ, first {checks.differences[0]}"
