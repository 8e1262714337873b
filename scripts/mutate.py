"""Would a mistake be noticed? Makes small mistakes on purpose, one at a time, and runs the tests.

``mutations/`` lists the changes, each with the tests that must fail under it. They are made in
temporary copies of the project, never in the checkout. First all these tests must pass in a copy
without any change.

Run: python scripts/mutate.py [--only WORD ...] [--workers 2] [--write]
All take a quarter of an hour of a processor; the exit code is 1 if a change goes unnoticed. With
``--write`` the results go into the table of CONTRIBUTING.md.
"""

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import tyro
from mutations import Mutation
from mutations.compiling import COMPILING
from mutations.delivering import DELIVERING
from mutations.estimators import ESTIMATORS
from mutations.fitting import FITTING
from mutations.learning import LEARNING
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

ROOT = Path(__file__).parents[1]
MUTATIONS = [*LEARNING, *FITTING, *ESTIMATORS, *DELIVERING, *COMPILING]
FOLDERS = "oda_rl", "agents", "envs", "tests", "scripts"
LONGEST = 900.0  # seconds that tests may take
MOST_MEMORY = 8_000_000  # kilobytes that tests may take: some mistakes go on for ever
GUIDE = "CONTRIBUTING.md"
BEGIN, END = "<!-- mutations -->", "<!-- end -->"
CAUGHT, SURVIVED = "caught", "SURVIVED"


def stale(mutations: Iterable[Mutation], root: Path) -> list[str]:
    """Return what in the list no longer fits the files."""
    errors = []
    for mutation in mutations:
        count = (root / mutation.file).read_text(encoding="utf-8").count(mutation.old)
        if count != 1:
            errors.append(f"{mutation.file} has {count} times, not once: {mutation.old}")
        for test in mutation.tests:
            path, _, name = test.partition("::")
            wanted = f"\ndef {name.partition('[')[0]}(" if name else ""
            if wanted not in (root / path).read_text(encoding="utf-8"):
                errors.append(f"{path} has no test {name}")
    return errors


def copy_tree(source: Path, to: Path) -> None:
    """Copy what the tests need."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in FOLDERS:
        if (source / name).is_dir():
            shutil.copytree(source / name, to / name, ignore=ignored)
    for path in (*source.glob("*.md"), source / "pyproject.toml"):
        shutil.copy2(path, to)


def change(root: Path, mutation: Mutation) -> None:
    """Make the change."""
    path = root / mutation.file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")


def run_tests(root: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Run tests in a copy; returns pytest's exit code and what it printed."""
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", *tests]
    command = ["sh", "-c", f'ulimit -v {MOST_MEMORY} && exec "$@"', "sh", *command]
    environment = {**os.environ, "PYTHONPATH": str(root), "COLUMNS": "300"}
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=LONGEST
        )
    except subprocess.TimeoutExpired:
        return -1, f"no end after {LONGEST:.0f} seconds"
    return done.returncode, done.stdout + done.stderr


def judge(base: Path, mutation: Mutation) -> str:
    """Return whether each of the tests notices a change of a copy in which all of them pass."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        copy_tree(base, root)
        change(root, mutation)
        code, printed = run_tests(root, mutation.tests)
    if code not in (0, 1):
        return f"no verdict: {(printed.strip() or 'killed').splitlines()[-1]}"
    unmoved = [
        test
        for test in mutation.tests
        if f"\nFAILED {test}" not in printed and f"\nERROR {test}" not in printed
    ]
    return f"{SURVIVED} {', '.join(unmoved)}" if unmoved else CAUGHT


def row(mutation: Mutation, noticed: str) -> str:
    """Return a row of the table."""
    names = [test.removeprefix("tests/").replace("::", ": ") for test in mutation.tests]
    tests = "; ".join(f"`{name}`" for name in names)
    return f"| `{mutation.file}` | {mutation.about} | {tests} | {noticed} |"


def table(rows: Iterable[str]) -> str:
    """Return the table of :data:`GUIDE`, between its markers."""
    head = "| file | mistake | noticed by | |", "|---|---|---|---|"
    return "\n".join([BEGIN, *head, *rows, END])


def write_table(path: Path, verdicts: dict[Mutation, str]) -> None:
    """Put results into the table of a file; those that are not new remain."""
    before, begin, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    known, end, after = rest.partition(END)
    assert begin + end == BEGIN + END, f"{path} must have the lines {BEGIN} and {END}"
    noticed = {row(one, "yes") for one in MUTATIONS if row(one, "yes") in known.splitlines()}
    noticed -= {row(one, "yes") for one in verdicts}
    noticed |= {row(one, "yes") for one, verdict in verdicts.items() if verdict == CAUGHT}
    rows = [row(one, "yes" if row(one, "yes") in noticed else "**no**") for one in MUTATIONS]
    path.write_text(f"{before}{table(rows)}{after}", encoding="utf-8")


@dataclasses.dataclass(frozen=True)
class Options:
    """What to run."""

    only: tuple[str, ...] = ()
    """Only changes that have one of these in their file, description or tests."""
    workers: int = 2
    """Changes tried out at the same time."""
    write: bool = False
    """Whether to write the results to CONTRIBUTING.md, where those of others remain."""


def is_named(mutation: Mutation, words: Sequence[str]) -> bool:
    """Whether a change has one of these words in its file, description or tests."""
    text = " ".join((mutation.file, mutation.about, *mutation.tests))
    return any(word in text for word in words)


def main(options: Options) -> int:
    """Try out the changes; returns the exit code."""
    console = Console(highlight=False, soft_wrap=True)
    chosen = [one for one in MUTATIONS if not options.only or is_named(one, options.only)]
    assert chosen, f"--only names no change: {', '.join(options.only)}"
    errors = stale(MUTATIONS, ROOT)
    if errors:
        console.print("The list is stale.", *errors, sep="\n", markup=False)
        return 1
    verdicts: dict[Mutation, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        copy_tree(ROOT, base)
        with console.status("running the tests without any change"):
            code, printed = run_tests(base, sorted({t for m in chosen for t in m.tests}))
        if code != 0:
            console.print("Tests fail without any change.", printed, sep="\n", markup=False)
            return 1
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        pool = ThreadPoolExecutor(options.workers)
        try:
            with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
                running = {pool.submit(judge, base, mutation): mutation for mutation in chosen}
                for future in progress.track(as_completed(running), len(running), description=""):
                    mutation = running[future]
                    verdicts[mutation] = future.result()
                    text = f"{verdicts[mutation]}: {mutation.file}: {mutation.about}"
                    progress.console.print(text, markup=False)
                    sys.stdout.flush()
        finally:
            pool.shutdown(cancel_futures=True)
    n_caught = sum(verdict == CAUGHT for verdict in verdicts.values())
    console.print(f"{n_caught} of {len(chosen)} were noticed")
    if options.write:
        write_table(ROOT / GUIDE, verdicts)
    return 0 if n_caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__)))
