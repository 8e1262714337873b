"""Densities of exemplars, of which there may be infinitely many (INFEX)."""
