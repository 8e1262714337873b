"""Comparators of online annealing: vector quantization, self-organising maps, batch annealing."""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.quantization.batch_annealing import (
        BatchDeterministicAnnealing as BatchDeterministicAnnealing,
    )
    from oda_rl.quantization.som import SOM as SOM
    from oda_rl.quantization.vq import LVQ as LVQ
    from oda_rl.quantization.vq import StochasticVQ as StochasticVQ

__getattr__, __dir__ = offer(
    __name__,
    {
        "BatchDeterministicAnnealing": "batch_annealing",
        "LVQ": "vq",
        "StochasticVQ": "vq",
        "SOM": "som",
    },
)
