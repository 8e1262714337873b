"""Run a benchmark by its name; without one, say which there are.

Run: python scripts/benchmark.py [NAME [--help] [options]]
"""

import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from benchmarks import NAMES
from common.experiment import SharedOptions, measure, start

FOLDER = Path(__file__).parent / "benchmarks"


def main(arguments: Sequence[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        for name in NAMES:
            text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")  # to import it would be slow
            about = text.splitlines()[0].strip('"')
            print(f"{name:12}{about}")
        return
    name, *options = arguments
    if name not in NAMES:
        print(f"there is no benchmark {name!r}: there are {', '.join(NAMES)}", file=sys.stderr)
        sys.exit(2)
    benchmark = import_module(f"benchmarks.{name}")
    about = f"{benchmark.__doc__}\nWrites results/benchmark_{name}.csv. Runs are not repeated."
    main = getattr(benchmark, "main", partial(measure, benchmark))
    kind = getattr(benchmark, "Options", SharedOptions)
    start(main, kind, about, f"benchmark.py {name}", options)


if __name__ == "__main__":
    main(sys.argv[1:])
