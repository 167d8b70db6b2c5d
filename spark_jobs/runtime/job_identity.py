"""What a job and its repeat have in common, by which a repeat finds its earlier attempt on a server."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from evenlag.policy.environment import LAKE_VARIABLE
from evenlag.policy.loader import DEFAULT_POLICY_PATH, POLICY_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

# A repeat of a task may have other values here.
_NOT_PART: Final = frozenset({"quiet", "events_fd", "run_id", "config"})


def identify_job(module: str, arguments: Mapping[str, Any]) -> str:
    """Return the same text for a job and its repeat.

    Two projects on one server have other policy files or other environments, and so other texts.

    Examples
    --------
    >>> first = identify_job("spark_jobs.audit", {"cluster": "orders", "lake": "/srv/lake", "quiet": True})
    >>> first == identify_job("spark_jobs.audit", {"cluster": "orders", "lake": "/srv/lake", "quiet": False})
    True
    """
    policy = Path(arguments.get("config") or os.environ.get(POLICY_VARIABLE) or DEFAULT_POLICY_PATH)
    identifying = {name: str(value) for name, value in arguments.items() if name not in _NOT_PART}
    return json.dumps(
        [module, identifying, str(policy.absolute()), os.environ.get(LAKE_VARIABLE)], sort_keys=True
    )
