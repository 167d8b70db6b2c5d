"""`evenlag serve`: overview, reports and metrics by HTTP; `evenlag metrics`: the metrics once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from evenlag.cli.console import console
from evenlag.cli.export import write_atomically
from evenlag.cli.option_types import option, whole
from evenlag.cli.options import ConfigOption, LakeOption
from evenlag.context import find_policy, lake_root, require_policy
from evenlag.errors import NotFoundError, UsageError
from evenlag.formatting import count_of
from evenlag.lake.tables import SNAPSHOTS

if TYPE_CHECKING:
    from evenlag.overview.views import OverviewView, ReportSource

TOKEN_VARIABLE: Final = "EVENLAG_SERVE_TOKEN"  # noqa: S105  # the variable's name
TOKEN_FILE_VARIABLE: Final = "EVENLAG_SERVE_TOKEN_FILE"  # noqa: S105  # as above
_MIN_TOKEN: Final = 16
_MAX_PORT: Final = 65_535
_MOST_GROUPS: Final = 1_000_000
_FOR_EVERYBODY: Final = 0o644

_MAX_GROUPS_HELP: Final = (
    "Groups of a cluster that have metrics of their own: unknown lags first.  [default: 1000]"
)
MaxGroupsOption = Annotated[
    int | None, option("--max-groups", "COUNT", _MAX_GROUPS_HELP, whole(0, _MOST_GROUPS))
]
_LIVE_HELP: Final = "Also read the policy's brokers, at most every 5 s and only when a page is asked for."
_HOST_HELP: Final = (
    f"Address to listen on; one of another machine's needs a token in ${TOKEN_VARIABLE}, or in the file that "
    f"${TOKEN_FILE_VARIABLE} names."
)


def serve(
    *,
    host: Annotated[str, option("--host", "HOST", _HOST_HELP)] = "127.0.0.1",
    port: Annotated[
        int, option("--port", "PORT", "Port to listen on; 0: any free one.", whole(0, _MAX_PORT))
    ] = 8760,
    live: Annotated[bool, typer.Option("--live", help=_LIVE_HELP)] = False,
    max_groups: MaxGroupsOption = None,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Show all groups of the lake in a browser, with their reports; read-only, until Ctrl-C."""
    from evenlag.overview.server import LOOPBACK, listen, make_app, make_server
    from evenlag.overview.views import PAGE_WAIT_S, OverviewView

    token = _token()
    if token is None and host not in LOOPBACK:
        raise UsageError(
            f"{host} can be reached from other machines: put a token of {_MIN_TOKEN} or more characters into "
            f"{TOKEN_VARIABLE}, or into a file that {TOKEN_FILE_VARIABLE} names, or leave --host out"
        )

    # A mistake in the policy is reported now, not to the first reader.
    sources = partial(_sources, lake, config)
    view = _live_view(sources, config) if live else OverviewView(sources, wait_s=PAGE_WAIT_S)
    found = _known_sources(lake, config)
    opened = listen(host, port)
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{opened.getsockname()[1]}/"
    out = console()
    out.print(f"{address}  ({count_of(len(found), 'cluster')}; Ctrl-C ends it)", soft_wrap=True)
    # Many clusters take seconds: the first page finds most of them read.
    view.ask(found.values())
    app = make_app(sources, token=token, hosts=[host], max_groups=_limit(max_groups), view=view)
    make_server(app).run(sockets=[opened])


def _live_view(sources: Callable[[], dict[str, ReportSource]], config: Path | None) -> OverviewView:
    from evenlag.live_lag.snapshot import policy_target
    from evenlag.overview.live import LiveClusters, LiveView

    require_policy(config)
    clusters = LiveClusters(lambda name: policy_target(require_policy(config).policy, name, is_named=True))
    return LiveView(sources, clusters)


def metrics(
    *,
    textfile: Annotated[
        Path | None,
        typer.Option(
            "--textfile",
            metavar="FILE",
            help="Write a file for node_exporter's textfile collector; its name ends in .prom.",
        ),
    ] = None,
    max_groups: MaxGroupsOption = None,
    config: ConfigOption = None,
    lake: LakeOption = None,
) -> None:
    """Print the metrics of the lake's last snapshots for Prometheus, or write them to a file."""
    from evenlag.overview.metrics import render_metrics
    from evenlag.overview.views import OverviewView

    if textfile is not None and textfile.suffix != ".prom":
        raise UsageError(f"{textfile}: the collector reads only files whose name ends in .prom")
    found = _known_sources(lake, config)
    known = list(found.values())
    view = OverviewView(lambda: found)
    text = render_metrics(view.read(known), view.count(known), _limit(max_groups))
    if textfile is None:
        sys.stdout.write(text.decode())
        return

    def write(path: Path) -> None:
        path.write_bytes(text)
        # node_exporter runs as another user.
        path.chmod(_FOR_EVERYBODY)

    write_atomically(textfile, write)


def _limit(max_groups: int | None) -> int:
    from evenlag.overview.metrics import MAX_GROUPS

    return MAX_GROUPS if max_groups is None else max_groups


def _known_sources(lake: str | None, config: Path | None) -> dict[str, ReportSource]:
    found = _sources(lake, config)
    if not found:
        root = lake_root(lake, config)
        raise NotFoundError(f"the lake {root} has no snapshot yet: run a cycle first (evenlag run)")
    return found


def _sources(lake: str | None, config: Path | None) -> dict[str, ReportSource]:
    """The clusters of the policy; without one, those that the lake has snapshots of."""
    from evenlag.lake.reader import LakeReader
    from evenlag.overview.views import ReportSource

    loaded = find_policy(config) if lake is None else None
    if loaded is not None:
        root, names = loaded.policy.lake, sorted(loaded.policy.clusters)
    else:
        root = lake_root(lake, config)
        names = LakeReader(root).clusters(SNAPSHOTS)
    return {name: ReportSource("", name, root) for name in names}


def _token() -> str | None:
    from evenlag.policy.secrets import read_token

    found = read_token(TOKEN_VARIABLE, TOKEN_FILE_VARIABLE)
    if found is None:
        return None
    name, token = found
    if len(token) < _MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"{name} holds no token: it has at least {_MIN_TOKEN} letters, digits and signs in one word"
        )
    return token
