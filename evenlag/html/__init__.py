"""What our pages are made of: one HTML file that asks nobody for anything, light or dark, phone or wall.

The demo's page and the report's share it. Text from outside goes through :func:`html.escape` in
:mod:`evenlag.html.markup`, and into pictures as plain text.
"""
