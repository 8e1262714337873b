"""Would a mistake be noticed? Makes small mistakes on purpose, one at a time, and runs the tests.

``mutations/`` lists the changes, each with the tests that must fail under it. They are made in
temporary copies of the project, never in the checkout. First all these tests must pass in a copy
without any change; what they compile is then copied, too, but for what depends on the changed file.

Run: python scripts/mutate.py [--only WORD ...] [--workers 2] [--write]
All take a quarter of an hour of a processor; the exit code is 1 if a change goes unnoticed. With
``--write`` the results go into the table of CONTRIBUTING.md.
"""

import ast
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
from mutations.delivering import DELIVERING
from mutations.estimators import ESTIMATORS
from mutations.learning import LEARNING
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

ROOT = Path(__file__).parents[1]
MUTATIONS = [*LEARNING, *ESTIMATORS, *DELIVERING]
PACKAGES = {"oda_rl": "oda_rl", "agents": "oda_rl.agents", "envs": "oda_rl.envs"}
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
    """Copy what the tests need, and compiled code, which goes by its source's time of change."""
    ignored = shutil.ignore_patterns("*.pyc")  # Python's own is written anew
    for name in (*PACKAGES, "tests", "scripts"):
        if (source / name).is_dir():
            shutil.copytree(source / name, to / name, ignore=ignored)
    for path in (*source.glob("*.md"), source / "pyproject.toml"):
        shutil.copy2(path, to)


def modules(root: Path) -> dict[str, Path]:
    """Return the files of the packages by the names of their modules."""
    found = {}
    for folder, package in PACKAGES.items():
        for path in (root / folder).rglob("*.py"):
            parts = path.relative_to(root / folder).with_suffix("").parts
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            found[".".join((package, *parts))] = path
    return found


def dependents(root: Path, file: Path) -> set[Path]:
    """Return the files that import another one, or one that does, and that file itself."""
    files = modules(root)
    imports: dict[Path, set[Path]] = {path: set() for path in files.values()}
    for path in files.values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                own = str(node.module)
                names = [own, *(f"{own}.{alias.name}" for alias in node.names)]
            imports[path] |= {files[name] for name in names if name in files}
    found = {file}
    while more := {path for path, used in imports.items() if used & found} - found:
        found |= more
    return found


def change(root: Path, mutation: Mutation) -> None:
    """Make the change, and drop compiled code that may contain what was changed."""
    path = root / mutation.file
    times, files = path.stat(), dependents(root, path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    # If any file were newer than compiled code, the tests would drop all of that.
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    for other in files:
        for compiled in (other.parent / "__pycache__").glob(f"{other.stem}.*.nb?"):
            compiled.unlink()


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
