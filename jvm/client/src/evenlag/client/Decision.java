package evenlag.client;

import evenlag.core.Reason;

/**
 * A target assignment and its reason.
 *
 * @param target member of each row, before the two-phase step
 * @param reason FOLLOWED, PLACED_BY_LOAD, or why neither a hint nor loads were used
 * @param hintReason FOLLOWED, or why no hint is followed
 * @param planId the plan that was followed or refused; null without a hint
 * @param detail in words and numbers
 */
record Decision(int[] target, Reason reason, Reason hintReason, String planId, String detail) {}
