"""A policy is read by the core schema of YAML 1.2: expected values are those of its specification."""

from __future__ import annotations

import math
from typing import Any

import pytest

from evenlag.errors import PolicyError
from evenlag.policy.loader import parse_policy
from evenlag.policy.yaml_reader import dump_yaml, read_mapping, read_value

HEAD = "lake: /lake\nclusters:\n  c:\n    bootstrap_servers: b:9092\n"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # Examples 10.8 and 10.9 of the specification, and what YAML 1.1 reads as another type.
        *((text, None) for text in ("~", "null", "Null", "NULL", "")),
        *((text, True) for text in ("true", "True", "TRUE")),
        *((text, False) for text in ("false", "False", "FALSE")),
        *((text, text) for text in ("yes", "Yes", "no", "NO", "on", "off", "y", "n")),
        *((text, text) for text in ("1:30", "190:20:30", "190:20:30.15", "1_000", "0b101", "2026-11-25")),
        ("=", "="),
        ("0", 0), ("0o7", 7), ("0x3A", 58), ("-19", -19), ("+12", 12), ("010", 10), ("08", 8),
        ("0.", 0.0), ("-0.0", -0.0), (".5", 0.5), ("+12e03", 12_000.0), ("-2E+05", -200_000.0), ("1e5", 1e5),
        (".inf", math.inf), ("-.Inf", -math.inf), ("+.INF", math.inf),
    ],
)  # fmt: skip
def test_a_plain_value_has_the_type_of_the_core_schema(text: str, value: Any) -> None:
    read = read_value(text)
    assert (type(read), read) == (type(value), value)
    # Written as text, it is read as text.
    assert read_value(dump_yaml(text)) == text
    assert read_value(dump_yaml(value)) == value


def test_not_a_number_is_one() -> None:
    assert math.isnan(read_value(".NaN"))


@pytest.mark.parametrize("digits", ["1:" * 80_000 + "1", "!!int " + "1:" * 80_000 + "1", "9" * 100_000])
def test_a_long_number_costs_nothing(digits: str) -> None:
    """By YAML 1.1 the first one is 80,000 multiplications of ever larger numbers; none is made."""
    if digits.startswith("1:"):
        assert read_mapping(f"lake: {digits}\n", "p.yaml")[0] == {"lake": digits}
        return
    with pytest.raises(PolicyError, match="is no int: put it in quotes if it is text"):
        read_mapping(f"lake: {digits}\n", "p.yaml")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            "required_signing: yes",
            "required_signing: must be true or false; yes, no, on and off are text in YAML 1.2",
        ),
        (
            "kafka: {ssl_check_hostname: off}",
            "ssl_check_hostname must be true or false; yes, no, on and off are text",
        ),
        ("rate_window_s: 15:00", "rate_window_s: must be a whole number"),
    ],
)
def test_a_spelling_of_yaml_1_1_is_refused_where_another_type_is_meant(key: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy(f"{HEAD}    {key}\n", name="p.yaml", environ={})
    [line] = str(caught.value).splitlines()
    assert line.startswith("p.yaml, line 5: clusters.c.")
    assert message in line


def test_a_name_that_yaml_1_1_reads_as_another_type_is_a_name() -> None:
    policy = parse_policy(HEAD + "groups:\n- {match: no, mode: observe}\n", environ={}).policy
    assert policy.groups[0].match == "no"
