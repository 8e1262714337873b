import json

import numpy as np
import pytest
from test_results import fails, odd, square, unsigned

from oda_rl.agents import TwoTimescaleAgent
from oda_rl.runs.parallel import failures, rows_of, run_all
from oda_rl.runs.statistics import summarize


def training(seed, gamma):
    agent = TwoTimescaleAgent("CartPole-v1", seed=seed, gamma=gamma).learn(1500)
    return [
        {"episodes": len(agent.episodes.rows), "value": agent.q_values.sum()},
        {"episodes": len(agent.episodes.rows), "value": agent.evaluate(2, seed=seed).mean()},
    ]


def test_each_setting_is_run_once_and_in_order(tmp_path):
    settings = [{"seed": seed, "gamma": 0.9} for seed in range(3)]
    runs = run_all(training, settings, tmp_path / "runs.jsonl", 2)
    assert [run.setting for run in runs] == settings
    assert all(run.error is None and run.seconds > 0 for run in runs)
    expected = [{**setting, **row} for setting in settings for row in training(**setting)]
    assert unsigned(rows_of(runs)) == expected
    lines = (tmp_path / "runs.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["setting"]["seed"] for line in lines) == [0, 1, 2]


def test_an_interrupted_experiment_is_resumed(tmp_path):
    path = tmp_path / "runs.jsonl"
    first = run_all(square, [{"x": x} for x in range(3)], path, 1)
    text = path.read_text()
    path.write_text(text + text[: len(text) // 6])  # the line that was being written
    both = run_all(square, [{"x": x} for x in range(5)], path, 1)
    assert both[:3] == first
    assert [run.rows for run in both] == [[{"y": x * x}] for x in range(5)]
    assert len(path.read_text().splitlines()) == 5
    before = path.read_bytes()
    assert run_all(fails, [{"x": x} for x in range(5)], path) == both  # nothing is left to run
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


def test_interquartile_mean():
    values = np.random.default_rng(0).permutation(np.arange(40.0) ** 3)
    middle = np.mean(np.arange(10.0, 30.0) ** 3)
    assert summarize(values).interquartile_mean == pytest.approx(middle)


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
    assert summary.interquartile_mean == 1000
    assert summary.mean == 951
    assert summarize([5.0] * 20).interval == (5.0, 5.0)
    assert "interquartile mean 5 (5 to 5), median 5" in str(summarize([5.0] * 20))
    low, high = summarize([1.0] * 20, threshold=0.0).solved_interval
    assert 0.8 < low < 0.9
    assert high == 1.0


@pytest.mark.parametrize("values", [[], [np.nan], [[1.0]], [np.inf, 1.0]])
def test_invalid_values(values):
    with pytest.raises(ValueError, match="values is .*: it must be a list of finite numbers"):
        summarize(values)
