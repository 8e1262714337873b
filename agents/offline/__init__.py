"""Logged transitions: where they come from, and how agents take them."""
