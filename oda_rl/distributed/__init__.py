"""Annealing and mixtures of data in blocks, in memory or on many machines."""
