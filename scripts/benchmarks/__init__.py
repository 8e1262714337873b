"""The benchmarks, a module each: what a run measures, which runs there are, and what is shown.

``scripts/benchmark.py`` runs one: each of ``settings(options)`` is measured by ``measure``, and
``tables`` says of the rows, which are in results/benchmark_NAME.csv, what the terminal and the
pages show. ``draw`` makes a figure. A module with a ``main`` does all of that itself.
"""

import pkgutil

NAMES = sorted(module.name for module in pkgutil.iter_modules(__path__))
