"""Self-contained HTML pages without external resources, with light and dark styles, for all screen sizes.

The report and the demo use them. :mod:`evenlag.html.markup` escapes all text with
:func:`~evenlag.html.markup.text`; charts contain it as plain text.
"""
