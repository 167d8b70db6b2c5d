"""The report: one group and period on one self-contained HTML page."""
