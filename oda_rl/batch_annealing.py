"""Deterministic annealing of a batch."""

from oda_rl.quantization.batch_annealing import (
    BatchDeterministicAnnealing as BatchDeterministicAnnealing,
)
