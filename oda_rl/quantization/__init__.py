"""Comparators of online annealing: vector quantization and self-organising maps."""
