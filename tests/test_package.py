"""The package as it is shipped: imports, wheel, examples in docstrings, README, scripts."""

import doctest
import importlib
import os
import pkgutil
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import venv
import warnings
import zipfile
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

import pytest
from distributed import LocalCluster
from environments import one_by_one
from packaging.requirements import Requirement

import oda_rl
from oda_rl.runs import parallel

HEAVY = {"torch", "gymnasium", "matplotlib", "sklearn", "numba", "scipy", "numpy", "rich", "tyro"}
SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"
USE = """
import numpy, oda_rl, oda_rl.agents as a, oda_rl.envs as e
from oda_rl.quantization.kernels import Grid, write_pulls
print(oda_rl.__file__, a.__file__, e.__file__, sep="\\n")
write_pulls(0, Grid(1, 2, False), 1.0, numpy.empty(2))  # which compiles
assert a.TwoTimescaleAgent("oda_rl/BartoCartPole-v0").interface.n_actions == 2
"""


def modules_of(package):
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        yield module.name
        if module.ispkg:
            yield from modules_of(module.name)


MODULES = sorted({*modules_of("oda_rl"), *modules_of("oda_rl.agents"), *modules_of("oda_rl.envs")})


def run(*arguments, python=sys.executable, **options):
    return subprocess.run(
        [str(python), *map(str, arguments)],
        check=True, capture_output=True, text=True, **options,
    ).stdout  # fmt: skip


LOADED = "print(*{name.split('.')[0] for name in sys.modules})"
IMPORTS = f"""
import sys, oda_rl
{LOADED}
from oda_rl.agents import *
{LOADED}
import oda_rl.agents.comparison, oda_rl.command.cli
for kind in oda_rl.DistributedODAClusterer, oda_rl.DistributedGaussianMixture:
    kind(2).fit([[0.0], [1.0], [5.0]]).predict([[1.0]])
{LOADED}
"""


def test_imports_load_nothing_heavy():
    first, second, third = (set(line.split()) for line in run("-c", IMPORTS).splitlines())
    assert HEAVY.isdisjoint(first)
    assert second.isdisjoint({"torch", "matplotlib", "sklearn", "stable_baselines3", "pygame"})
    assert third.isdisjoint({"torch", "stable_baselines3", "dask"})  # arrays need no Dask


@pytest.mark.parametrize("name", ["oda_rl", *MODULES])
def test_examples_in_docstrings(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0


def test_all_modules_are_found():
    some = {"oda_rl.command.cli", "oda_rl.agents.fitted.agent", "oda_rl.metric"}
    assert some | {"oda_rl.envs.cartpole"} <= set(MODULES)
    walked = [module.name for module in pkgutil.walk_packages(oda_rl.__path__, "oda_rl.")]
    assert set(walked) <= set(MODULES)
    assert len(walked) == len(set(walked))


def test_nothing_is_pickled(root):
    for folder in ("oda_rl", "agents", "envs", "scripts"):
        for path in (root / folder).rglob("*.py"):
            if path.name in ("parallel.py", "copying.py"):  # of which no file is made
                continue
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"^\s*(import|from) (c?pickle|joblib|dill|shelve)", text, re.M)
            makes_attacks = path.name == "file_changes.py"  # which writes what must be refused
            assert makes_attacks or "allow_pickle=True" not in text


def test_what_is_optional_is_imported_in_its_own_folder(root):
    own = {
        "torch": "agents/sb3",
        "stable_baselines3": "agents/sb3",
        "gymnasium": "(agents|envs|oda_rl/command)",
    }
    for folder in ("oda_rl", "agents", "envs"):
        for path in (root / folder).rglob("*.py"):
            text, place = path.read_text(encoding="utf-8"), path.relative_to(root).as_posix()
            for name in re.findall(r"^\s*(?:import|from) (\w+)", text, re.M):
                assert re.match(own.get(name, ""), place), f"{place} imports {name}"


def files_of_numba(*folders):
    return [file for folder in folders for file in folder.rglob("*.nb[ci]")]


