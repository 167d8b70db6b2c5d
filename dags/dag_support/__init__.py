"""Modules that the DAG files share; cheap to import, because DAG files are parsed continuously."""
