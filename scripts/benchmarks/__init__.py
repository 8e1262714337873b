"""The benchmarks, a module each: what a run measures, which runs there are, and what is shown.

``scripts/benchmark.py`` runs one: it calls the module's ``main`` with its ``Options``. ``tables``
says of the rows what the terminal and the pages show. The rows are in results/benchmark_NAME.csv.
"""

import pkgutil

NAMES = sorted(module.name for module in pkgutil.iter_modules(__path__))
