"""Options that commands share, and a command group with a default subcommand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from evenlag.cli import option_types

# The subcommand that a command group runs when none is named.
SHOW: Final = "show"


def _reason(value: str) -> str:
    if not value.strip():
        raise typer.BadParameter("say why: others will read it")
    return value


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
