"""Races of real processes for what must happen once, on a lake of any root; a reader of its own counts."""
