"""What Airflow lists of evenlag among its providers, by the entry point ``apache_airflow_provider``."""

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the name and the description; Airflow reads the version from the package."""
    return {
        "package-name": "evenlag",
        "name": "evenlag",
        "description": "Lag-aware rebalancing of Kafka consumer groups: DAGs, and a page for the navigation.",
    }
