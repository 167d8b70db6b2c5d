"""Options that commands share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from evenlag.cli.option_types import MAX_ROWS, argument, lake_root, option, path, reset_policy, shown, whole
from evenlag.context import find_cluster, find_lake
from evenlag.formatting import did_you_mean
from evenlag.spark_connect import REMOTE_VARIABLE, TOKEN_VARIABLE, check_remote

if TYPE_CHECKING:
    from evenlag.lake.reader import LakeReader

# Parameters of a Spark Connect URL that everybody may read. Others are a token or headers of a proxy.
_PUBLIC_PARAMETERS: Final = frozenset({"use_ssl", "user_id", "user_agent", "session_id"})

_MAX_INTERVAL_S: Final = 86_400
_SECONDS_BY_UNIT: Final = {"s": 1, "m": 60, "min": 60, "h": 3_600}
_DURATION: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) ?(s|min|m|h)?")


def _reason(value: str) -> str:
    if not value.strip():
        raise typer.BadParameter("say why: others will read it")
    return value.strip()


def _remote(text: str) -> str:
    """Check the URL of a Spark Connect server that is given on a command line."""
    try:
        parameters = check_remote(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if hidden := sorted(set(parameters) - _PUBLIC_PARAMETERS):
        meant = "" if "token" in hidden else did_you_mean(hidden[0], _PUBLIC_PARAMETERS)
        raise typer.BadParameter(
            f"other users can read command lines: set {REMOTE_VARIABLE} to a URL with "
            f"{shown(hidden[0])}, or {TOKEN_VARIABLE} to a token{meant}"
        )
    return text


ConfigOption = Annotated[
    Path | None,
    option("--config -c", "PATH", "The policy file; else $EVENLAG_CONFIG, else ./evenlag.yaml.", path),
]
ClusterOption = Annotated[
    str | None, option("--cluster", "CLUSTER", "The cluster's name; not needed when there is one only.")
]
_LAKE_HELP: Final = "Root of the tables; else $EVENLAG_LAKE, else the policy's, else ./evenlag-lake."
LakeOption = Annotated[str | None, option("--lake", "LAKE", _LAKE_HELP, lake_root)]
_REMOTE_HELP: Final = (
    f"Spark Connect server sc://HOST:PORT that runs the job; else ${REMOTE_VARIABLE}, else a Spark session "
    f"of its own. A token goes into ${TOKEN_VARIABLE}."
)
RemoteOption = Annotated[str | None, option("--remote", "URL", _REMOTE_HELP, _remote)]
LimitOption = Annotated[int, option("--limit", "N", "How many rows to show.", whole(1, MAX_ROWS))]
AnyGroupArgument = Annotated[str | None, argument("GROUP", "One group only; else all.", show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON, for scripts.")]
ReasonOption = Annotated[
    str, option("--reason", "TEXT", "Why; it is recorded.", callback=_reason, show_default=False)
]


@dataclass(frozen=True, kw_only=True)
class ClusterScope:
    """The policy file and the cluster that a command is about."""

    config: ConfigOption = None
    cluster: ClusterOption = None


@dataclass(frozen=True, kw_only=True)
class LakeScope(ClusterScope):
    """The lake and the cluster that a command reads."""

    lake: LakeOption = None

    def open(self) -> tuple[LakeReader, str]:
        """Return a reader of the lake, and the name of the cluster."""
        reader = find_lake(self.lake, self.config)
        return reader, find_cluster(reader, self.cluster)


def interval(text: str) -> float:
    """Parse an interval from 1 s to 24 h, e.g. ``90s``, and return it in seconds."""
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS_BY_UNIT[found[2] or "s"] if found else 0.0
    if not 1 <= seconds <= _MAX_INTERVAL_S:
        raise typer.BadParameter(
            f"{shown(text)} is no interval from 1 s to 24 h: write e.g. 30, 90s, 5min or 1h"
        )
    return seconds


def every_option(what: str, default_s: float) -> Any:
    """Declare the interval of a command that repeats its work."""
    help_text = (
        f"With --watch: interval of the {what}, in seconds or as 90s, 5min or 1h; default: {default_s:g}."
    )
    return option("--every", "DURATION", help_text, interval)


def reset_policy_option(more: str = "") -> Any:
    """Declare the reset policy of groups; `more` is what an unknown lag means for the command."""
    help_text = (
        "With --bootstrap-servers: auto.offset.reset of the groups. Unset, the lag of a partition without a "
        f"commit is unknown{more}."
    )
    return option("--reset-policy", "POLICY", help_text, reset_policy)
