"""What is true of a rule wherever it is: cells and clauses are polyhedra, asked by linear programs.

``polyhedra`` asks whether one is empty, ``pieces`` takes a rule apart into them, and ``proofs``
says what that means.
"""
