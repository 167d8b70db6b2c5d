"""Mistakes in a policy file: each is one line that names its place and what to do, never a traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from evenlag.errors import PolicyError
from evenlag.policy.loader import kafka_settings_from_environment, load_policy, parse_policy

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "lake: /data\nclusters:\n  c:\n    bootstrap_servers: b1:9092\n"
SECRET = HEAD + "    kafka:\n      sasl_plain_password: "


def problems(text: str, **environ: str) -> list[str]:
    with pytest.raises(PolicyError) as caught:
        parse_policy(text, name="p.yaml", environ=environ)
    return str(caught.value).splitlines()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            SECRET + "{evn: X}",
            "line 6: clusters.c.kafka.sasl_plain_password: has no key 'evn'; did you mean 'env'?",
        ),
        (
            SECRET + "{file: X, env: Y}",
            (
                "line 6: clusters.c.kafka.sasl_plain_password: a secret is given as {env: NAME} or as "
                "{file: PATH}, exactly one of them"
            ),
        ),
        (
            SECRET + "[hunter2]",
            (
                "line 6: clusters.c.kafka.sasl_plain_password: must be text, a finite number, true "
                "or false, or a secret as {env: NAME} or {file: PATH}"
            ),
        ),
        (
            HEAD + "    hint_signing_key: hunter2\n",
            (
                "line 5: clusters.c.hint_signing_key: must be a secret: given as {env: NAME} or as "
                "{file: PATH}, exactly one of them"
            ),
        ),
        (
            HEAD + "    hint_topic_replication_factor: 100000\n",
            "line 5: clusters.c.hint_topic_replication_factor: Input should be less than or equal to 32767",
        ),
        (
            HEAD + "    hint_signing_key: {flie: a}\n",
            "line 5: clusters.c.hint_signing_key: has no key 'flie'; did you mean 'file'?",
        ),
        (
            HEAD + "groups: [{match: g, reset_policy: none}]\n",
            "line 5: groups.0.reset_policy: 'none' is not earliest, latest or by_duration:PnDTnHnMnS",
        ),
        (
            HEAD + "groups: [{match: g, reset_policy: 'by_duration:6h'}]\n",
            (
                "line 5: groups.0.reset_policy: 'by_duration:6h' has no duration: write "
                "by_duration:PnDTnHnMnS, as in by_duration:PT6H"
            ),
        ),
        (
            HEAD + "    approvers: [ada, 'account:']\n",
            (
                "line 5: clusters.c.approvers.1: 'account:' is no approver: write the id of a user of "
                "Airflow, or account:NAME for an account that runs the command"
            ),
        ),
        (
            HEAD + "    approvers: [7]\n",
            "line 5: clusters.c.approvers.0: must be text: put it in quotes, not a whole number",
        ),
        (
            HEAD + "    command_approvals: refuse\ngroups:\n  - {match: g, approvers: 'account:ada'}\n",
            (
                "line 1: nobody could approve plans of c: the approvers account:ada are accounts, and "
                "command_approvals is refuse"
            ),
        ),
        (
            HEAD + "groups:\n  - match: g\n    mode: auto\n    mode: shadow\n",
            "line 8: groups.0.mode: the key 'mode' stands twice, in lines 7 and 8: keep one",
        ),
        (
            HEAD + "lake: /other\n",
            "line 5: lake: the key 'lake' stands twice, in lines 1 and 5: keep one",
        ),
        (
            HEAD + "groups:\n  - {match: g, gates: {cooldwn_s: 3}}\n",
            "line 6: groups.0.gates.cooldwn_s: there is no such key; did you mean 'cooldown_s'?",
        ),
        (
            HEAD + "groups:\n  - {match: 5}\n",
            "line 6: groups.0.match: must be text: put it in quotes, not a whole number",
        ),
        (
            HEAD + "groups:\n  - {match: g, min_gain: .nan}\n",
            "line 6: groups.0.min_gain: Input should be a finite number",
        ),
        (
            HEAD.replace("b1:9092", "b1:99999"),
            (
                "line 4: clusters.c.bootstrap_servers: 'b1:99999' has no port from 1 to 65,535: write "
                "host:port"
            ),
        ),
        (
            HEAD + "groups:\n  - {match: '/a{1001}/'}\n",
            "line 6: groups.0.match: /a{1001}/ is not a regular expression: invalid repetition size: {1001}",
        ),
        ("", " is empty: it needs at least 'lake' and 'clusters'"),
        ("# lake: x\n", " is empty: it needs at least 'lake' and 'clusters'"),
        (
            "\n- lake\n",
            "line 2: holds no mapping, it begins with a list: it needs at least 'lake' and 'clusters'",
        ),
        ("lake: a\x00b", "line 1, column 8: is not YAML: the character U+0000 is not allowed"),
        (
            HEAD + "    schedule: nonsense\n",
            (
                "line 5: clusters.c.schedule: 'nonsense' is no cron expression: it has 1 of 5 fields; write "
                "five fields, e.g. '*/5 * * * *', or null"
            ),
        ),
        (
            HEAD.replace("/data", '"a\\0b"'),
            "line 1: lake: 'a\\x00b' is no path or URI: it has a character that none can have",
        ),
        (
            "lake: *nobody",
            (
                "line 1, column 7: is not YAML: found undefined alias 'nobody': * begins an alias, put a "
                "pattern in quotes"
            ),
        ),
        (
            HEAD + "groups: [{match: *, mode: auto}]\n",
            (
                "line 5, column 19: is not YAML: expected alphabetic or numeric character, but found ',': * "
                "begins an alias, put a pattern in quotes"
            ),
        ),
        (
            "lake: !!python/object/apply:os.system [ls]",
            (
                "line 1, column 7: is not YAML: the tag '!!python/object/apply:os.system' is not known here: "
                "write plain values"
            ),
        ),
        (
            "lake: !!int x",
            "line 1, column 7: is not YAML: 'x' is no int: put it in quotes if it is text",
        ),
        (
            "lake: x\n---\nlake: y\n",
            "line 2, column 1: is not YAML: a second document begins here: keep one",
        ),
        ("lake: &a [*a]\n", "line 1: lake.0 contains itself by an alias: write it out"),
        ("lake: " + "[" * 5_000, "line 1, column 70: is not YAML: nests deeper than 64 levels"),
    ],
)
def test_one_mistake_is_one_line_with_place_and_remedy(text: str, line: str) -> None:
    assert problems(text) == [f"p.yaml{line if line.startswith(' ') else ', ' + line}"]


def test_each_mistake_is_told_once_in_the_order_of_the_file() -> None:
    lines = problems(HEAD + "    schedul: x\ngroups:\n  - {match: g, mod: auto, max_moves: many}\nlak: x\n")
    assert [line.partition(": ")[0] for line in lines] == [
        f"p.yaml, line {number}" for number in (5, 7, 7, 8)
    ]


def test_no_message_shows_what_may_be_a_secret() -> None:
    text = (
        HEAD
        + "    hint_signing_key: [hunter2]\n    privacy: {key: hunter2}\n    kafka: {ssl_password: hunter2}\n"
    )
    assert "hunter2" not in "\n".join(problems(text))


def test_an_alias_that_is_used_twice_is_no_bomb_and_one_that_doubles_30_times_is() -> None:
    shared = HEAD + "groups:\n  - &one {match: a, mode: auto}\n  - <<: *one\n    match: b\n"
    assert [rule.mode.value for rule in parse_policy(shared, environ={}).policy.groups] == ["auto", "auto"]
    lists = "".join(f"  - &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 31))
    merges = "".join(f"  - &m{n} {{<<: [*m{n - 1}, *m{n - 1}]}}\n" for n in range(1, 31))
    for bomb in (f"x:\n  - &a0 [1]\n{lists}", f"x:\n  - &m0 {{k: 1}}\n{merges}"):
        # It is counted and refused, not built: that would take minutes and the machine's memory.
        assert [line.partition("expands to more than")[1] for line in problems(bomb)] == [
            "expands to more than"
        ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"lake: x\nmore: a\xffb\n",
            r"p.yaml, line 2, column 8: byte 0xff is not UTF-8: save the file as UTF-8",
        ),
        ("lake: ü\n".encode("utf-16"), r"p.yaml, line 1, column 1: byte 0xff is not UTF-8"),
        (b"#" * 5_000_000, "has more than 4,194,304 bytes"),
    ],
)
def test_a_file_that_is_no_text_is_named_with_the_place(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "p.yaml").write_bytes(content)
    with pytest.raises(PolicyError, match=message):
        load_policy(tmp_path / "p.yaml")


def test_what_is_no_file_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"cannot be read: Is a directory. Give one with --config"):
        load_policy(tmp_path)


def test_variables_that_cannot_be_read_are_named() -> None:
    broken = HEAD.replace("c:\n    bootstrap_servers: b1:9092\n", "c: [1]\n")
    [line] = problems(broken, EVENLAG_CLUSTER__C__SCHEDULE="x")
    assert line == "p.yaml, line 3: clusters.c: must be a mapping of keys, not a list"
    for value in ("!!int x", "[", "[" * 5_000, "a\x00"):
        [line] = problems(HEAD, EVENLAG_CLUSTER__C__SCHEDULE=value)
        assert line.startswith("the value of the variable EVENLAG_CLUSTER__C__SCHEDULE cannot be read")
        with pytest.raises(PolicyError, match="the variable EVENLAG_KAFKA_X: it cannot be read"):
            kafka_settings_from_environment({"EVENLAG_KAFKA_X": value})
