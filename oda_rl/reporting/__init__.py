"""A policy as one HTML file that shows what was learned and can be verified.

``script.js`` runs it in a browser.
"""
