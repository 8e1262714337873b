"""Results keep their origin, and runs of other code are repeated."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from oda_rl.runs import results
from oda_rl.runs.parallel import failures, rows_of, run_all, store_runs
from oda_rl.runs.results import Origin, code_digest, function_digest, origin, read_rows, store_rows
from oda_rl.runs.statistics import summarize


def read_origins(path):
    heads = re.findall(r"^# made (\S+): (.+)$", path.read_text(), re.MULTILINE)
    return {label: Origin(**json.loads(head)) for label, head in heads}


# Processes that run these import this module, which loads no agent.
def square(x):
    return {"y": x * x}


FACTOR = 2


def scaled(x):
    return {"y": FACTOR * x}


def fails(x):
    raise AssertionError("it is run again")


def odd(seed, folder):
    with open(f"{folder}/{seed}", "a") as file:
        file.write("x")
    if seed == 2:
        raise RuntimeError("seed two does not converge")
    if seed == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    if seed == 6:
        return {"a row that is no JSON": object()}
    return {"seed squared": seed**2}


def test_runs_of_other_code_are_repeated(tmp_path, monkeypatch):
    path, settings = tmp_path / "runs.jsonl", [{"x": x} for x in range(3)]
    first = run_all(square, settings, path, 1)
    assert run_all(square, settings, path, 1) == first
    lines = path.read_text().splitlines()
    assert len(lines) == 3
    changed = [line.replace(code_digest(), "0" * 12) for line in lines]
    path.write_text("\n".join(changed) + "\n")
    again = run_all(square, settings, path, 1)
    assert [run.rows for run in again] == [run.rows for run in first]
    assert len(path.read_text().splitlines()) == 6  # those of the other code stay in the file
    assert {run.made.code for run in again} == {code_digest()}


def test_runs_of_another_function_are_repeated(tmp_path, monkeypatch, capsys):
    path, settings = tmp_path / "runs.jsonl", [{"x": x} for x in range(2)]
    run_all(square, settings, path, 1)
    again = run_all(fails, settings, path, 1)
    assert [run.error is None for run in again] == [False, False]
    said = f"2 of 2 runs failed, the last with AssertionError: it is run again (see {path})\n"
    assert capsys.readouterr().err.endswith(said)
    before = function_digest(scaled), function_digest(partial(scaled, x=2))
    monkeypatch.setitem(globals(), "FACTOR", 3)
    assert len({*before, function_digest(scaled)}) == 3


def test_the_digest_covers_all_packages():
    names = {path.name for folder in results._folders() for path in folder.rglob("*.py")}
    assert {"annealer.py", "qlearning.py", "cartpole.py"} <= names


def test_fields_of_an_origin(root):
    made = origin()
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True
    ).stdout.strip()
    assert made.commit.removesuffix("+") == head
    assert made.versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert made.versions["numpy"] == np.__version__
    assert {"numba", "gymnasium"} <= set(made.versions)
    assert "/" not in made.command.split()[0]


@pytest.mark.parametrize(
    ("argv", "threads", "command"),
    [
        (["/somewhere/scripts/benchmark.py", "suite", "--seeds", "2"], None,
         "python scripts/benchmark.py suite --seeds 2"),
        (["scripts/a b.py"], "1", "OMP_NUM_THREADS=1 python 'scripts/a b.py'"),
        (["/usr/bin/oda-rl", "compare"], None, "oda-rl compare"),
    ],
)  # fmt: skip
def test_commands_of_origins(monkeypatch, argv, threads, command):
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if threads is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    assert origin().command == command


def test_rows_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "rows.csv"
    rows = [
        {"seed": 1, "mean": np.float64(1 / 3), "name": "Gaussians, 4 x 3", "whole": True},
        {"seed": 2, "mean": -2.5e-9, "name": "5", "whole": False, "note": None},
    ]
    stored = store_rows(path, rows, ["seed"])
    label = origin().label
    assert stored == [
        {"seed": 1, "mean": 0.3333333, "name": "Gaussians, 4 x 3", "whole": True, "note": None,
         "made": label},
        {"seed": 2, "mean": -2.5e-9, "name": 5, "whole": False, "note": None, "made": label},
    ]  # fmt: skip
    assert read_rows(path) == stored
    assert read_origins(path) == {label: origin()}


def test_rows_replace_those_of_the_same_key(tmp_path):
    path = tmp_path / "rows.csv"
    earlier = dataclasses.replace(origin(), commit="1234567890", code="abc")
    rows = [{"seed": seed, "steps": n, "made": earlier.label} for seed in (1, 2) for n in (10, 20)]
    store_rows(path, rows, ["seed"], [earlier])
    store_rows(path, [{"seed": 2, "steps": 30}], ["seed"])
    assert [(row["seed"], row["steps"], row["made"]) for row in read_rows(path)] == [
        (1, 10, earlier.label), (1, 20, earlier.label), (2, 30, origin().label)
    ]  # fmt: skip
    assert read_origins(path) == {earlier.label: earlier, origin().label: origin()}
    store_rows(path, [{"seed": 1, "steps": 5}], ["seed"])
    assert earlier.label not in read_origins(path)  # nothing in the file is of it any more
    store_rows(path, [{"seed": 3, "steps": 5}], [])
    assert [row["seed"] for row in read_rows(path)] == [3]


def test_rows_of_an_unknown_origin_are_refused(tmp_path):
    path = tmp_path / "rows.csv"
    with pytest.raises(ValueError, match="rows has a row made by 'nobody'"):
        store_rows(path, [{"seed": 1, "made": "nobody"}], ["seed"])
    with pytest.raises(ValueError, match="rows has a row made by None"):
        store_rows(path, [{"seed": 1}], ["seed"], [origin()])
    assert not path.exists()


@pytest.fixture(scope="module")
def scripts(root):
    """Put the folder of the scripts on the import path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(root / "scripts")
        yield root / "scripts"


