"""Comparators of online annealing: vector quantization, self-organising maps, batch annealing."""
