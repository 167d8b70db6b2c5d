"""Check the health of a service over HTTP: ``healthcheck.py URL [KEY=VALUE …]``.

The answer's status has to be 200, and each key of its JSON (``scheduler.status`` goes down a level) has to
have the value. Needs the standard library only: the images carry no curl.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from functools import reduce
from typing import Any

_TIMEOUT_S = 8.0


def find_fault(url: str, wanted: list[str]) -> str | None:
    """Return what is wrong with the service at `url`, None if it is healthy.

    Parameters
    ----------
    url
        Asked with GET, past any proxy.
    wanted
        ``key=value`` each.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_TIMEOUT_S) as response:
            text = response.read()
        answer: Any = json.loads(text) if wanted else None
    except (OSError, ValueError) as error:
        return f"{url}: {error}"
    for pair in wanted:
        path, _, value = pair.partition("=")
        found = reduce(_step, path.split("."), answer)
        if str(found) != value:
            return f"{url}: {path} is {found!r}, not {value!r}"
    return None


def _step(tree: Any, key: str) -> Any:
    return tree.get(key) if isinstance(tree, dict) else None


if __name__ == "__main__":
    fault = find_fault(sys.argv[1], sys.argv[2:])
    if fault:
        sys.exit(fault)
