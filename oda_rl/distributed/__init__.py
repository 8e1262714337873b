"""Annealing and mixtures of data in blocks, in memory or on many machines.

``blocks`` evaluates a question on every block and adds up the answers, which are in ``sums``;
``annealing`` trains a codebook that way, for the ``estimators``; ``mixture`` is a Gaussian mixture.
"""
