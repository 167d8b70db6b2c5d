"""The least PySpark program: start a session with the jobs' own JVM options, and append one row to Delta."""

from __future__ import annotations

import sys

from spark_jobs.runtime.session import open_session


def main(folder: str) -> int:
    """Append one row to the table in `folder`."""
    with open_session("evenlag-bench-least") as spark:
        spark.createDataFrame([(1, "row")], "number INT, name STRING").coalesce(1).write.format("delta").mode(
            "append"
        ).save(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
