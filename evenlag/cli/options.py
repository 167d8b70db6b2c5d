"""Options that commands share, and a command group with a default subcommand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from evenlag.cli import option_types
from evenlag.formatting import did_you_mean
from evenlag.spark_connect import REMOTE_VARIABLE, TOKEN_VARIABLE, check_remote

# The subcommand that a command group runs when none is named.
SHOW: Final = "show"
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
        metavar="TEXT",
        help="The cluster's name; not needed when there is one only.",
    ),
]
LakeOption = Annotated[
    str | None,
    typer.Option(
        "--lake",
        parser=option_types.lake_root,
        metavar="TEXT",
        help="Root of the tables; else the policy's, else $EVENLAG_LAKE, else ./evenlag-lake.",
    ),
]
RemoteOption = Annotated[
    str | None,
    typer.Option(
        "--remote",
        parser=_remote,
        metavar="URL",
        help=f"Run the job on the Spark Connect server sc://HOST:PORT, without Java on this machine; else "
        f"${REMOTE_VARIABLE}, else a Spark session of its own. A token goes into ${TOKEN_VARIABLE}.",
    ),
]
LimitOption = Annotated[
    int,
    typer.Option(
        "--limit",
        parser=option_types.whole(1, option_types.MAX_ROWS),
        metavar="INTEGER",
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
        metavar="TEXT",
        help="Who decides; else the user of this machine. It is recorded.",
    ),
]


def _interval(text: str) -> float:
    """Parse an interval, in seconds."""
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
        parser=_interval,
        metavar="DURATION",
        help="With --watch: interval of the cycles, in seconds or as 90s, 5min or 1h; default: 60.",
    ),
]


class ShowByDefault(TyperGroup):
    """A command group whose default subcommand is ``show``.

    ``evenlag plans 3f2a`` means ``evenlag plans show 3f2a``. A first word that is a subcommand's name is that
    subcommand.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default subcommand when the first word is not a subcommand.

        Parameters
        ----------
        ctx
            The context of Click.
        args
            Arguments after the name of the command group.

        Returns
        -------
        list of str
            The arguments that Click did not parse.
        """
        if not args or (args[0] not in self.commands and args[0] not in {"--help", "-h"}):
            args = [SHOW, *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed
