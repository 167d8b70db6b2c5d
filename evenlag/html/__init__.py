"""Self-contained HTML pages without external resources, with light and dark styles, for all screen sizes."""
