"""Trees of annealed codebooks, each level at a finer resolution of the data.

``nodes`` are cells and their statistics, ``growth`` divides them, ``base`` is the base class of the
``estimators``.
"""
