"""Linear algebra of small matrices inside compiled code."""
