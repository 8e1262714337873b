"""Mistakes on purpose: the list fits the files, and the script tells what is noticed."""

import importlib

import pytest

NUMBERS = """
from oda_rl._compile import compiled


@compiled
def doubled(x: float) -> float:
    return x * 2.0
"""
SUMS = """
from oda_rl import numbers
from oda_rl._compile import compiled


@compiled
def with_double(x: float) -> float:
    return x + numbers.doubled(x)
"""
TESTS = """
from oda_rl.sums import with_double


def test_three_times():
    assert with_double(1.0) == 3.0


def test_sign():
    assert with_double(-1.0) < 0.0
"""


@pytest.fixture
def mutate(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "scripts")
    return importlib.import_module("mutate")


@pytest.fixture
def project(root, tmp_path, monkeypatch, mutate):
    """A small project, whose compiled function calls one of another file."""
    for folder in ("oda_rl/_numba", "tests"):
        (tmp_path / folder).mkdir(parents=True)
    own = [f"oda_rl/_{name}.py" for name in ("cache", "collector", "compile")]
    own += [path.relative_to(root).as_posix() for path in (root / "oda_rl/_numba").glob("*.py")]
    for name, text in {
        "oda_rl/__init__.py": "",
        **{name: (root / name).read_text(encoding="utf-8") for name in own},
        "oda_rl/numbers.py": NUMBERS,
        "oda_rl/sums.py": SUMS,
        "tests/test_sums.py": TESTS,
        "pyproject.toml": "",
        mutate.GUIDE: f"# Guide\n\n{mutate.BEGIN}\nold\n{mutate.END}\n\nEnd.\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    return tmp_path


def changed(mutate, new, test, old="x * 2.0"):
    return mutate.Mutation("oda_rl/numbers.py", old, new, (f"tests/test_sums.py::{test}",), new)


def test_the_list_fits_the_files(mutate, root):
    assert mutate.stale(mutate.MUTATIONS, root) == []
    assert len(mutate.MUTATIONS) >= 40
    assert len(set(mutate.MUTATIONS)) == len(mutate.MUTATIONS)
    for mutation in mutate.MUTATIONS:
        assert mutation.old != mutation.new
        assert all("::test_" in test for test in mutation.tests)
        assert not {"|", "\n"} & set(mutation.about)


def test_the_contributors_guide_lists_them_and_all_are_noticed(mutate, root):
    # If this fails, run scripts/mutate.py --write.
    expected = mutate.table(mutate.row(mutation, "yes") for mutation in mutate.MUTATIONS)
    assert expected in (root / mutate.GUIDE).read_text(encoding="utf-8")


def test_what_is_stale_is_named(mutate, project):
    twice = changed(mutate, "x * 3.0", "test_three_times", old="oda_rl")
    gone = changed(mutate, "x * 3.0", "test_gone")
    (project / "oda_rl" / "numbers.py").write_text(f"# oda_rl\n{NUMBERS}", encoding="utf-8")
    assert mutate.stale([twice, gone], project) == [
        "oda_rl/numbers.py has 2 times, not once: oda_rl",
        "tests/test_sums.py has no test test_gone",
    ]


@pytest.mark.slow
def test_changes_are_tried_out_in_copies_with_fresh_code(mutate, project, monkeypatch, capsys):
    # Code of sums.py, compiled without the change, would not notice it.
    monkeypatch.setattr(
        mutate,
        "MUTATIONS",
        [
            changed(mutate, "x * 3.0", "test_three_times"),
            changed(mutate, "x * 4.0", "test_sign"),
            changed(mutate, "x * ", "test_sign"),
        ],
    )
    before = {path: path.read_bytes() for path in project.rglob("*.*") if path.is_file()}
    assert mutate.main(mutate.Options(workers=1, write=True)) == 1
    printed = capsys.readouterr().out
    assert "caught: oda_rl/numbers.py: x * 3.0" in printed
    assert "SURVIVED tests/test_sums.py::test_sign: oda_rl/numbers.py: x * 4.0" in printed
    assert "no verdict" in printed
    assert "1 of 3 were noticed" in printed
    guide = (project / mutate.GUIDE).read_text(encoding="utf-8")
    assert guide.startswith(f"# Guide\n\n{mutate.BEGIN}\n| file | mistake |")
    assert guide.endswith(f"| **no** |\n{mutate.END}\n\nEnd.\n")
    assert "| `oda_rl/numbers.py` | x * 3.0 | `test_sums.py: test_three_times` | yes |" in guide
    del before[project / mutate.GUIDE]
    assert {path: path.read_bytes() for path in before} == before  # the checkout is left alone
    monkeypatch.setattr(mutate, "MUTATIONS", mutate.MUTATIONS[:1])
    assert mutate.main(mutate.Options(only=("three",), write=True)) == 0
    table = mutate.table([mutate.row(mutate.MUTATIONS[0], "yes")])
    assert (project / mutate.GUIDE).read_text(encoding="utf-8") == f"# Guide\n\n{table}\n\nEnd.\n"
    with pytest.raises(AssertionError, match="--only names no change: four"):
        mutate.main(mutate.Options(only=("four",)))


def test_tests_that_fail_anyway_say_nothing(mutate, project, monkeypatch, capsys):
    (project / "tests" / "test_sums.py").write_text("\ndef test_sign():\n    assert False\n")
    monkeypatch.setattr(mutate, "MUTATIONS", [changed(mutate, "x", "test_sign")])
    assert mutate.main(mutate.Options()) == 1
    assert "Tests fail without any change." in capsys.readouterr().out
