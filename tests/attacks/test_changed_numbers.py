"""One number of a file is changed, with valid checksums: what loads can be used, saved and loaded.

An environment that differs from the file's interface is refused when it is made.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from oda_rl import InvalidFileError

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "scripts"))
from common import fuzz_subjects
from common.file_changes import SavedFile, changed_array, changed_json

CASES = 4
QUICK = ("online-som", "fitted", "model-table", "classifier-stream", "lvq", "map", "mixture-em",
         "infex", "tree-regressor")  # fmt: skip


def use_agent(model):
    agent = getattr(model, "agent", model)  # of an algorithm of Stable-Baselines3
    rng, interface = np.random.default_rng(0), agent.interface
    points = rng.uniform(-0.1, 0.1, (6, *interface.observation_shape)).astype(interface.dtype)
    points = np.zeros_like(points) if interface.n_values else points
    agent.predict(points)
    assert str(agent)
    for point in points:
        agent.update(point, agent.act(point), 1.0, point, False, False)
    try:
        agent.learn(10)
    except ValueError as error:
        if "the agent was trained with" not in str(error):
            raise


def use_estimator(model):
    points = np.random.default_rng(1).uniform(0.1, 1.0, (60, 2))
    for name in ("predict", "transform", "predict_proba", "score_samples", "apply"):
        if hasattr(model, name):
            getattr(model, name)(points)
    if hasattr(model, "partial_fit"):
        model.partial_fit(points, (points[:, 0] > 0.5).astype(int))


@pytest.mark.filterwarnings("ignore")  # of numbers that nothing has learned
@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in fuzz_subjects.MAKERS
    ],
)
def test_what_loads_can_be_used_saved_and_loaded(name, tmp_path):
    own, again = fuzz_subjects.subject(name, tmp_path), tmp_path / "again.zip"
    saved, case, loaded = SavedFile(own.file), 0, 0
    while case < CASES or loaded == case < 50:  # until one has been refused
        rng = np.random.default_rng([case, 11])
        change = changed_json if case == 0 else changed_array
        case += 1
        (tmp_path / "changed.zip").write_bytes(change(saved, rng))
        try:
            model = own.load(tmp_path / "changed.zip")
        except InvalidFileError:
            continue
        loaded += 1
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            (use_estimator if own.use is fuzz_subjects.use_estimator else use_agent)(model)
        model.save(again)
        own.load(again)
    assert loaded < case
