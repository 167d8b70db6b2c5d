"""The storages that a lake may be on: those that both of its engines, Spark and deltalake, read and write.

A commit creates a file that must not exist yet. What keeps several writers apart there is the storage itself,
and Spark has to use it: by Delta's own log store of that scheme, or by one of evenlag's (``log_store/``).
"""

from typing import Final
from urllib.parse import urlparse

# A commit creates its file only once: by a hard link to a complete file, a put with If-None-Match (S3) or a
# generation of zero (Google), or a rename that does not replace.
LOG_STORES: Final[dict[str, str | None]] = {
    "file": "evenlag.storage.HardLinkLogStore",
    "s3": "evenlag.storage.S3ConditionalLogStore",
    "s3a": "evenlag.storage.S3ConditionalLogStore",
    **dict.fromkeys(("hdfs", "viewfs", "abfs", "abfss", "gs")),
}
"""Class of evenlag's log store that Spark has to use, by URI scheme; None: Delta's own keeps drivers apart.

A plain path is one of ``file``.
"""


def scheme_of(root: str) -> str:
    """Return the scheme of a lake's root.

    Examples
    --------
    >>> scheme_of("/srv/lake"), scheme_of("S3A://bucket/lake")
    ('file', 's3a')
    """
    return urlparse(root).scheme or "file"


def scheme_problem(root: str) -> str | None:
    """Return why a lake cannot be at an address; None if it can.

    Examples
    --------
    >>> scheme_problem("s3://bucket/lake") is None
    True
    >>> scheme_problem("oci://bucket/lake").partition(",")[0]
    'Spark and deltalake do not both read and write oci: addresses'
    """
    scheme = scheme_of(root)
    if scheme in LOG_STORES:
        return None
    known = ", ".join(sorted(LOG_STORES))
    return (
        f"Spark and deltalake do not both read and write {scheme}: addresses, and a lake at {root} needs "
        f"both: name it by one of {known}"
    )


def lake_root(value: str) -> str:
    """Check that a lake can be at an address."""
    problem = scheme_problem(value)
    if problem is not None:
        raise ValueError(problem)
    return value
