"""Check what a script can of how the project speaks: names, docstrings and pages.

Run: python scripts/check_style.py [FILE ...]   (all files of the project by default)
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import tyro

ROOT = Path(__file__).parents[1]
CODE = "oda_rl", "agents", "envs", "scripts"
MAX_WORDS = 40  # of a sentence on a page
PHRASES = re.compile(
    r"manyth|\bso many\b|what was held out|who has logged|put to the proof|not to be believed"
    r"|nobody says|foresees|is in the midst of|of all randomness|what another environment",
    re.IGNORECASE,
)
NAMES = re.compile(
    r"(^|_)(MOST|LEAST|most|least)_|_(MOST|LEAST)$|(^|_)(lanes?|errands?|doubted|curious)(_|$)"
)
SHORT_NUMBER = re.compile(r"(?<![\w.\]])\.\d")
FRONTED = re.compile(r"\A((Of|What|Who|How)\b|(Do it|Return them)\.)|^ +(Of|What|Who) ", re.M)
NOT_PROSE = re.compile(
    r"^\s*```.*?^\s*```|^---$.*?^---$|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]*\$|^\s*\|.*?$|^#.*?$|<[^>]*>"
    r"|\]\([^)]*\)",
    re.MULTILINE | re.DOTALL,
)

Fault = tuple[int, str]


def in_prose(text: str) -> Iterator[Fault]:
    """Numbers without a leading zero, and phrases that have a plainer form."""
    for number, line in enumerate(text.split("\n"), 1):
        if found := SHORT_NUMBER.search(line):
            yield number, f"write 0{found[0]}, not {found[0]}"
        if found := PHRASES.search(line):
            yield number, f"{found[0]!r}: say it plainly"


def in_page(text: str) -> Iterator[Fault]:
    """Faults of a page in Markdown, outside of code, formulas and tables."""
    prose = NOT_PROSE.sub(lambda found: re.sub(r"[^\n]+", " ", found[0]), text)
    yield from in_prose(prose)
    for block in re.finditer(r"(?:^(?!\s*$).+\n?)+", prose, re.MULTILINE):
        for part in re.split(r"\n(?=\s*(?:[-*]|\d+\.)\s)", block[0]):
            for sentence in re.split(r"(?<=[.!?:;])\s", part):
                words = len(re.findall(r"\w[\w'-]*", sentence))
                if words > MAX_WORDS:
                    number = prose[: block.start()].count("\n") + 1
                    yield number, f"a sentence of {words} words: {' '.join(sentence.split())[:60]}"


def in_code(text: str) -> Iterator[Fault]:
    """Faults of names and docstrings."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name | ast.arg | ast.FunctionDef | ast.ClassDef | ast.Attribute):
            name = next(getattr(node, a) for a in ("id", "arg", "name", "attr") if hasattr(node, a))
            if NAMES.search(name):
                yield node.lineno, f"{name}: a plainer name (max, min, env index)"
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            docstring, line = inspect.cleandoc(str(node.value.value)), node.lineno
            if fronted := FRONTED.search(docstring):
                yield line, f"a description that begins with {fronted[0].strip()!r}"
            prose = re.sub(r"`[^`]*`|^\s*>>>.*$", " ", docstring, flags=re.M)
            for offset, fault in in_prose(prose):
                yield line + offset, fault


def main(names: tyro.conf.Positional[list[str]]) -> int:
    """Print all faults; return 1 if there are any."""
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    modules = [path for folder in CODE for path in (ROOT / folder).rglob("*.py")]
    n_faults = 0
    for path in sorted(map(Path, names)) if names else sorted([*pages, *modules]):
        check = in_code if path.suffix == ".py" else in_page
        for line, fault in sorted(set(check(path.read_text()))):
            print(f"{path.resolve().relative_to(ROOT)}:{line}: {fault}")
            n_faults += 1
    return int(n_faults > 0)


if __name__ == "__main__":
    sys.exit(tyro.cli(main, description=__doc__))
