"""Annealing, and mixtures, of data that lie in blocks, here or on many machines: sums travel.

``blocks`` asks every block the same and adds up the answers, by Dask where the blocks are Dask's;
``sums`` is what blocks answer, and ``annealing`` leads a codebook by that. ``clusterer``,
``classifier`` and ``mixture`` are the estimators.
"""
