"""What the DAG files share; cheap to import, because a scheduler parses DAG files all day."""
