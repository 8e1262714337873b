"""The house: which room may use which, by the floors they are on; that no import goes round; sizes.

An arrow goes from a file to what it imports, at its top, inside a function or for its types alone.
It may go down, or stay on its floor, but never up; and no way along arrows leads back.
"""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = {"oda_rl": "oda_rl", "oda_rl.agents": "agents", "oda_rl.envs": "envs"}
GROUND = (
    "_cache", "_collector", "_compile", "_lazy", "_lock", "_numba", "_schema", "_sizes", "_state",
    "_threads", "_types", "eights", "experiments", "linear", "persistence", "results", "samples",
    "statistics",
)  # fmt: skip
FLOORS = [  # the ground floor first
    [f"oda_rl.{name}" for name in GROUND],
    [
        *("oda_rl.diagram", "oda_rl.divergences", "oda_rl.metric", "oda_rl._parameters"),
        *("oda_rl._validation", "oda_rl.envs", "oda_rl.filing"),
    ],
    ["oda_rl.quantization", "oda_rl.mixtures", "oda_rl.exemplars"],
    ["oda_rl.annealing"],
    ["oda_rl.trees", "oda_rl.distributed"],
    ["oda_rl.densities"],
    ["oda_rl.agents.proving", "oda_rl.exporting"],
    ["oda_rl.agents.editing"],
    ["oda_rl.agents.environments", "oda_rl.agents.policies"],
    ["oda_rl.agents.engine"],
    ["oda_rl.agents.training"],
    ["oda_rl.agents.partitions", "oda_rl.agents.offline"],
    ["oda_rl.agents.worlds"],
    ["oda_rl.agents.certifying"],
    ["oda_rl.agents.distilling"],
    ["oda_rl.agents.fitting"],
    ["oda_rl.agents.two_timescale", "oda_rl.agents.fitted", "oda_rl.agents.model"],
    ["oda_rl.agents.reviewing"],
    ["oda_rl.agents", "oda_rl.agents.sb3", "oda_rl.agents.comparison"],
    ["oda_rl.plotting", "oda_rl.river"],
    ["oda_rl.reporting"],
    ["oda_rl.command"],
    ["oda_rl"],  # its face, and the doors beside it
]
FLOOR_OF = {room: i for i, rooms in enumerate(FLOORS) for room in rooms}


def modules() -> dict[str, Path]:
    """Files by the names of their modules."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


def imports() -> dict[str, set[str]]:
    """What each module imports, of these modules."""
    files = modules()
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        used = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                used |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: imports are absolute here"
                members = {f"{node.module}.{alias.name}" for alias in node.names}
                of_package = members - files.keys()
                used |= members | ({str(node.module)} if of_package else set())
        found[name] = used & files.keys() - {name}
    return found


def room(module: str) -> str:
    """Where a module lives."""
    while module not in FLOOR_OF:
        module = module.rpartition(".")[0]
    return module


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Ways that lead back to where they began, one for each module that lies on one."""
    found = []
    for start in sorted(arrows):
        ways, seen = [[start]], set()
        while ways:
            way = ways.pop(0)
            for other in sorted(arrows.get(way[-1], ())):
                if other == start:
                    found.append([*way, start])
                    ways = []
                    break
                if other not in seen:
                    seen.add(other)
                    ways.append([*way, other])
    return found


# The face of a folder names what its files offer, and imports it only when it is asked for.
ARROWS = {name: used for name, used in imports().items() if modules()[name].stem != "__init__"}


# Two lines each, for paths that people import.
DOORS = ("annealing_plots", "batch_annealing", "cli", "infex", "infex_plots", "mixture_plots",
         "oda", "onnx", "som", "tree")  # fmt: skip


def test_every_file_lives_in_a_room():
    outside = {name for name in modules() if room(name) == "oda_rl"}
    assert outside == {"oda_rl", *(f"oda_rl.{door}" for door in DOORS)}


def test_no_arrow_goes_up():
    found = {
        f"{name} -> {other}"
        for name, used in ARROWS.items()
        for other in used
        if FLOOR_OF[room(other)] > FLOOR_OF[room(name)]
    }
    assert found == set()


def test_no_imports_go_round():
    assert circles(ARROWS) == []


def test_no_rooms_use_each_other():
    between: dict[str, set[str]] = {}
    for name, used in ARROWS.items():
        between.setdefault(room(name), set()).update({room(other) for other in used} - {room(name)})
    assert circles(between) == []


def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [
        ["a", "b", "c", "a"], ["b", "c", "a", "b"], ["c", "a", "b", "c"]
    ]  # fmt: skip
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


MOST_LINES, LONGEST_BODY = 500, 60  # of a file, and of a function, its docstring apart
MOST_FILES = 20  # side by side


def bodies(text: str) -> dict[str, int]:
    """Lines of the bodies of all functions, docstrings apart, by names and lines."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[ast.get_docstring(node) is not None :]
            lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
            found[f"{node.name}, line {node.lineno}"] = lines
    return found


def files() -> list[Path]:
    """All Python files of the packages and scripts."""
    folders = (*FOLDERS.values(), "scripts")
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py")]


def test_files_and_functions_are_short():
    long_files, long_functions = {}, {}
    for path in files():
        name, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        if len(text.splitlines()) > MOST_LINES:
            long_files[name] = len(text.splitlines())
        found = {f"{name}: {who}": lines for who, lines in bodies(text).items()}
        long_functions |= {who: lines for who, lines in found.items() if lines > LONGEST_BODY}
    assert (long_files, long_functions) == ({}, {})


def test_no_folder_has_many_files():
    doors = {ROOT / "oda_rl" / f"{door}.py" for door in DOORS}
    counted = [path for path in files() if path.stem != "__init__" and path not in doors]
    beside = Counter(path.parent.relative_to(ROOT).as_posix() for path in counted)
    assert {folder: n for folder, n in beside.items() if n > MOST_FILES} == {}


def test_bodies_are_counted_without_docstrings():
    text = 'def f():\n    """Do.\n\n    It.\n    """\n    a = 1\n\n    return a\n'
    assert bodies(text) == {"f, line 1": 3}
    assert bodies('def g():\n    """Do."""\n') == {"g, line 1": 0}
