"""Options that commands share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final

import typer

from evenlag.cli import option_types
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
    typer.Option(
        "--config",
        "-c",
        parser=option_types.path,
        metavar="PATH",
        help="The policy file; else $EVENLAG_CONFIG, else ./evenlag.yaml.",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        parser=option_types.name,
        metavar="CLUSTER",
        help="The cluster's name; not needed when there is one only.",
    ),
]
LakeOption = Annotated[
    str | None,
    typer.Option(
        "--lake",
        parser=option_types.lake_root,
        metavar="LAKE",
        help="Root of the tables; else the policy's, else $EVENLAG_LAKE, else ./evenlag-lake.",
    ),
]
RemoteOption = Annotated[
    str | None,
    typer.Option(
        "--remote",
        parser=_remote,
        metavar="URL",
        help=f"Spark Connect server sc://HOST:PORT that runs the job; else ${REMOTE_VARIABLE}, else a Spark "
        f"session of its own. A token goes into ${TOKEN_VARIABLE}.",
    ),
]
LimitOption = Annotated[
    int,
    typer.Option(
        "--limit",
        parser=option_types.whole(1, option_types.MAX_ROWS),
        metavar="N",
        help="How many rows to show.",
    ),
]
AnyGroupArgument = Annotated[
    str | None,
    typer.Argument(
        parser=option_types.name, metavar="GROUP", help="One group only; else all.", show_default=False
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Answer in JSON, for scripts.")]

ReasonOption = Annotated[
    str,
    typer.Option(
        "--reason",
        parser=option_types.name,
        metavar="TEXT",
        help="Why; it is recorded.",
        callback=_reason,
        show_default=False,
    ),
]
ActorOption = Annotated[
    str | None,
    typer.Option(
        "--actor",
        parser=option_types.name,
        metavar="NAME",
        help="The name to record; else the user of this machine.",
    ),
]
NameOption = Annotated[
    str | None,
    typer.Option(
        "--actor",
        parser=option_types.name,
        metavar="NAME",
        help="Your name, if several people use this account; recorded beside the account.",
    ),
]
AirflowUrlOption = Annotated[
    str | None,
    typer.Option(
        "--airflow-url",
        parser=option_types.name,
        metavar="URL",
        help="Decide through this Airflow, with the token in EVENLAG_AIRFLOW_TOKEN or in the file that "
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
    typer.Option(
        "--every",
        parser=interval,
        metavar="DURATION",
        help="With --watch: interval of the cycles, in seconds or as 90s, 5min or 1h; default: 60.",
    ),
]