@pytest.mark.slow
def test_the_wheel_is_complete_and_uninstalling_leaves_nothing_behind(root, tmp_path):
    source = tmp_path / "source"
    for name in ("oda_rl", "agents", "envs", "scripts", "tests"):
        shutil.copytree(root / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(root / name, source)
    options = "--quiet", "--no-deps", "--no-build-isolation"
    run("-m", "pip", "wheel", *options, "--wheel-dir", tmp_path, source)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    files = [name for name in names if ".dist-info/" not in name]
    packages = {name.rsplit("/", 1)[0] for name in files}
    rooms = {name.rsplit(".", 1)[0].replace(".", "/") for name in MODULES}
    assert packages == rooms | {"oda_rl"}
    assert {
        "oda_rl/py.typed",
        "oda_rl/agents/environments/names.toml",
        "oda_rl/agents/policies/policy.h",
        "oda_rl/envs/cartpole.py",
    } <= {*files}
    data = (
        "py.typed", "names.toml", "joint.h", "learner.h", "policy.h", "predict.h", "page.html",
        "script.js", "style.css",
    )  # fmt: skip
    assert all(name.endswith((".py", *data)) for name in files)
    assert {name.rsplit("/", 1)[1] for name in files} >= {*data}

    place = tmp_path / "out"
    place.mkdir()
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    (site,) = map(Path, run("-c", SITE, python=python).split())
    # What this package needs, but not an editable installation of it: that is a .pth file, too.
    (site / "shared.pth").write_text(run("-c", SITE))
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    for name in ("PYTHONPATH", "NUMBA_CACHE_DIR"):
        environment.pop(name, None)

    def do(*arguments):
        return run(*arguments, python=python, cwd=place, env=environment)

    do("-m", "pip", "install", "--no-compile", *options, wheel)
    assert all(Path(line).is_relative_to(site) for line in do("-c", USE).splitlines())
    assert files_of_numba(site) == []
    assert files_of_numba(tmp_path / "cache" / "oda-rl") != []
    do("-m", "pip", "uninstall", "--quiet", "--yes", "oda-rl")
    assert [*site.glob("oda*")] == []


def test_version_is_the_same_everywhere(root):
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{oda_rl.__version__}"' in text
    assert f"## {oda_rl.__version__}" in (root / "CHANGELOG.md").read_text(encoding="utf-8")


def pages(root=Path(__file__).parents[1]):
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def examples():
    """Each example with the sample of its output, if one follows it."""
    blocks = r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?"
    return [
        pytest.param(code, sample, id=f"{page.stem}-{i}")
        for page in pages()
        for i, (code, sample) in enumerate(
            re.findall(blocks, page.read_text(encoding="utf-8"), re.S)
        )
    ]


def words(text):
    """Words without numbers, which differ from processor to processor."""
    return " ".join(re.sub(r"[-+]?\d[\d.e-]*·?", " ", text).split())


PRINTED = {"class RandomCells": (1.0, 500.0), "class Puck": (-8.0, 0.0)}  # returns


@pytest.mark.slow
@pytest.mark.parametrize(("example", "sample"), examples())
def test_examples_on_the_pages_run_and_print_what_is_shown(
    example, sample, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    ranges = [ends for about, ends in PRINTED.items() if about in example]
    example = example.replace("steps=30", "steps=10")  # a shorter proof
    if not sample:  # a tenth of the steps shows that it runs
        example = re.sub(r"(?<=learn\()([1-9]\d+)_000\b", r"\1_00", example)
    monkeypatch.setattr(parallel, "_execute", one_by_one)
    with warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("default")
        if "Actors(2)" in example:  # one in a thread of this process, for speed
            one = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
            cluster = stack.enter_context(LocalCluster(processes=False, **one))
            example = example.replace("Actors(2)", f"Actors(1, {cluster.scheduler_address!r})")
        exec(example, {"__name__": "__main__"})
        printed = capsys.readouterr().out
        for seed in range(20 if "ModelAgent(" in example else 0):
            if words(sample) not in words(printed):  # other processors, other rules
                exec(re.sub(r"(?<=seed=)16\b", f"{seed}", example), {"__name__": "__main__"})
                printed = capsys.readouterr().out
    assert words(sample) in words(printed)
    told, shown = ([*map(float, re.findall(r"^-?\d+\.\d+$", a, re.M))] for a in (printed, sample))
    assert told[: len(shown)] == pytest.approx(shown, rel=0.05)  # returns
    for low, high in ranges:
        assert low <= float(printed) <= high


def test_the_reference_says_something_of_each_parameter(root):
    found = runpy.run_path(str(root / "docs" / "parameters.py"))["faults"]()
    assert len(found) > 100
    assert [name for name, wrong in found.items() if wrong] == []


@pytest.mark.parametrize("page", ["README", "own-loop"])
def test_the_loop_on_a_page_learns_what_learn_does(page):
    own = [example.values[0] for example in examples() if example.id.startswith(page)]
    names = {}
    exec(next(code for code in own if "update(" in code).replace("10_000", "1_000"), names)
    agent = names["FittedQAgent"]("CartPole-v1", seed=0).learn(1_000)
    assert names["agent"].q_values.tolist() == agent.q_values.tolist()


def test_every_sample_follows_the_example_that_prints_it():
    shown = [text for page in pages() for text in page.read_text("utf-8").split("```text\n")[1:]]
    assert [example.values[1] for example in examples() if example.values[1]] == [
        text.partition("```")[0] for text in shown
    ]
    have_examples = {example.id.rpartition("-")[0] for example in examples()}
    assert {"README", "choose", "own-loop", "rules", "estimators"} <= have_examples


def test_every_extra_that_the_pages_name_exists(root):
    extras = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    known = extras["optional-dependencies"].keys()
    files = [*pages(), root / "CONTRIBUTING.md", root / "Makefile"]
    files += [path for folder in ("oda_rl", "agents", "envs", "scripts")
              for path in (root / folder).rglob("*.py")]  # fmt: skip
    named = {
        extra
        for path in files
        for names in re.findall(
            r"(?:\.|oda[-_]rl)\[([a-z0-9_, -]+)\]", path.read_text(encoding="utf-8")
        )
        for extra in names.replace(" ", "").split(",")
    }
    assert named <= known
    assert {"sb3", "onnx", "cluster", "docs"} <= named


def test_messages_that_pages_quote_are_those_of_the_package(root):
    code = "".join(path.read_text(encoding="utf-8") for folder in ("oda_rl", "agents")
                   for path in (root / folder).rglob("*.py"))  # fmt: skip
    code = re.sub(r'"\n\s*f?"', "", code)  # strings over several lines
    quoted = [
        text
        for page in pages()
        if page.stem != "papers"  # which quotes papers
        for text in re.findall(r'^\| "([^"]+)" \|', page.read_text(encoding="utf-8"), re.M)
    ]
    assert len(quoted) > 3
    assert [text for text in quoted if text not in code] == []


def test_links_between_pages_lead_somewhere(root):
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:)([^)]+)\)", text):
            path, _, anchor = target.partition("#")
            other = page.parent / path if path else page
            assert other.exists(), f"{page.name}: {target}"
            if anchor:
                titles = re.findall(r"^#+ (.+)$", other.read_text(encoding="utf-8"), re.M)
                anchors = {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in titles}
                assert anchor in anchors, f"{page.name}: {target}"


def test_the_front_page_is_one_page(root):
    assert len((root / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


def test_the_example_script_runs_and_is_short(root, tmp_path, monkeypatch, capsys):
    text = (root / "scripts" / "train_cartpole.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    script = tmp_path / "train_cartpole.py"  # a tenth of the steps shows that it runs
    script.write_text(text.replace("30_000", "3_000"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(script)])
    runpy.run_path(str(script), run_name="__main__")
    assert "mean 500.0" in capsys.readouterr().out
    assert (tmp_path / "runs" / "cartpole" / "oda" / "partition.png").exists()


def test_what_is_allowed_is_what_is_tested(root):
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    apart = ("dev", "docs", "mujoco", "tensorboard")  # not bounded, or not installed for the tests
    used = [text for name, texts in extras.items() if name not in apart for text in texts]
    for text in [*project["dependencies"], *used]:
        requirement = Requirement(text)
        bounds = {bound.operator for bound in requirement.specifier}
        assert bounds == {">=", "<"}, text
        assert requirement.specifier.contains(version(requirement.name)), text
