"""What is done with rules: edited within clauses, and proved by linear programs."""
