"""Errors of the jobs, by what the caller can do about them."""

from __future__ import annotations


class JobError(Exception):
    """Root of all errors a job raises on purpose.

    Attributes
    ----------
    retriable
        True when the same call may succeed later without anybody changing anything.
    exit_code
        What a command ends with: 2 for a mistake of the caller, 3 for a system that does not answer,
        4 for data that is not there.
    """

    retriable: bool = False
    exit_code: int = 1


class UsageError(JobError):
    """Raised when options contradict each other or name something that does not exist."""

    exit_code = 2


class NothingThereError(JobError):
    """Raised when the lake has nothing that a question asks for."""

    exit_code = 4


class PolicyError(JobError):
    """Raised when the policy file or an environment override is not valid; the message names the place."""

    exit_code = 2


class SecretError(PolicyError):
    """Raised when a secret that the policy refers to is not there; never carries the secret."""


class KafkaUnreachableError(JobError):
    """Raised when no broker of a cluster answers within the timeout."""

    retriable = True
    exit_code = 3


class KafkaAuthenticationError(JobError):
    """Raised when a broker refuses the credentials or the TLS handshake fails."""

    exit_code = 3


class ClusterMismatchError(JobError):
    """Raised when a broker answers with another cluster id than the lake has for this cluster's name."""

    exit_code = 2


class LakeError(JobError):
    """Raised when a table cannot be read or written: storage comes back more often than not."""

    retriable = True
    exit_code = 3


class LakeConflictError(LakeError):
    """Raised when another writer's commit came in between; nothing was written."""


class SchemaError(LakeError):
    """Raised when a table in the lake, or rows for it, are not what its contract says."""

    retriable = False
    exit_code = 2


class LakeSchemeError(LakeError):
    """Raised when a lake is at an address of a kind that no reader here knows."""

    retriable = False
    exit_code = 2


class SnapshotNotFoundError(JobError):
    """Raised when a slot has no finished snapshot."""

    exit_code = 4


class QualityCheckError(JobError):
    """Raised when the checking itself broke, as opposed to a plan that failed a check."""


class PublishError(JobError):
    """Raised when hints could not be written; nothing of the transaction is visible then."""

    retriable = True
    exit_code = 3


class FencedPublisherError(PublishError):
    """Raised when another publisher of the same cluster has taken over; this one must stop."""

    retriable = False
