"""Options that commands share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from evenlag.cli import option_types
from evenlag.cli.option_types import argument, option
from evenlag.formatting import did_you_mean
from evenlag.spark_connect import REMOTE_VARIABLE, TOKEN_VARIABLE, check_remote

# Parameters of a Spark Connect URL that everybody may read. Others are a token or headers of a proxy.
_PUBLIC_PARAMETERS: Final = frozenset({"use_ssl", "user_id", "user_agent", "session_id"})

_MAX_INTERVAL_S: Final = 86_400
_SECONDS_BY_UNIT: Final = {"s": 1, "m": 60, "min": 60, "h": 3_600}
_DURATION: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) ?(s|min|m|h)?")


def _reason(value: str) -> str:
    if not value.strip():
        raise typer.BadParameter("say why: others will read it")
    return value


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
            f"{option_types.shown(hidden[0])}, or {TOKEN_VARIABLE} to a token{meant}"
        )
    return text


ConfigOption = Annotated[
    Path | None,
    option(
        "--config -c",
        "PATH",
        "The policy file; else $EVENLAG_CONFIG, else ./evenlag.yaml.",
        option_types.path,
    ),
]
ClusterOption = Annotated[
    str | None, option("--cluster", "CLUSTER", "The cluster's name; not needed when there is one only.")
]
LakeOption = Annotated[
    str | None,
    option(
        "--lake",
        "LAKE",
        "Root of the tables; else the policy's, else $EVENLAG_LAKE, else ./evenlag-lake.",
        option_types.lake_root,
    ),
]
RemoteOption = Annotated[
    str | None,
    option(
        "--remote",
        "URL",
        f"Spark Connect server sc://HOST:PORT that runs the job; else ${REMOTE_VARIABLE}, else a Spark "
        f"session of its own. A token goes into ${TOKEN_VARIABLE}.",
        _remote,
    ),
]
LimitOption = Annotated[
    int, option("--limit", "N", "How many rows to show.", option_types.whole(1, option_types.MAX_ROWS))
]
AnyGroupArgument = Annotated[str | None, argument("GROUP", "One group only; else all.", show_default=False)]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON, for scripts.")]

ReasonOption = Annotated[
    str, option("--reason", "TEXT", "Why; it is recorded.", callback=_reason, show_default=False)
]
ActorOption = Annotated[
    str | None, option("--actor", "NAME", "The name to record; else the user of this machine.")
]
NameOption = Annotated[
    str | None,
    option("--actor", "NAME", "Your name, if several people use this account; recorded beside the account."),
]
AirflowUrlOption = Annotated[
    str | None,
    option(
        "--airflow-url",
        "URL",
        "Decide through this Airflow, with the token in EVENLAG_AIRFLOW_TOKEN or in the file that "
        "EVENLAG_AIRFLOW_TOKEN_FILE names; else $EVENLAG_AIRFLOW_URL.",
    ),
]


def interval(text: str) -> float:
    """Parse an interval from 1 s to 24 h, e.g. ``90s``, and return it in seconds."""
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS_BY_UNIT[found[2] or "s"] if found else 0.0
    if not 1 <= seconds <= _MAX_INTERVAL_S:
        raise typer.BadParameter(
            f"{option_types.shown(text)} is no interval from 1 s to 24 h: write e.g. 30, 90s, 5min or 1h"
        )
    return seconds


EveryOption = Annotated[
    float | None,
    option(
        "--every",
        "DURATION",
        "With --watch: interval of the cycles, in seconds or as 90s, 5min or 1h; default: 60.",
        interval,
    ),
]
