"""Test the package with the oldest and the newest versions that its bounds allow, extras included.

For each Python an environment is made with the oldest versions of all that pyproject.toml names,
and one with the newest; part of the quick suite runs in each. Then the licences of the whole tree
of dependencies are listed, and pip-audit is asked which of its versions have known vulnerabilities
(it asks pypi.org, and says so if that cannot be reached). PyTorch is always that of
constraints.txt: others come with gigabytes of CUDA.

    python scripts/check_supply.py --pythons 3.11 3.13

Writes results/check_supply.csv, a row for each environment.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from common.experiment import Experiment, chosen, say, start
from common.summaries import Column, Row, Rows, Table, the

ROOT = Path(__file__).parent.parent
EXPERIMENT = Experiment("check_supply")
BINARY = ("--only-binary", ":all:", "--no-binary", "minisom")  # which has no wheels
RESOLUTIONS = {"oldest": "lowest-direct", "newest": "highest"}
TESTS = ("package", "adaptation", "vector", "sb3", "offline", "export", "estimators", "saving")
SHOWN = ("gymnasium", "numpy", "numba", "scipy", "scikit-learn", "stable-baselines3")
LICENCES = """
from importlib.metadata import distributions
import json
found = {}
for one in distributions():
    about = one.metadata
    classified = [c.split(" :: ")[-1] for c in about.get_all("Classifier", []) if "License ::" in c]
    said = about.get("License-Expression") or ", ".join(classified) or about.get("License") or "?"
    found[about["Name"].lower().replace("_", "-")] = [one.version, said.splitlines()[0]]
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Options:
    """What to look at."""

    pythons: tuple[str, ...] = ("3.11", "3.13")
    """Versions of Python that are on this machine."""
    only: tuple[str, ...] = ()
    """Of oldest and newest; by default both."""
    tests: tuple[str, ...] = TESTS
    """Files of tests, without test_ and .py."""


def uv(*arguments: str | Path) -> None:
    """Call uv, which resolves to the oldest versions, too."""
    links = {"UV_FIND_LINKS": os.environ.get("PIP_FIND_LINKS", "")}  # it reads nothing of pip's
    command = [sys.executable, "-m", "uv", "--quiet", *map(str, arguments)]
    subprocess.run(command, check=True, env={**os.environ, **links})


def make(python: str, which: str, folder: Path) -> Path:
    """Make an environment with the package, all extras and what tests need; return its Python."""
    ignored = shutil.ignore_patterns(".*", "build", "dist", "runs", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, folder / "source", ignore=ignored)  # compiles for itself
    uv("venv", "--python", python, folder / "venv")
    own, needs = folder / "venv" / "bin" / "python", folder / "needs.txt"
    uv("pip", "compile", "--python", own, "--resolution", RESOLUTIONS[which],
       *BINARY, "--constraint", ROOT / "constraints.txt",
       "--extra", "dev", ROOT / "pyproject.toml", "--output-file", needs)  # fmt: skip
    uv("pip", "install", "--python", own, *BINARY, "--requirement", needs, "pip-audit")
    uv("pip", "install", "--python", own, "--no-deps", "--editable", folder / "source")
    return own


def tested(own: Path, folder: Path, tests: tuple[str, ...]) -> Row:
    """Run tests in an environment; return how many passed."""
    files = [f"tests/test_{name}.py" for name in tests]
    command = [own, "-m", "pytest", "-q", "-W", "default", "-m", "not slow", *files]
    done = subprocess.run(command, cwd=folder / "source", capture_output=True, text=True)
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-500:]
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped|error)", last)}
    say(*re.findall(r"^(?:FAILED|ERROR) .*", done.stdout, re.MULTILINE))
    return {word: counts.get(word, 0) for word in ("passed", "failed", "error", "skipped")}


def licences(own: Path) -> dict[str, tuple[str, str]]:
    """Return version and licence of all that is installed, by names."""
    found = subprocess.run([own, "-c", LICENCES], check=True, capture_output=True, text=True)
    read: dict[str, tuple[str, str]] = json.loads(found.stdout)
    return read


def vulnerabilities(own: Path) -> str:
    """Return what pip-audit says of an environment."""
    command = [own, "-m", "pip_audit", "--progress-spinner", "off", "--timeout", "10"]
    done = subprocess.run(command, capture_output=True, text=True)
    said = (done.stdout + done.stderr).strip().splitlines() or ["nothing"]
    asked = done.returncode == 0 or "known vulnerabilit" in done.stderr
    return "\n".join(said) if asked else f"it could not be asked: {said[-1]}"


def by_licence(found: dict[str, tuple[str, str]]) -> Iterator[str]:
    """Return a line for each licence, of those that have it."""
    names = defaultdict(list)
    for name, (version, licence) in sorted(found.items()):
        names[licence].append(f"{name} {version}")
    for licence, own in sorted(names.items()):
        yield f"{licence}: {', '.join(own)}"


def tables(rows: Rows) -> dict[str, Table]:
    """Return what was tested."""
    columns = [
        Column("Python", the("python")),
        Column("versions", the("which")),
        *(Column(name, the(name)) for name in SHOWN),
        *(Column(name, the(name)) for name in ("passed", "failed", "skipped")),
    ]
    lines = rows.groups("python", "which")
    return {"supply": Table("with the oldest and newest versions", columns, lines)}


def main(options: Options) -> None:
    """Make the environments, one after the other."""
    rows = []
    for python in options.pythons:
        for which in chosen(options.only, RESOLUTIONS):
            say(f"Python {python}, {which} versions")
            with TemporaryDirectory() as name:
                own = make(python, which, Path(name))
                found = licences(own)
                versions = {one: found[one][0] for one in SHOWN}
                counts = tested(own, Path(name), options.tests)
                rows.append({"python": python, "which": which, **versions, **counts})
                if which == "newest":
                    say(*by_licence(found), "Known vulnerabilities:", vulnerabilities(own))
    stored = EXPERIMENT.write(rows, ["python", "which"])
    say(*tables(stored).values())
    if any(row["failed"] or row["error"] for row in rows):
        sys.exit("tests fail: see above")


if __name__ == "__main__":
    start(main, Options, __doc__)
