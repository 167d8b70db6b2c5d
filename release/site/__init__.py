"""The documentation site: what MkDocs needs to read the repository's own pages."""
