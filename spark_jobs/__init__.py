"""The data pipeline: Spark jobs that read Kafka and the lake, transform DataFrames and write Delta tables."""

from pkgutil import extend_path

# Modules in a folder of this name elsewhere on the path, such as Airflow's DAG folder, import as well.
__path__ = extend_path(__path__, __name__)