def test_tables_of_the_pages_are_those_of_the_rows(scripts, root):
    import render_tables

    tables = render_tables.rendered(root / "results")
    for name in render_tables.PAGES:
        page = (root / name).read_text(encoding="utf-8")
        assert render_tables.render(page, tables) == page, "make tables writes it anew"
    changed = tables | {"suite fitted": "| nothing |"}
    page = (root / "docs/suite.md").read_text(encoding="utf-8")
    assert render_tables.render(page, changed) != page
    with pytest.raises(ValueError, match="page has a table 'nobody'"):
        render_tables.render("<!-- table: nobody -->\n<!-- end -->", tables)


def test_tables_of_results_are_rendered(scripts, root):
    import render_tables

    page = (root / "docs/results.md").read_text(encoding="utf-8")
    assert render_tables._BLOCK.search(page)
    assert not re.search(r"^\|", render_tables._BLOCK.sub("", page), re.MULTILINE)
    for name in ("suite", "choose", "sb3", "microcontroller", "cells", "exemplars", "mixtures"):
        page = (root / f"docs/{name}.md").read_text(encoding="utf-8")
        rest = render_tables._BLOCK.sub("", page)
        by_hand = re.findall(r"^\| (.+) \|\n\|(?:---\|)+$", rest, re.MULTILINE)
        assert {*by_hand} <= {"what you see | what to do", "setting | when to change it"}, name


def test_every_figure_is_shown_somewhere(scripts, root):
    import render_tables

    pages = [root / name for name in render_tables.PAGES]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    shown = set(re.findall(r"figures/(\w+)\.(?:png|gif)\)", text))
    assert shown == {path.stem for path in (root / "docs/figures").iterdir()}


def test_rows_in_the_repository_have_origins(root):
    listed = subprocess.run(
        ["git", "ls-files", "results"], cwd=root, capture_output=True, text=True
    )
    files = [root / line for line in listed.stdout.splitlines()]
    assert sum(file.stat().st_size for file in files) < 2_000_000
    for file in files:
        origins, rows = read_origins(file), read_rows(file)
        assert rows
        assert {row["made"] for row in rows} == set(origins)
        for made in origins.values():
            assert len(made.commit.removesuffix("+")) == 40
            assert made.command
        if re.search("benchmark_(bodies|everyday|online|sparse|suite)", file.name):
            keys = file.name, "task", "world", "method", "seed", "steps"
            assert len({tuple(map(row.get, keys)) for row in rows}) == len(rows)  # none twice


