"""Trees of annealed codebooks, each level at a finer resolution of the data."""
