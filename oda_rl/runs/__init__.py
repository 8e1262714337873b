"""Experiments side by side, and what they leave: rows with their origin, and statistics."""
