"""Errors, by what the caller can do about them."""


class JobError(Exception):
    """Base class of all expected errors.

    Attributes
    ----------
    retriable
        Whether the same call may succeed later without any change.
    exit_code
        Exit code of a command: 2 for wrong usage or configuration, 3 for an unavailable system, 4 for
        missing data.
    message, remedy
        The two parts of the text, where the error was raised with both.
    """

    retriable: bool = False
    exit_code: int = 1

    def __init_subclass__(cls, *, exit_code: int | None = None, retriable: bool | None = None) -> None:
        super().__init_subclass__()
        cls.exit_code = cls.exit_code if exit_code is None else exit_code
        cls.retriable = cls.retriable if retriable is None else retriable

    def __init__(self, message: str = "", *, remedy: str = "") -> None:
        super().__init__(f"{message}: {remedy}" if remedy else message)
        self.message, self.remedy = message, remedy


class UsageError(JobError, exit_code=2):
    """Raised when options contradict each other or name something that does not exist."""


class NotFoundError(JobError, exit_code=4):
    """Raised when the lake has nothing that a question asks for."""


class PolicyError(JobError, exit_code=2):
    """Raised when the policy file or an environment override is invalid; the message locates the fault."""


class SecretError(PolicyError):
    """Raised when a secret that the policy refers to does not exist; never contains the secret."""


class JarError(JobError, exit_code=2):
    """Raised when a jar for a class path has other content than recorded, or others may write it."""


class KafkaSettingsError(JobError, exit_code=2):
    """Raised when a setting of a connection, or a file that it names, cannot be used by this process."""


class KafkaUnreachableError(JobError, exit_code=3, retriable=True):
    """Raised when no broker of a cluster answers within the timeout."""


class KafkaAuthenticationError(JobError, exit_code=3):
    """Raised when a broker and evenlag do not accept each other: login, certificate, TLS or SASL."""


class KafkaAuthorizationError(JobError, exit_code=3):
    """Raised when evenlag's principal lacks an ACL without which nothing can be read or written."""


class ClusterMismatchError(JobError, exit_code=2):
    """Raised when a broker reports another cluster id than the lake has for this cluster name."""


class SparkUnreachableError(JobError, exit_code=3, retriable=True):
    """Raised when a Spark Connect server does not answer, or ends the session of a job."""


class SparkAuthenticationError(JobError, exit_code=3):
    """Raised when a Spark Connect server refuses the token, or needs one."""


class SparkServerError(JobError, exit_code=2):
    """Raised when a Spark Connect server cannot run a job: it lacks Delta, or runs other code of evenlag."""


class LakeError(JobError, exit_code=3, retriable=True):
    """Raised when a table cannot be read or written. Retriable: most storage faults are temporary."""


class LakeConflictError(LakeError):
    """Raised when another writer committed at the same time; nothing was written."""


class SchemaError(LakeError, exit_code=2, retriable=False):
    """Raised when a table in the lake, or rows for it, do not match its contract."""


class LakeSchemeError(LakeError, exit_code=2, retriable=False):
    """Raised when the URI scheme of a lake is not supported."""


class SnapshotNotFoundError(JobError, exit_code=4):
    """Raised when a slot has no finished snapshot."""


class QualityCheckError(JobError):
    """Raised when a data quality check could not run, as opposed to a plan that failed a check."""


class PublishError(JobError, exit_code=3, retriable=True):
    """Raised when hints could not be written; the transaction was aborted."""


class UnknownOutcomeError(PublishError):
    """Raised when a commit got no answer, and it could not be found out whether hints were written.

    The next run finds out: it fences this one, which ends the transaction, and reads the topic.
    """


class FencedPublisherError(PublishError, retriable=False):
    """Raised when another publisher of the same cluster has fenced this one, which must stop."""
