"""Rows of results with their origin: commit, code, versions and command.

A result is a row of a CSV file. Its column ``made`` is the label of an origin, which a line
``# made`` at the head of the file defines.
"""

import csv
import functools
import hashlib
import inspect
import io
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import Any

from oda_rl.files.archive import write_text

Row = dict[str, Any]

_SOURCES = ("oda_rl", "agents", "envs", "scripts")
_LIBRARIES = (
    "numpy", "numba", "gymnasium", "scipy", "scikit-learn", "stable-baselines3", "torch",
)  # fmt: skip
_HEAD = "# made "
_OF_CLASSES = ("__module__", "__firstlineno__", "__static_attributes__")  # equal or not by chance


@dataclass(frozen=True)
class Origin:
    """Code and command that made a result."""

    commit: str  # of the source checkout, with ``+`` if its code was changed; "" without a checkout
    code: str  # :func:`code_digest` of the package
    command: str
    versions: Mapping[str, str]  # :func:`versions` of Python and libraries

    @property
    def label(self) -> str:
        """Short name: the commit, and a digest of all fields."""
        text = json.dumps(asdict(self), sort_keys=True)
        return f"{self.commit[:7] or 'installed'}.{_digest(text)[:4]}"


def origin() -> Origin:
    """Return the origin of this process's results; folders of this machine are left out."""
    program = Path(sys.argv[0])
    script = program.suffix == ".py"
    words = ["python", "/".join(program.parts[-2:])] if script else [program.name]
    threads = os.environ.get("OMP_NUM_THREADS")
    command = f"OMP_NUM_THREADS={threads} " if threads else ""
    command += shlex.join([*words, *sys.argv[1:]])
    return Origin(_commit(), code_digest(), command, versions())


@functools.cache
def code_digest() -> str:
    """Return twelve hexadecimal digits that change with the package's code."""
    files = [path for folder in _folders() for path in sorted(folder.rglob("*.py"))]
    return _digest("\n".join(path.read_text(encoding="utf-8") for path in files))[:12]


def function_digest(function: Any) -> str:
    """Return twelve digits that change with a function's code, and what it uses of its module."""
    texts: dict[str, str] = {}  # by name
    module = inspect.unwrap(getattr(function, "func", function)).__module__

    def read(name: str, value: Any) -> None:
        if isinstance(value, functools.partial):
            read(f"{name}()", [value.args, value.keywords])
            value = value.func
        value = inspect.unwrap(getattr(value, "__func__", getattr(value, "fget", value)))
        if getattr(value, "__module__", None) != module:
            with suppress(TypeError, ValueError):  # JSON cannot hold it
                texts[name] = json.dumps(value, sort_keys=True)
            return
        value = value if inspect.isfunction(value) or inspect.isclass(value) else type(value)
        name = value.__qualname__
        if name in texts:
            return
        texts[name] = ""
        if inspect.isclass(value):
            used = {key: one for key, one in vars(value).items() if key not in _OF_CLASSES}
        else:
            codes, names = list(_codes(value.__code__)), value.__globals__
            texts[name] = repr([(code.co_code, code.co_names, _constants(code)) for code in codes])
            for key in {key for code in codes for key in code.co_names} & names.keys():
                read(key, names[key])
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            used = dict(zip(value.__code__.co_freevars, cells, strict=True))
            used |= {"": [value.__defaults__, value.__kwdefaults__]}
        for key, one in used.items():
            read(f"{name}.{key}", one)

    read("", function)
    return _digest(json.dumps(texts, sort_keys=True))[:12]


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code, and that of functions in it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _constants(code: CodeType) -> list[str]:
    """Return the constants as text, the same in each process: those of a set are sorted."""
    kept = (one for one in code.co_consts if not isinstance(one, CodeType))
    return [str(sorted(map(repr, one)) if isinstance(one, frozenset) else [one]) for one in kept]


def store_rows(
    path: str | Path,
    rows: Sequence[Mapping[str, Any]],
    key: Sequence[str],
    origins: Iterable[Origin] | None = None,
) -> list[Row]:
    """Write rows to a CSV file, where they replace rows of the same key; return all of its rows.

    Floats are rounded to seven digits. Without columns in ``key`` all rows are replaced. ``made``
    is the label of a row's origin, one of ``origins``, by default this process.
    """
    given = [origin()] if origins is None else list(origins)
    known = {made.label: json.dumps(asdict(made), sort_keys=True) for made in given}
    labelled = [{"made": given[0].label, **row} if origins is None else row for row in rows]
    for row in labelled:
        if row.get("made") not in known:
            raise ValueError(f"rows has a row made by {row.get('made')!r}: origins are {[*known]}")
    new = [{name: _text(value) for name, value in row.items()} for row in labelled]
    heads, old = _read(Path(path)) if Path(path).is_file() else ({}, [])
    replaced = {_identity(row, key) for row in new}
    old = [row for row in old if _identity(row, key) not in replaced]
    columns = {name: None for row in (*new, *old) for name in row if name != "made"}
    known = {**heads, **known}
    text = io.StringIO()
    labels = dict.fromkeys(row["made"] for row in (*old, *new))
    text.writelines(f"{_HEAD}{label}: {known[label]}\n" for label in labels)
    writer = csv.DictWriter(text, [*columns, "made"], restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows([*old, *new])
    write_text(path, text.getvalue())
    return read_rows(path)


def read_rows(path: str | Path) -> list[Row]:
    """Read the rows of a file of :func:`store_rows`, with numbers as numbers."""
    return [  # a label may look like a number
        {name: text if name == "made" else _value(text) for name, text in row.items()}
        for row in _read(Path(path))[1]
    ]


def markdown_table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    rows = [f"| {' | '.join(line)} |" for line in (heads, *lines)]
    return "\n".join([rows[0], f"|{'---|' * len(heads)}", *rows[1:]])


def _read(path: Path) -> tuple[dict[str, str], list[dict[str, str]]]:
    """Return the origins by label, and the rows as text."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    heads = [line for line in lines if line.startswith(_HEAD)]
    named = [line.removeprefix(_HEAD).rstrip("\n").partition(": ") for line in heads]
    return {label: text for label, _, text in named}, list(csv.DictReader(lines[len(heads) :]))


def _identity(row: Mapping[str, str], key: Sequence[str]) -> tuple[str, ...]:
    return tuple(row.get(name, "") for name in key)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.7g}"
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value)
    return "" if value is None else str(value)


def _value(text: str) -> Any:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return {"True": True, "False": False, "": None}.get(text, text)


def _folders() -> list[Path]:
    """Return the folders of the package, which in a source checkout lie side by side."""
    specs = [find_spec(name) for name in ("oda_rl", "oda_rl.agents", "oda_rl.envs")]
    places = [spec.submodule_search_locations for spec in specs if spec is not None]
    return [Path(place[0]) for place in places if place]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _commit() -> str:
    root = Path(__file__).parent.parent.parent
    if not (root / "pyproject.toml").is_file():
        return ""
    head = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--", *_SOURCES)
    return head + ("+" if head and changed else "")


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that results depend on."""
    installed = {"python": platform.python_version()}
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


def peak_megabytes() -> float:
    """Return the peak memory of this process in MB; ``getrusage`` includes its parent's."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
