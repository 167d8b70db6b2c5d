"""A notifier that writes its messages to the file that ``TEST_NOTIFIED_FILE`` names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk.bases.notifier import BaseNotifier

if TYPE_CHECKING:
    from airflow.sdk import Context


class FileNotifier(BaseNotifier):
    """Templated, as Airflow's own notifiers are."""

    template_fields = ("text",)

    def __init__(self) -> None:
        super().__init__()
        self.text = "{{ evenlag_cluster }} {{ evenlag_raised | length }}: {{ evenlag_text }}"

    def notify(self, context: Context) -> None:  # noqa: ARG002  # the interface has it
        """Write a line."""
        with Path(os.environ["TEST_NOTIFIED_FILE"]).open("a", encoding="utf-8") as file:
            file.write(f"{self.text}\n")


made_before = FileNotifier()
