"""Groups of an overview for tests of its page."""
