"""Rules are edited within clauses, and proved by linear programs."""
