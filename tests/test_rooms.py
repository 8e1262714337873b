"""Which package may import which, by layers; and that no import goes round.

An arrow goes from a file to what it imports, at its top or inside a function. What is imported for
annotations alone (``if TYPE_CHECKING``) does not count: nothing runs by it.
It may go down, or stay in its layer, but never up; and arrows form no cycle, neither between files
nor between packages.
"""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {"oda_rl": "oda_rl", "oda_rl.agents": "agents", "oda_rl.envs": "envs"}
GROUND = (
    "_cache", "_compile", "_lazy", "_lock", "_state", "_threads", "_types", "_validation",
    "diagram", "divergences", "files", "metric", "samples", "runs",
)  # fmt: skip
LAYERS = [  # the lowest first
    [f"oda_rl.{name}" for name in GROUND],
    ["oda_rl.envs", "oda_rl.quantization", "oda_rl.mixtures", "oda_rl.exemplars"],
    ["oda_rl.annealing", "oda_rl.trees", "oda_rl.distributed", "oda_rl.densities"],
    [
        *("oda_rl.agents.rules", "oda_rl.exporting"),
        *("oda_rl.agents.environments", "oda_rl.agents.policies"),
    ],
    ["oda_rl.agents.base", "oda_rl.agents.partitions", "oda_rl.agents.offline"],
    [
        *("oda_rl.agents.worlds", "oda_rl.agents.certifying", "oda_rl.agents.distilling"),
        *("oda_rl.agents.fitting", "oda_rl.agents.two_timescale", "oda_rl.agents.fitted"),
        "oda_rl.agents.model",
    ],
    ["oda_rl.agents.review", "oda_rl.agents", "oda_rl.agents.sb3", "oda_rl.agents.comparison"],
    [
        *("oda_rl.plotting", "oda_rl.river", "oda_rl.onnx", "oda_rl.reporting"),
        *("oda_rl.command", "oda_rl.__main__", "oda_rl"),
    ],
]
LAYER_OF = {package: i for i, packages in enumerate(LAYERS) for package in packages}


def modules() -> dict[str, Path]:
    """Files by the names of their modules."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join((package, *parts)).removesuffix(".__init__")] = path
    return found


def executed(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk over a tree's statements without those under ``if TYPE_CHECKING``."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            if isinstance(node, ast.stmt | ast.excepthandler | ast.match_case):
                yield from executed(node)


def imports() -> dict[str, set[str]]:
    """What each module imports, of these modules."""
    files = modules()
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        used = set()
        for node in executed(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                used |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}: imports are absolute here"
                members = {f"{node.module}.{alias.name}" for alias in node.names}
                of_package = members - files.keys()
                used |= members | ({str(node.module)} if of_package else set())
        found[name] = used & files.keys() - {name}
    return found


def package(module: str) -> str:
    """Return the package with a layer that a module belongs to."""
    while module not in LAYER_OF:
        module = module.rpartition(".")[0]
    return module


@pytest.fixture(scope="module")
def arrows() -> dict[str, set[str]]:
    """Imports of all modules but the faces of folders, which import what they are asked for."""
    files = modules()
    return {name: used for name, used in imports().items() if files[name].stem != "__init__"}


def test_every_file_belongs_to_a_package():
    assert {name for name in modules() if package(name) == "oda_rl"} == {"oda_rl"}


def test_no_arrow_goes_up(arrows):
    found = {
        f"{name} -> {other}"
        for name, used in arrows.items()
        for other in used
        if LAYER_OF[package(other)] > LAYER_OF[package(name)]
    }
    assert found == set()


def test_no_imports_go_round(arrows):
    TopologicalSorter(arrows).prepare()  # a CycleError names the modules of a cycle


def test_no_packages_use_each_other(arrows):
    between: dict[str, set[str]] = {}
    for name, used in arrows.items():
        between.setdefault(package(name), set()).update(
            {package(other) for other in used} - {package(name)}
        )
    TopologicalSorter(between).prepare()
