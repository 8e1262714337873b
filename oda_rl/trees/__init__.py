"""Trees of annealed cells, each level at a finer resolution of the data.

``growth`` splits nodes as samples arrive, ``nodes`` are their cells and statistics;
``base`` is what the estimators share; ``clusterer``, ``classifier`` and
``regressor`` are the estimators.
"""
