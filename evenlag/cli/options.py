"""Options that commands share, and the group of commands with a default one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from evenlag.cli import option_types

# The subcommand that a group of commands runs when none is named.
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
    """`evenlag plans 3f2a` means `evenlag plans show 3f2a`; a name that is a subcommand's is that."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the default when the first word is no subcommand."""
        if not args or (args[0] not in self.commands and args[0] not in {"--help", "-h"}):
            args = [SHOW, *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed
