"""A policy as a document: one HTML file that says what was learned, shows it, and can be verified.

``content`` is what a report says, and how it is verified; ``page`` puts it, with tables and
figures, into ``page.html``, with ``style.css`` and ``script.js``, which decides by the same numbers
in a browser.
"""
