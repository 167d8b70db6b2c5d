"""The steps of the lake's upkeep, each of which may be killed anywhere and repeated."""
