"""Fixtures shared by all tests, a plugin module for each real part; Hypothesis steady on a busy machine."""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

# A shell ignores SIGINT in what it starts in the background, and each process below inherits that: a test
# that interrupts a command would never end.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests name secrets as they like; tests/evenlag/policy/test_allowed_secrets.py tests the default.
os.environ["EVENLAG_SECRETS"] = "*, /"

settings.register_profile(
    "busy", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("busy")

pytest_plugins = [
    "tests.support.fixtures.broker",
    "tests.support.fixtures.browser",
    "tests.support.fixtures.command",
    "tests.support.fixtures.connect",
    "tests.support.fixtures.plugin",
    "tests.support.fixtures.processes",
    "tests.support.fixtures.rewriting",
    "tests.support.fixtures.s3",
    "tests.support.fixtures.spark",
]
