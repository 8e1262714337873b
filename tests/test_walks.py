"""The changes that the contributors' guide shows do what it says, and open no other file."""

import re
import shutil
import subprocess
import sys

import pytest

CHECKS = {
    "agents/two_timescale/qlearning.py": """
        import math, numpy as np
        from oda_rl.agents import TwoTimescaleAgent
        agent = TwoTimescaleAgent("CartPole-v1", seed=0, solved_return=1e9).learn(2500)
        elapsed = agent._engine.state.steps_since_start
        assert 1500 <= elapsed <= 2500
        assert math.isclose(agent.epsilon, 0.5 * math.exp(-elapsed / 1000.0))
        action = [int(agent.act(np.zeros(4, dtype=np.float32))) for _ in range(4000)]
        greedy = int(agent.predict(np.zeros(4))[0])
        assert abs(np.mean(np.array(action) != greedy) - agent.epsilon / 2.0) < 0.03
    """,
    "agents/fitted/fitting.py": """
        import numpy as np
        from oda_rl.agents.engine.memory import CUT, GOES_ON
        from oda_rl.agents.fitted import fitting
        n = 3  # the action taken in the middle is not the greedy one
        steps = np.array([[0.0, 1.0, GOES_ON], [1.0, 1.0, GOES_ON], [-1.0, 0.0, CUT]])
        cells, weights = np.zeros((n, 3), np.uint16), np.zeros((n, 3), np.float32)
        weights[:, 0] = 1.0
        labels = np.repeat(steps[:, :1].astype(np.int16), 3, axis=1)
        theta, targets = np.array([[5.0, 0.0, 0.0]]), np.zeros(n, np.float32)
        fitting.sweep(np.zeros((n, 1), np.float32), cells, weights, labels, steps, theta,
                      np.zeros(1), False, 1.0, 1.0, -9.0, 99.0, np.zeros(n), targets,
                      np.zeros((1, 3)))
        assert targets[0] == 1.0 + 1.0 + 5.0, targets  # Watkins: 1 + 5
    """,
    "oda_rl/divergences.py": """
        import numpy as np
        from oda_rl import ODAClusterer
        X = np.random.default_rng(0).normal(size=(200, 2))
        model = ODAClusterer(4, divergence="exponential", random_state=0).fit(X)
        centers, own = model.cluster_centers_, model.predict(X)
        between = np.exp(X)[:, None] - np.exp(centers) - np.exp(centers) * (X[:, None] - centers)
        assert (between.sum(axis=2).argmin(axis=1) == own).mean() > 0.99
    """,
}


def diffs(root):
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for diff in re.findall(r"```diff\n(.*?)```", text, re.S):
        (file,) = re.findall(r"^\+\+\+ b/(.*)$", diff, re.M)
        lines = diff.split("@@\n", 1)[1].splitlines()
        old, new = ([line[1:] for line in lines if line[0] == sign] for sign in "-+")
        yield file, "\n".join(old), "\n".join(new)


def test_every_change_of_the_guide_is_looked_at(root):
    assert {file for file, _, _ in diffs(root)} == set(CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize("file", CHECKS)
def test_a_change_does_what_it_says(root, tmp_path, file):
    ignored = shutil.ignore_patterns("*.pyc")
    place = tmp_path / "oda_rl"  # laid out as it is installed
    shutil.copytree(root / "oda_rl", place, ignore=ignored)
    for part in ("agents", "envs"):
        shutil.copytree(root / part, place / part, ignore=ignored)
    ((old, new),) = [change for name, *change in diffs(root) if name == file]
    path = tmp_path / "oda_rl" / file.removeprefix("oda_rl/")
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")
    for compiled in tmp_path.rglob("*.nb?"):  # which may hold the old code
        compiled.unlink()
    code = "\n".join(line[8:] for line in CHECKS[file].splitlines())
    script = tmp_path / "check.py"
    script.write_text(
        f"import oda_rl\nassert oda_rl.__file__.startswith({str(tmp_path)!r})\n{code}"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
