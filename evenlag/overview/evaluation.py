"""Whether a followed plan was worth it, in a few words: what the report's verdict says first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlag.enums import Outcome
from evenlag.formatting import percent

if TYPE_CHECKING:
    from evenlag.overview.model import LastHint, LastPlan


def evaluation_text(plan: LastPlan, hint: LastHint) -> str | None:
    """Return whether a followed plan was worth it, as the report decides it.

    At the plan's horizon its evaluation decides; before, the most loaded member's share of the group's lag.

    Returns the words; None if the plan was not followed.
    """
    if hint.outcome != Outcome.APPLIED:
        return None
    if hint.is_evaluated:
        decided = {True: "worth it", False: "not worth it", None: "whether it was worth it is open"}
        return decided[hint.paid_off]
    before, after, predicted = hint.before_records, hint.actual_records, plan.after_records
    is_known = not plan.num_unknown and not hint.num_unknown and hint.total_actual_records is not None
    if is_known and not hint.total_actual_records:
        return "worth it so far: no lag is left"
    if not is_known or not hint.total_actual_records or not hint.total_before_records:
        return "whether it was worth it is open"
    if not before or after is None:
        return "whether it was worth it is open"
    was, share = before / hint.total_before_records, after / hint.total_actual_records
    is_good = share < was or (predicted is not None and after <= predicted)
    words = "worth it so far" if is_good else "not worth it so far"
    return f"{words}: share of the lag {percent(was)} → {percent(share)}"
