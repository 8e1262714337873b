"""The self-organising map."""

from oda_rl.quantization.som import SOM as SOM
