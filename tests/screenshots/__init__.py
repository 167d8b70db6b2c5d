"""The pictures of ``docs/images``, made by ``python -m tests.screenshots``."""
