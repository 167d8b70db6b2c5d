"""Generate ``docs/gates.md`` from the gates: ``python -m evenlag.publishing.gates_reference``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from evenlag.policy.gate_contract import Fixed, GateSetting, PlanLimit
from evenlag.policy.gates import GATES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from evenlag.policy.gate_contract import Gate

_INTRODUCTION: Final = """\
# Gates

This page is generated from `evenlag/policy/gates.py` by `python -m evenlag.publishing.gates_reference`; a
test compares the two. [Contributing](../CONTRIBUTING.md#add-a-gate) shows how to add a gate.

evenlag aggregates each plan to one row of numbers, and Great Expectations evaluates every gate for it. A
plan that fails any gate is rejected with its reasons; the plans of the other groups continue. A gate that
could not be evaluated fails the task `decide`, and nothing is approved.

A rejected plan is visible

- in Airflow: the run's task `decide` succeeds and its log line counts the plan (`"rejected": 1`); the other
  groups' plans are in `publish` of the same run,
- in `evenlag plans --group GROUP`: status REJECTED, with the message under *why*; `evenlag plans PLAN_ID`
  lists every gate with the observed and the allowed value,
- in the tables: `gate_results` has a row for each gate, failed or passed, and `plan_events` a REJECTED
  event by `gates`, whose reason contains all messages.
"""
_CHECKS: Final = """\
## The checks

*Alert*: whether a plan that fails this gate raises the alert `PLAN_REJECTED`. Healthy groups fail the
others regularly. *Simulated*: whether a [comparison](comparison.md) applies the gate to simulated plans.
"""
_LIMITS: Final = """\
## The limits

Settings in `gates` of a [rule](reference/rules.md#a-rule-an-entry-of-groups). The other limits are settings
of the rule itself, because the planner uses them too, or no settings.
"""
_EXAMPLES: Final = """\
## A failing plan for each gate

Each row is a plan of a test (`tests/end_to_end/test_modes_and_gates.py`) on a real broker, Spark, Delta
and Great Expectations: groups in all four modes and one for each gate, at the same time.
"""
_NOTES: Final = """\
An unknown value fails its gate with `… is not known, so … cannot be passed`. Only `cooldown` passes then,
because a group without a previous hint has no last hint.

A partition counts as missing by the subscriptions in the snapshot, not by what the plan contains.
`payload_fits` reserves 2,048 bytes of a record for the envelope, the key and Kafka's own headers. Without a
hint topic, Kafka's default of 1,048,588 bytes applies.

A plan that passes is not published for that reason alone. In mode `auto` the policy approves it, in
`approve` a person decides, in `shadow` it stays PROPOSED. The publisher [checks
again](reference/publishing.md), independently, what it is about to send.

## Cost

10,000 plans with 1,000,000 rows, evaluated in one pass by fourteen gates, verdicts and events written: 0.80
of the time that planning the same groups took in the same run (14.5 s and 18.1 s), with `lag-aware`, the
fastest assignor that plans by lag (without session start and imports). Figures:
[bench/gates.json](bench/gates.json); `python -m tests.bench.gates` measures again.
"""


def render_gates(gates: Iterable[Gate] = GATES) -> str:
    """Render the page.

    Returns markdown, with a newline at its end.
    gates: The gates in the order of the page; all of them by default.
    """
    chosen = tuple(gates)
    parts = [
        _INTRODUCTION,
        _CHECKS,
        "\n".join(_checks(chosen)),
        _LIMITS,
        "\n".join(_settings(chosen)),
        _EXAMPLES,
        "\n".join(_examples(chosen)),
        _NOTES,
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def main() -> None:
    """Print the page."""
    sys.stdout.write(render_gates())


def _checks(gates: Iterable[Gate]) -> Iterator[str]:
    yield "| gate | fails when | limit | alert | simulated |"
    yield "| --- | --- | --- | --- | --- |"
    for gate in gates:
        alert = "no" if gate.is_routine else "yes"
        simulated = "yes" if gate.not_simulated is None else f"no: {gate.not_simulated}"
        yield _row(f"`{gate.name}`", gate.fails_when, _limit(gate), alert, simulated)


def _settings(gates: Iterable[Gate]) -> Iterator[str]:
    yield "| key | default | range, unit | meaning |"
    yield "| --- | --- | --- | --- |"
    for gate in gates:
        if isinstance(gate.limit, GateSetting):
            setting = gate.limit
            yield _row(f"`{setting.name}`", f"`{setting.default}`", _range(setting), setting.description)


def _examples(gates: Iterable[Gate]) -> Iterator[str]:
    message = "message (command, event, `gate_results.message`)"
    yield _row("gate", "a plan that fails it", message, "`observed`, `allowed`")
    yield "| --- | --- | --- | --- |"
    for gate in gates:
        example = gate.example
        message = gate.explain(example.observed, example.allowed)
        yield _row(f"`{gate.name}`", example.plan, message, f"`{example.observed}, {example.allowed}`")


def _limit(gate: Gate) -> str:
    limit = gate.limit
    if isinstance(limit, Fixed):
        return f"`{limit.value}`"
    if isinstance(limit, PlanLimit):
        return "by the plan"
    plus = 0 if isinstance(limit, GateSetting) else limit.plus
    return f"{plus} + `{limit.name}`" if plus else f"`{limit.name}`"


def _range(setting: GateSetting) -> str:
    """The bounds of a setting with its unit, e.g. ``0 to below 1`` or ``1 to 86,400 s``."""
    low = f"above {_number(setting.gt)}" if setting.gt is not None else _number(setting.ge)
    high = f"below {_number(setting.lt)}" if setting.lt is not None else _number(setting.le)
    return f"{low} to {high} {setting.unit}".strip()


def _number(value: Any) -> str:
    return "…" if value is None else f"{value:,g}" if value % 1 else f"{int(value):,}"


def _row(*cells: str) -> str:
    texts = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(texts)} |"


if __name__ == "__main__":
    main()
