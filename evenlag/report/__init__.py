"""The report: one group and period on one self-contained HTML page.

:mod:`~evenlag.report.read_report` reads the period from the lake without a JVM, :mod:`~evenlag.report.page`
builds the page. Both the command and the Airflow plugin use them.
"""
