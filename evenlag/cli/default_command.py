"""A command that has subcommands and still does what it always did when none is named."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

SHOW = "show"


class ShowByDefault(TyperGroup):
    """`evenlag plans 3f2a` means `evenlag plans show 3f2a`; a name that is a subcommand's is that."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Name the default when the first word is no subcommand."""
        if not args or (args[0] not in self.commands and args[0] not in {"--help", "-h"}):
            args = [SHOW, *args]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed
