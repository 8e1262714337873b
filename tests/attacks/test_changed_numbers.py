"""One number of a file is changed, with valid checksums: what loads can be used, saved and loaded.

No number decides how long that takes, nor how much memory.

An environment that differs from the file's interface is refused when it is made.
"""

import json
import warnings
from contextlib import suppress
from functools import reduce
from itertools import pairwise
from operator import getitem

import numpy as np
import pytest
from common import fuzz_subjects
from common.file_changes import METADATA, SavedFile, changed_array, changed_json

from oda_rl import InvalidFileError
from oda_rl.command.cli import memory_limit

CASES = 4
POINTS = np.random.default_rng(1).uniform(0.1, 1.0, (60, 2))
LABELS = (POINTS[:, 0] > 0.5).astype(int)
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
    for name in ("predict", "transform", "predict_proba", "score_samples", "apply"):
        if hasattr(model, name):
            getattr(model, name)(POINTS)
    if hasattr(model, "partial_fit"):
        model.partial_fit(POINTS, LABELS)


def use(model):
    (use_estimator if hasattr(model, "get_params") else use_agent)(model)


@pytest.fixture(
    scope="module",
    params=[
        name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
        for name in fuzz_subjects.MAKERS
    ],
)
def own(request, tmp_path_factory):
    return fuzz_subjects.subject(request.param, tmp_path_factory.mktemp("saved"))


@pytest.mark.filterwarnings("ignore")  # of numbers that nothing has learned
def test_what_loads_can_be_used_saved_and_loaded(own, tmp_path):
    again = tmp_path / "again.zip"
    saved, case, loaded = SavedFile(own.file), 0, 0
    while case < CASES or loaded == case < 50:  # until one has been refused
        rng = np.random.default_rng([case, 12])
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
            use(model)
        model.save(again)
        own.load(again)
    assert loaded < case


@pytest.mark.filterwarnings("ignore")
def test_no_count_decides_how_long_it_takes_and_how_much(own, tmp_path):
    saved, file = SavedFile(own.file), tmp_path / "changed.zip"
    places = {  # one item of each list
        tuple(key for at, key in pairwise(("", *place)) if at != "list"): place
        for place in saved.places
    }
    for *before, last in places.values():
        metadata = saved.metadata()
        holder = reduce(getitem, before, metadata)
        if type(holder[last]) is not int and holder[last] is not None:
            continue
        holder[last] = 10**12
        file.write_bytes(saved.with_member(METADATA, json.dumps(metadata).encode()))
        with suppress(ValueError), memory_limit(1_000), np.errstate(all="ignore"):
            model = own.load(file)
            use(model)
            if hasattr(model, "get_params") and len(before) < 6:  # a parameter
                model.fit(POINTS, LABELS)
