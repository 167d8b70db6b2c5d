"""Kafka's own assignors as an oracle: a small Java program of ours on its client jar, kept running."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sandbox import jars
from tests.support.java_program import JavaProgram

if TYPE_CHECKING:
    from assignor_core.group import Group

__all__ = ["Answer", "Oracle", "class_path_or_reason", "write_problem"]

_SOURCE = Path(__file__).with_name("Oracle.java")


class Answer(NamedTuple):
    """What Kafka answers: int32 [P] as ours, or None if not asked for, and the seconds of each run."""

    assignment: np.ndarray | None
    seconds: list[float]


def class_path_or_reason() -> tuple[str, str]:
    """Return the class path, or an empty one and why there is none; nothing is fetched."""
    folder = jars.cache_dir() / "kafka"
    found = sorted(folder.glob("*.jar")) if folder.is_dir() else []
    if not any("kafka-clients" in jar.name for jar in found):
        return "", "Kafka's client jar is not in the cache: run `make setup`"
    if shutil.which("javac") is None:
        return "", "there is no javac on the path"
    return os.pathsep.join(map(str, found)), ""


class Oracle(JavaProgram):
    """The Java program: problems go in and answers come out."""

    def __init__(self, folder: Path, class_path: str, *, heap: str = "1g") -> None:
        subprocess.run(["javac", "-cp", class_path, "-d", str(folder), str(_SOURCE)], check=True)
        command = [
            "java", f"-Xmx{heap}", "-XX:+UseParallelGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            "-cp", os.pathsep.join([str(folder), class_path]), "Oracle",
        ]  # fmt: skip
        super().__init__(command)

    def ask(self, group: Group, assignor: str, *, runs: int = 1, answer: bool = True) -> Answer:
        """Return what Kafka's assignor of that name makes of a group.

        Names: range, roundrobin, cooperative-sticky (as handed out), sticky-target (with nothing
        withheld), lag-heap (KIP-169 from a heap, ours, for its time only).
        """
        lines = write_problem(group, assignor, runs=runs, answer=answer)
        self._tell("\n".join(lines))
        given: dict[str, str] = {}
        seconds: list[float] = []
        for line in self._answers:
            fields = line.rstrip("\n").split("\t")
            if fields[0] == "E":
                return Answer(_read_assignment(group, given) if answer else None, seconds)
            if fields[0] == "S":
                seconds.append(int(fields[1]) / 1e9)
            else:
                given[fields[1]] = fields[2]
        if seconds and not answer:
            return Answer(None, seconds)
        raise RuntimeError("Kafka's assignor failed or was stopped; a stack trace stands above if it failed")


def write_problem(group: Group, assignor: str, *, runs: int, answer: bool) -> list[str]:
    """Return the lines of a problem, as Oracle.java reads them."""
    sizes = np.diff(group.topic_start).tolist()
    lines = [f"P\t{assignor}\t{runs}\t{int(answer)}"]
    lines += [f"T\t{name}\t{count}" for name, count in zip(group.topics, sizes, strict=True)]
    if assignor == "lag-heap":
        for topic, name in enumerate(group.topics):
            lag = group.lag[group.topic_start[topic] : group.topic_start[topic + 1]]
            lines.append(f"L\t{name}\t{','.join(map(str, lag.tolist()))}")
    if group.row_racks is not None:
        for row, held in enumerate(group.row_racks):
            if held.any():
                place = f"{group.topics[group.row_topic[row]]}\t{group.row_partition[row]}"
                lines.append(f"R\t{place}\t{','.join(f'r{rack}' for rack in np.flatnonzero(held))}")
    return [*lines, *_member_lines(group), "E"]


def _member_lines(group: Group) -> list[str]:
    order = np.argsort(group.claim_member, kind="stable")
    ends = np.cumsum(np.bincount(group.claim_member, minlength=group.num_members))
    lines = []
    for member, claims in enumerate(np.split(order, ends[:-1])):
        held: dict[str, list[str]] = {}
        rows = group.claim_row[claims]
        numbers = group.row_partition[rows].tolist()
        for topic, number in zip(group.row_topic[rows].tolist(), numbers, strict=True):
            held.setdefault(group.topics[topic], []).append(str(number))
        owned = ";".join(f"{topic}:{','.join(parts)}" for topic, parts in held.items())
        first, last = group.subscription_start[member : member + 2]
        topics = ",".join(group.topics[topic] for topic in group.subscription_topic[first:last])
        has_rack = group.member_rack is not None and group.member_rack[member] >= 0
        rack = f"r{group.member_rack[member]}" if group.member_rack is not None and has_rack else "-"
        generation = int(group.claim_generation[claims].max()) if len(claims) else -1
        instance = group.instance_ids[member] or "-"
        fields = ["M", group.member_ids[member], instance, rack, str(generation), topics or "-", owned or "-"]
        lines.append("\t".join(fields))
    return lines


def _read_assignment(group: Group, given: dict[str, str]) -> np.ndarray:
    topic_index = {name: index for index, name in enumerate(group.topics)}
    assignment = np.full(group.num_partitions, -1, dtype=np.int32)
    for member, name in enumerate(group.member_ids):
        for pair in filter(None, given.get(name, "").split(",")):
            topic, _, number = pair.rpartition(":")
            assignment[int(group.topic_start[topic_index[topic]]) + int(number)] = member
    return assignment
