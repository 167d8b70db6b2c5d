"""Generate ``docs/gates.md`` from the gates: ``python -m evenlag.publishing.gates_reference``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final

from evenlag.policy.gates import GATES, Fixed, Gate, GateSetting, PlanLimit

_INTRODUCTION: Final = """\
# Gates

Look up why a plan was rejected. A plan that fails any gate is REJECTED; the plans of the other groups
continue. A gate that could not be evaluated fails the task `decide`, and nothing is approved. This page is
generated from `evenlag/policy/gates.py` by `python -m evenlag.publishing.gates_reference`.

`evenlag plans --group GROUP` shows the status REJECTED with the message under *why*, and `evenlag plans
PLAN_ID` every gate with its value and limit. `gate_results` has a row for each gate of each plan,
`plan_events` the event REJECTED with all messages.
"""
_CHECKS: Final = """\
## The checks

Limits with a name are [settings of the rule](reference/policy.md#groups), or of
[its `gates`](reference/policy.md#groupsgates). *Alert*: a failure raises the alert `PLAN_REJECTED`; healthy
groups fail the other gates regularly. *Simulated*: a [comparison](comparison.md) applies the gate.
"""
_EXAMPLES: Final = """\
## A failing plan for each gate

`tests/end_to_end/test_modes_and_gates.py` has each of these plans.
"""
_NOTES: Final = """\
An unknown value fails its gate with `… is not known, so … cannot be passed`, except for `cooldown`: a group
without a previous hint has none. A partition is missing by the subscriptions in the snapshot. `payload_fits`
reserves 2,048 bytes of a record for envelope, key and headers; without a hint topic, Kafka's default of
1,048,588 bytes applies.

A plan that passes is approved by the policy in mode `auto` and by a user in mode `approve`, and stays
PROPOSED in `shadow`. The publisher [checks an approved plan again](reference/publishing.md).
"""


def render_gates(gates: Iterable[Gate] = GATES) -> str:
    """Render the page."""
    chosen = tuple(gates)
    checks, examples = "\n".join(_checks(chosen)), "\n".join(_examples(chosen))
    parts = [_INTRODUCTION, _CHECKS, checks, _EXAMPLES, examples, _NOTES]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def main() -> None:
    """Print the page."""
    sys.stdout.write(render_gates())


def _checks(gates: Iterable[Gate]) -> Iterator[str]:
    yield "| gate | fails when | limit | alert | simulated |"
    yield "| --- | --- | --- | --- | --- |"
    for gate in gates:
        alert = "no" if gate.is_routine else "yes"
        simulated = "yes" if gate.not_simulated is None else "no"
        yield _row(f"`{gate.name}`", gate.fails_when, _limit(gate), alert, simulated)


def _examples(gates: Iterable[Gate]) -> Iterator[str]:
    yield _row("gate", "a plan that fails it", "message", "`observed`, `allowed`")
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


def _row(*cells: str) -> str:
    texts = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(texts)} |"


if __name__ == "__main__":
    main()
