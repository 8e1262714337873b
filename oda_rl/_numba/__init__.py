"""Passes of numba's compiler, in less time, with the same outcome."""
