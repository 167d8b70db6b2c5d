"""Checks of the policy: it is valid, its secrets resolve, and each rule can apply to a group."""

import stat
from collections.abc import Sequence

from evenlag.doctor.model import Check, Finding, failed, ok, warning
from evenlag.errors import SecretError
from evenlag.policy.loader import LoadedPolicy, foreign_assignor_faults, rules_that_never_apply
from evenlag.policy.settings import Policy


def policy_checks(loaded: LoadedPolicy, origin: str, clusters: Sequence[str]) -> list[Check]:
    """Return the checks of one policy."""
    policy = loaded.policy
    return [
        Check("policy", "valid", lambda: ok(f"{origin}; clusters: {', '.join(policy.clusters)}")),
        Check("policy", "secrets", lambda: check_secrets(policy, clusters)),
        Check("policy", "rules", lambda: check_rules(loaded)),
        Check("policy", "assignors", lambda: check_assignors(policy)),
    ]


def check_secrets(policy: Policy, clusters: Sequence[str]) -> list[Finding]:
    """Check that every secret of the policy resolves and that no secret file is readable by every user."""
    from evenlag.publishing.sealing.row_seal import key_id

    found: list[Finding] = []
    key_ids: list[str] = []
    references = policy.secrets(clusters)
    for place, (reference, read) in references.items():
        try:
            value = read()
        except SecretError as error:
            found += failed(f"{place}: {error}", "set it where this command and the workers run")
            continue
        if reference.file is not None and reference.file.stat().st_mode & stat.S_IROTH:
            found += warning(
                f"{place}: every user of this machine can read {reference.file}",
                f"chmod o-r {reference.file}",
            )
        if isinstance(value, bytes):
            key_ids.append(f"{place} {key_id(value)}")
    message = f"{len(references)} secrets are there"
    return found or ok(f"{message}; ids of keys: {', '.join(key_ids)}" if key_ids else message)


def check_rules(loaded: LoadedPolicy) -> list[Finding]:
    """Check that each rule can apply to a group."""
    found = [one for each in rules_that_never_apply(loaded) for one in warning(*each)]
    return found or ok(f"{len(loaded.policy.groups)} rules, each of which can apply")


def check_assignors(policy: Policy) -> list[Finding]:
    """Check that the assignors of other packages load here, and that none has a name of ours."""
    from assignor_core.assignors.installed import declared_assignors

    remedy = "correct or reinstall the package here, and where Spark's executors run"
    found = [one for fault in foreign_assignor_faults(policy) for one in warning(fault, remedy)]
    return found or ok(f"{len(declared_assignors())} assignors of other packages")
