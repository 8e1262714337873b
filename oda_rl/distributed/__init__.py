"""Annealing and mixtures of data in blocks, in memory or on many machines.

``blocks`` evaluates a question on every block and adds up the answers; ``estimators`` begin with a
sample of the rows and go on with such sums, as does ``mixture``.
"""
