"""Parameters of functions and methods, as ``conf.py`` shows them and a test expects them."""

import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

USUAL = {
    "X": ("array-like, shape (n_samples, n_features)", "Samples."),
    "y": (
        "array-like, shape (n_samples,) or (n_samples, n_outputs), optional",
        "Classes for a classifier, targets for a regressor; others ignore it.",
    ),
    "classes": ("array-like, optional", "All classes, if the first samples may not have them all."),
    "sample_weight": (
        "array-like, shape (n_samples,), optional",
        "At least 0, relative to one another; by default 1.",
    ),
    "fit_params": ("", "Passed on to :meth:`fit`."),
    "n_samples": ("int, default=1", "Number of samples to draw."),
    "random_state": ("int, RandomState instance or None, default=None", "Draws the samples."),
    "level": ("int, optional", "Index into ``history_``; of a tree the depth at which it is cut."),
    "n_clusters": ("int, optional", "Instead: the last level with at most this many codevectors."),
    "ax": ("matplotlib Axes, optional", "Where to draw; by default on a new figure."),
    "estimator": ("scikit-learn estimator", "With ``partial_fit`` and ``predict``."),
    "runs": ("sequence of Run", "Result of ``run_all``."),
    "path": ("str or Path", "Name of the file."),
    "seed": ("int, optional", "Random seed; at least 0."),
    "points": ("ndarray, shape (n, d)", "Points; a policy's are flattened observations."),
    "point": ("ndarray, shape (d,)", "A flattened observation."),
    "codevectors": ("ndarray, shape (m, d)", "Points, one for each cell."),
    "observations": ("ndarray, shape (n, d)", "Flattened observations."),
    "choice": ("int", "Number of the choice at the point, from 0."),
    "scale": ("ndarray, shape (d,)", "Inverse standard deviations of the components."),
    "arrays": ("dict of str to ndarray", "Result of ``arrays``."),
    "state": ("mapping of str to ndarray", "Result of ``state``."),
    "n_features": ("int", "Number of components d."),
    "rng": ("numpy Generator", "Draws what is random."),
}
"""Parameters that mean the same in every method; a docstring may leave their description to us."""
_ELSEWHERE = re.compile(r"\bArguments\b.* are\b|\b[Aa]s :meth:")  # another docstring has them


def described(what: Any, lines: list[str]) -> tuple[list[str], list[str]]:
    """Return a docstring's lines with the usual parameters, and names of which it says nothing."""
    begin = lines.index("Parameters") + 2 if "Parameters" in lines else len(lines)
    titles = (k - 1 for k in range(begin, len(lines)) if lines[k] and set(lines[k]) == {"-"})
    end = next(titles, len(lines))
    names = " ".join(line for line in lines[begin:end] if line[:1].strip())
    section, unknown = [], []
    for one in inspect.signature(what).parameters.values():
        if one.name == "self" or re.search(rf"\b{one.name}\b", names):
            continue
        if one.name not in USUAL:
            unknown.append(one.name)
            continue
        of, text = USUAL[one.name]
        stars = "**" if one.kind is one.VAR_KEYWORD else ""
        section += [f"{stars}{one.name} : {of}" if of else stars + one.name, f"    {text}"]
    title = ["", "Parameters", "----------"] * (begin == len(lines))
    while not title and not lines[end - 1]:
        end -= 1
    added = [*title, *section, ""] if section else []
    unknown = [] if _ELSEWHERE.search(" ".join(lines)) else unknown
    return [*lines[:end], *added, *lines[end:]], unknown


def _members() -> Iterator[tuple[str, Any]]:
    """Yield what ``api.md`` names, and the methods that pages of classes show."""
    folder, module = Path(__file__).parent, ""
    left_out = set(re.findall(r"\w+", (folder / "_templates/autosummary/class.rst").read_text()))
    for line in (folder / "api.md").read_text(encoding="utf-8").splitlines():
        module = line.split()[-1] if "currentmodule" in line else module
        if re.fullmatch(r" {3}[\w.]+", line):
            name = f"{module}.{line.strip()}"
            shown = pkgutil.resolve_name(name)
            yield name, shown
            for key, method in inspect.getmembers(shown, inspect.isroutine):
                own = str(getattr(method, "__module__", "")).startswith("oda_rl")
                if inspect.isclass(shown) and own and key[0] != "_" and key not in left_out:
                    yield f"{name}.{key}", method


def faults() -> dict[str, list[str]]:
    """Return what the docstrings of the reference lack: parameters, or code around |x|."""
    found: dict[str, list[str]] = {}
    for name, what in _members():
        lines = (inspect.getdoc(what) or "").splitlines()
        found[name] = [] if inspect.isclass(what) else described(what, lines)[1]
        prose = " ".join(line for line in lines if line[:1] != " ")
        found[name] += re.findall(r"(?<!\w)\|\w[^|]*\w\|", re.sub("``.*?``", "", prose))
    return found
