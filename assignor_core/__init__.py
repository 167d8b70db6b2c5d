"""Partition assignment for Kafka consumer groups: pure, on arrays, with no dependency but numpy."""

from pkgutil import extend_path

# Modules in a folder of this name elsewhere on the path, such as Airflow's DAG folder, import as well.
__path__ = extend_path(__path__, __name__)
