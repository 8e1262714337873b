"""A policy as a document: one HTML file that says what was learned, shows it, and can be verified.

``content`` is what a report says, and its way into a file and back; ``replaying`` makes a policy of
the numbers in it, and plays; ``verifying`` does so once more. ``tables`` and ``figures`` are what
others show of a policy, too. ``page`` puts all into ``page.html``, with ``style.css`` and
``script.js``, which decides by the same numbers in a browser.
"""
