"""A policy as one HTML file that shows what was learned and can be verified.

``content`` makes and verifies a report; ``page`` writes it with tables and figures into
``page.html``, whose ``script.js`` runs the same policy in a browser.
"""