def test_an_interrupted_experiment_is_resumed(tmp_path):
    path = tmp_path / "runs.jsonl"
    first = run_all(square, [{"x": x} for x in range(3)], path, 1)
    text = path.read_text()
    path.write_text(text + text[: len(text) // 6])  # the line that was being written
    both = run_all(square, [{"x": x} for x in range(5)], path, 1)
    assert both[:3] == first
    stored = store_runs(tmp_path / "rows.csv", both, ("x",))
    assert stored == [{"y": x * x, "made": origin().label} for x in range(5)]
    assert [run.rows for run in both] == [[{"y": x * x}] for x in range(5)]
    assert len(path.read_text().splitlines()) == 5
    before = path.read_bytes()
    assert run_all(square, [{"x": x} for x in range(5)], path) == both  # nothing is left to run
    assert path.read_bytes() == before


def test_failed_runs_are_recorded_and_the_others_continue(tmp_path):
    path = tmp_path / "runs.jsonl"
    settings = [{"seed": seed, "folder": str(tmp_path)} for seed in range(8)]
    runs = run_all(odd, settings, path, 2)
    assert [run.error is None for run in runs] == [seed not in (2, 4, 6) for seed in range(8)]
    assert [row["seed squared"] for row in rows_of(runs)] == [0, 1, 9, 25, 49]
    raised, died, unwritable = failures(runs)
    assert "RuntimeError: seed two does not converge" in raised
    assert "TerminatedWorkerError: the process that made this run died" in died
    assert "TypeError" in unwritable
    assert len(path.read_text().splitlines()) == 8
    assert run_all(odd, settings, path, 2) == runs  # nor are they run again
    before, died_of = ((tmp_path / name).read_text() for name in "24")
    assert {before, died_of} <= {"x", "xx"}  # what ran when a process died is repeated alone
    again = run_all(odd, settings[:3], path, 1, retry_failed=True)
    assert again[:2] == runs[:2]
    assert (tmp_path / "2").read_text() == before + "x"


def test_bad_arguments(tmp_path):
    with pytest.raises(ValueError, match="settings has 2 entries, 1 of them different"):
        run_all(square, [{"x": 1}, {"x": 1}], tmp_path / "runs.jsonl")
    (tmp_path / "other.jsonl").write_text('{"something": "else"}\n')
    with pytest.raises(ValueError, match="other.jsonl', whose line 1 is not the result of a run"):
        run_all(square, [{"x": 1}], tmp_path / "other.jsonl")
    with pytest.raises(ValueError, match="workers is 0"):
        run_all(square, [{"x": 1}], tmp_path / "runs.jsonl", 0)


def test_coverage_of_intervals():
    # Of 200 samples of 20 normal values about 190 intervals contain the centre; a percentile
    # bootstrap of so few covers a little less.
    rng = np.random.default_rng(1)
    summaries = [summarize(rng.normal(size=20), threshold=0.0) for _ in range(200)]
    assert 170 <= sum(s.interval[0] <= 0 <= s.interval[1] for s in summaries) <= 199
    assert 180 <= sum(s.solved_interval[0] <= 0.5 <= s.solved_interval[1] for s in summaries) <= 200


def test_summaries():
    summary = summarize([1000.0] * 19 + [20.0], threshold=950.0)
    assert str(summary).endswith("median 1000, minimum 20, solved 0.95 (0.76 to 0.99)")
    assert (summary.n, summary.median, summary.minimum, summary.solved) == (20, 1000, 20, 0.95)
    assert (summary.interquartile_mean, summary.mean) == (1000, 951)
    middle = np.mean(np.arange(10.0, 30.0) ** 3)
    assert summarize(np.arange(40.0)[::-1] ** 3).interquartile_mean == pytest.approx(middle)
    assert summarize([5.0] * 20).interval == (5.0, 5.0)
    assert "interquartile mean 5 (5 to 5), median 5" in str(summarize([5.0] * 20))
    low, high = summarize([1.0] * 20, threshold=0.0).solved_interval
    assert 0.8 < low < 0.9
    assert high == 1.0


@pytest.mark.parametrize("values", [[], [np.nan], [[1.0]], [np.inf, 1.0]])
def test_invalid_values(values):
    with pytest.raises(ValueError, match="values is .*: it must be a list of finite numbers"):
        summarize(values)
