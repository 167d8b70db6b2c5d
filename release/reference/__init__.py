"""The pages under ``docs/reference`` and the index of the decision records, generated from the code."""
