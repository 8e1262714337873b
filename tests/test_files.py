"""Invalid files are refused before compiled code reads them."""

import dataclasses
import importlib
import io
import json
import sys
import tracemalloc
import zipfile

import fuzz_files
import numpy as np
import pytest
from common import fuzz_subjects
from test_rooms import modules

from oda_rl import InvalidFileError, ODAClassifier, ODATreeClusterer
from oda_rl._state import State
from oda_rl.agents import RulePolicy, TwoTimescaleAgent, load_agent
from oda_rl.agents.policies.contract import Stored
from oda_rl.agents.rules.editing import Clauses
from oda_rl.files.archive import load_archive, save_archive
from oda_rl.files.estimators import Filed
from oda_rl.files.schema import Span, check, members_of, real, schema_of, whole

FACE = {"observation_shape": [4], "n_actions": 2, "first_action": 0}
SPEC = {"id": "CartPole-v1", "name": "CartPoleEnv", "module": None, "kwargs": {},
        "max_episode_steps": 500, "wrappers": [], "fault": None}  # fmt: skip
LAYER = {"name": "TimeAwareObservation", "kwargs": {}, "fault": None,
         "entry_point": "gymnasium.wrappers.stateful_observation:TimeAwareObservation"}  # fmt: skip


def nested(depth):
    """Return nested lists."""
    return [nested(depth - 1)] if depth else []


@pytest.fixture(scope="module")
def online(tmp_path_factory):
    """The file of an online agent that has learned a little."""
    path = tmp_path_factory.mktemp("online") / "agent.zip"
    TwoTimescaleAgent("CartPole-v1", seed=0).learn(700).save(path)
    return path


def changed(path, **arrays):
    """Put other arrays, or functions of them, into a file."""
    metadata, known = load_archive(path)
    others = {name: a(known[name]) if callable(a) else a for name, a in arrays.items()}
    save_archive(path.with_name("changed.zip"), metadata, {**known, **others})
    return path.with_name("changed.zip")


def with_metadata(path, **values):
    """Put other values into the metadata of a file."""
    metadata, known = load_archive(path)
    save_archive(path.with_name("changed.zip"), {**metadata, **values}, known)
    return path.with_name("changed.zip")


def set_field(name, value):
    """A function that sets a field of named state."""

    def setting(record):
        record = record.copy()
        record[name] = value
        return record

    return setting


# Schemas.


def test_spans():
    values = np.array([-1.0, 0.0, 1.0, np.inf, np.nan])
    for text, inside in (
        ("[0, 1)", [0, 1, 0, 0, 0]), ("(0, inf]", [0, 0, 1, 1, 0]),
        ("[0, K] or nan", [0, 1, 1, 0, 1]),
        ("(-inf, inf)", [1, 1, 1, 0, 0]), ("[-1, K-1)", [1, 0, 0, 0, 0]),
    ):  # fmt: skip
        assert (~Span(text).wrong(values, {"K": 1})).tolist() == list(map(bool, inside))


def test_sizes_are_bound_by_the_first_array_that_has_them():
    sizes = {"d": 2}
    check(
        {"a": np.zeros((3, 2)), "b": np.zeros((3, 7))},
        {"a": real("K, d"), "b": real("K, 1+d+A")},
        sizes,
    )
    assert sizes == {"d": 2, "K": 3, "A": 4}
    for shape in ((0, 2), (3, 3), (3,), (3, 2, 1)):
        with pytest.raises(InvalidFileError, match="a has shape"):
            check({"a": np.zeros(shape)}, {"a": real("K, d")}, {"d": 2})
    with pytest.raises(InvalidFileError, match="must be of int64"):
        check({"a": np.zeros(3)}, {"a": whole("n")}, {})
    for arrays, message in (({"b": np.zeros(3)}, "b is in it"), ({}, "a is missing")):
        with pytest.raises(InvalidFileError, match=message):
            check(arrays, {"a": whole("n")}, {})


def subclasses(kind):
    for child in kind.__subclasses__():
        yield child
        yield from subclasses(child)


def test_all_that_is_stored_has_a_schema():
    for name in modules():
        if "sb3" not in name and "comparison" not in name:
            importlib.import_module(name)
    for kind in subclasses(State):
        if kind.__module__.startswith("oda_rl"):
            assert kind.spans.keys() == kind.kinds.keys(), kind
    for kind in subclasses(Stored):
        # Clauses: see below. The others are those of the environment.
        left_out = {"clauses", "names", "action_names", "bounds"}
        names = {field.name for field in dataclasses.fields(kind)} - left_out
        assert kind.SCHEMA.keys() == names
    assert members_of(Clauses).keys() == {field.name for field in dataclasses.fields(Clauses)}
    stored = {stored for kind in subclasses(Filed) for stored in kind._stored.values()}
    for kind in stored:  # estimators among them say in _LEARNED what besides parameters they have
        if kind.__module__.startswith("oda_rl") and not issubclass(kind, Filed):
            names = getattr(kind, "_fields", None)
            if dataclasses.is_dataclass(kind):
                names = [field.name for field in dataclasses.fields(kind)]
            assert names is None or set(names) == schema_of(kind).keys(), kind


# Zips and JSON.


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)


def npy(array):
    text = io.BytesIO()
    np.save(text, array)
    return text.getvalue()


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("metadata.json", "{}"), ("../x.npy", npy(np.zeros(1)))], "cannot name"),
        ([("metadata.json", "{}"), ("/x.npy", npy(np.zeros(1)))], "cannot name"),
        ([("metadata.json", "{}"), ("x.txt", b"")], "cannot name"),
        ([("metadata.json", "{}"), ("x.npy", npy(np.zeros(1))[:-1])], "bytes"),
        ([("metadata.json", "{}"), ("x.npy", npy(np.zeros(2**27, np.int8)))], "must be at most"),
        ([("metadata.json", "[1]")], "must hold a dictionary"),
        ([("metadata.json", '{"a": 1, "a": 2}')], "repeats a key"),
        ([("metadata.json", 100_000 * "[")], "damaged"),
        ([("metadata.json", '{"a": [' + "{}," * 4 * 10**6 + "0]}")], "values"),
        ([("metadata.json", '{"a": "' + 2**24 * "x" + '"}')], "metadata.json has"),
        ([("metadata.json", "{}"), ("x.npy", npy(np.array([print])))], "damaged, or was not"),
        ([("x.npy", npy(np.zeros(1)))], "metadata.json is missing"),
    ],
)  # fmt: skip
def test_invalid_zips(tmp_path, members, message):
    zipped(tmp_path / "a.zip", members)
    tracemalloc.start()
    with pytest.raises(InvalidFileError, match=message):
        load_archive(tmp_path / "a.zip")
    assert tracemalloc.get_traced_memory()[1] < 4e7
    tracemalloc.stop()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_repeated_members(tmp_path):
    zipped(tmp_path / "a.zip", [("metadata.json", "{}"), *2 * [("x.npy", npy(np.zeros(1)))]])
    with pytest.raises(InvalidFileError, match="is repeated"):
        load_archive(tmp_path / "a.zip")


def test_arrays_are_read_as_they_were_written(tmp_path):
    columns, text = np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.array(["a", "bc"])
    arrays = {"columns": columns, "none": np.zeros((0, 4)), "one": np.array(3), "text": text,
              "long": np.arange(10_000.0)}  # fmt: skip
    save_archive(tmp_path / "a.zip", {}, arrays)
    read = load_archive(tmp_path / "a.zip")[1]
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == array.dtype
        assert read[name].flags.writeable


def test_arrays_that_compress_too_well(tmp_path):
    large, path = np.zeros(2_200_000), tmp_path / "a.zip"
    save_archive(path, {}, {"x": large})
    assert path.stat().st_size > large.nbytes  # so it is stored uncompressed
    assert load_archive(path)[1]["x"].shape == large.shape
    written = path.read_bytes()
    for at in (0, 30, 2**20):  # a signature, a name, and a number
        path.write_bytes(written[:at] + bytes([written[at] ^ 1]) + written[at + 1 :])
        with pytest.raises(InvalidFileError):
            load_archive(path)


# Agents.


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"heads": lambda a: a + 10**9}, "heads has .* cells"),
        ({"state": set_field("phase", 3)}, "phase is 3"),
        ({"state": set_field("gamma", 0.5)}, "it must be 0.99"),
        ({"state": set_field("grows", False)}, "grows is"),
        ({"state": set_field("n_features", 3)}, "n_features is 3: it must be 4"),
        ({"state": set_field("next_uniform", 501)}, "next_uniform is 501"),
        ({"env_states": set_field("action", 2)}, "action is 2"),
        ({"env_states": set_field("held", -1)}, "held is -1"),
        ({"env_states": set_field("last_row", 2000)}, "last_row is 2000"),
        ({"env_states": set_field("number", 1)}, "number is 1"),
        ({"running": set_field("trial", -1)}, "trial is -1"),
        ({"models": lambda a: a[:, :, :1]}, "models has shape"),
        ({"places": lambda a: a * np.nan}, "places.* is nan"),
        ({"contest": set_field("failures", 6)}, "failures is 6"),
        ({"vectors": lambda a: -a}, "inverse units that are not positive"),
        ({"recent": lambda a: a.astype(">f8")}, "recent is of"),
        ({"partition_placed": np.zeros((2, 4))}, "the agent has none"),
        ({"history_cells": lambda a: a + 1}, "history_codevectors has"),
        ({"history_parents": lambda a: a + 1}, "history_parents has a cell that is not"),
        ({"episodes": lambda a: -a}, "groups of no episodes"),
        ({"surplus": np.zeros(1)}, "surplus is in it"),
    ],
)  # fmt: skip
def test_invalid_arrays(online, arrays, message):
    with pytest.raises(InvalidFileError, match=message) as error:
        load_agent(changed(online, **arrays))
    assert "changed.zip" in str(error.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"format": 2}, "in format 2: it must hold 'TwoTimescaleAgent' in format 1"),
        ({"format": True}, "format True"),
        ({"env_id": "*/ #include </etc/passwd> /*"}, "env_id is"),
        ({"interface": {**FACE, "observation_shape": [10**9]}}, "names"),
        ({"interface": {**FACE, "n_actions": -2, "names": ["a"], "action_names": ["b"]}},
         "n_actions"),
        ({"config": {"max_cells": 2.5}}, "max_cells is 2.5"),
        ({"config": {"max_cells": 10**12}}, "damaged"),
        ({"rngs": {}}, "rngs"),
        ({"training_seconds": -1.0}, "training_seconds"),
        ({"unused_steps": 0.5}, "unused_steps is 0.5: it must be an integer"),
        ({"partition": ["grid"]}, "partition is"),
        ({"surplus": 1}, "surplus"),
        ({"versions": {"numpy": 2}}, "versions must be names and versions"),
        ({"versions": {"numpy": "*/ #include"}}, "versions must be names and versions"),
        ({"env_spec": []}, "env_spec must have"),
        ({"env_spec": {**SPEC, "id": "Acrobot-v1"}}, "env_spec.id is another"),
        ({"env_spec": {**SPEC, "id": None}}, "env_spec.id is None"),
        ({"env_spec": {**SPEC, "module": "a b"}}, "env_spec.module is 'a b'"),
        ({"env_spec": {**SPEC, "max_episode_steps": 0}}, "max_episode_steps is 0"),
        ({"env_spec": {**SPEC, "max_episode_steps": True}}, "max_episode_steps is True"),
        ({"env_spec": {**SPEC, "fault": "\x1b[2J"}}, "env_spec.fault is"),
        ({"env_spec": {**SPEC, "kwargs": [1]}}, "must be arguments by name"),
        ({"env_spec": {**SPEC, "kwargs": {"env": 1}}}, "an argument env"),
        ({"env_spec": {**SPEC, "kwargs": {"a": nested(40)}}}, "nested more than 20 deep"),
        ({"env_spec": {**SPEC, "kwargs": {"a": [0] * 100_001}}}, "more than 100,000 values"),
        ({"env_spec": {**SPEC, "kwargs": {"a": "x" * 10_001}}}, "10,000 letters"),
        ({"env_spec": {**SPEC, "kwargs": {"a": {"tuple": 1}}}}, "a tuple that is no list"),
        ({"env_spec": {**SPEC, "kwargs": {"a": {"array": [1], "shape": [2], "dtype": "int8"}}}},
         "an array that is none"),
        ({"env_spec": {**SPEC, "kwargs": {"a": {"array": [1], "shape": [1], "dtype": "object"}}}},
         "an array that is none"),
        ({"env_spec": {**SPEC, "wrappers": [LAYER] * 51}}, "at most 50"),
        ({"env_spec": {**SPEC, "wrappers": [{**LAYER, "entry_point": "os"}]}}, "y_point is 'os'"),
        ({"env_spec": {**SPEC, "wrappers": [{**LAYER, "entry_point": None}]}}, "y_point is None"),
        ({"env_spec": {**SPEC, "wrappers": [{**LAYER, "more": 1}]}}, "must have"),
        ({"env_spec": {**SPEC, "wrappers": [{**LAYER, "statistics": {"mean": 1}}]}},
         "must have mean, var and count"),
        ({"env_spec": {**SPEC, "wrappers": [{**LAYER, "statistics":
            {"mean": [0.0], "var": [-1.0], "count": 1.0}}]}}, "statistics.var is -1.0"),
    ],
)  # fmt: skip
def test_invalid_metadata(online, values, message):
    with pytest.raises(InvalidFileError, match=message):
        load_agent(with_metadata(online, **values))


def test_modules_named_in_a_file_are_not_imported(online, tmp_path, monkeypatch):
    entry = "gymnasium.envs.classic_control:CartPoleEnv"
    code = f"import gymnasium as gym\ngym.register('Named-v0', '{entry}')\n"
    (tmp_path / "named_by_a_file.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = {**SPEC, "id": "Named-v0", "module": "named_by_a_file"}
    path = with_metadata(online, env_id="Named-v0", env_spec=spec)
    agent = load_agent(path)
    assert agent.predict(np.zeros(4))[0] in (0, 1)
    for use in (lambda: agent.learn(10), lambda: agent.evaluate(1)):
        with pytest.raises(ValueError, match="the module 'named_by_a_file' would be imported"):
            use()
    assert "named_by_a_file" not in sys.modules
    from oda_rl.command.cli import main

    assert main(["evaluate", str(path), "--episodes", "1"]) != 0
    assert "named_by_a_file" not in sys.modules
    assert main(["evaluate", str(path), "--episodes", "1", "--trust-env"]) == 0
    assert "named_by_a_file" in sys.modules
    loaded = load_agent(path, env="named_by_a_file:Named-v0")
    assert len(loaded.evaluate(1)) == 1


@pytest.mark.parametrize(
    ("entry_point", "message"),
    [("gymnasium.wrappers:RecordVideo", "is no wrapper that agents are trained in"),
     ("gymnasium:make", "is no wrapper"), ("gymnasium.wrappers:NoSuchThing", "is no wrapper"),
     ("gymnasium.no_such_module:Wrapper", "cannot be wrapped by"),
     ("antigravity:Wrapper", "the module 'antigravity' would be imported"),
     ("gymnasium_evil.wrappers:Wrapper", "the module 'gymnasium_evil.wrappers' would be")],
)  # fmt: skip
def test_only_wrappers_are_loaded(entry_point, message, online):
    layer = {**LAYER, "entry_point": entry_point}
    agent = load_agent(with_metadata(online, env_spec={**SPEC, "wrappers": [layer]}))
    with pytest.raises(ValueError, match=message):
        agent.evaluate(1)
    assert "antigravity" not in sys.modules


def test_environments_in_files_have_the_spaces_of_the_agent(online):
    agent = load_agent(with_metadata(online, env_spec={**SPEC, "wrappers": [LAYER]}))
    with pytest.raises(ValueError, match="the agent was trained with"):
        agent.learn(10)


def test_invalid_rules():
    right = {
        "scores": np.zeros((2, 3)),
        "outputs": np.eye(2)[:, :, None],
        "codevectors": np.zeros((2, 2)),
    }
    assert RulePolicy.from_arrays(right).n_cells == 2
    for name, array in (("outputs", np.ones((2, 2, 1))), ("outputs", np.zeros((2, 1, 2))),
                        ("scores", np.full((2, 3), np.nan)),
                        ("scores", np.zeros((0, 3)))):  # fmt: skip
        with pytest.raises(InvalidFileError):
            RulePolicy.from_arrays({**right, name: array})


# Estimators.


def content(path, change):
    """Change the JSON of a file."""
    metadata, arrays = load_archive(path)
    text = json.dumps(metadata)
    assert change[0] in text
    save_archive(path, json.loads(text.replace(*change, 1)), arrays)


def test_trees_with_cycles(tmp_path):
    points = np.random.default_rng(0).normal(size=(300, 2))
    path = tmp_path / "tree.zip"
    ODATreeClusterer(random_state=0).fit(points).save(path)
    assert ODATreeClusterer.load(path).n_leaves_ > 4
    content(path, ('["children", {"list": [1, 2,', '["children", {"list": [0, 2,'))
    with pytest.raises(InvalidFileError, match="children"):
        ODATreeClusterer.load(path)


def test_indices_out_of_bounds(tmp_path):
    points, path = np.random.default_rng(0).normal(size=(300, 2)), tmp_path / "model.zip"
    ODAClassifier(random_state=0).partial_fit(points, points[:, 0] > 0.0).save(path)
    metadata, arrays = load_archive(path)
    indices = [name for name in arrays if arrays[name].dtype == np.int64]
    assert len(indices) > 3
    for name in indices:
        others = {**arrays, name: arrays[name] + 10**6}
        save_archive(tmp_path / "other.zip", metadata, others)
        with pytest.raises(InvalidFileError, match="must"):
            ODAClassifier.load(tmp_path / "other.zip")


def test_long_directories_are_not_read(online, tmp_path, monkeypatch):
    content = online.read_bytes()
    end = len(content) - 22
    size = (10**6 + 1).to_bytes(4, "little")
    locator = b"PK\6\7" + bytes(16)
    for changed, message in (
        (content[: end + 12] + size + content[end + 16 :], "directory has 1,000,001 bytes"),
        (content[:end] + locator + content[end:], "64-bit zip"),
        (content + b"x", "does not end as a zip"),
        (b"", "damaged"),
    ):
        (tmp_path / "other.zip").write_bytes(changed)
        with monkeypatch.context() as patch:
            patch.setattr(zipfile, "ZipFile", None)
            with pytest.raises(InvalidFileError, match=message):
                load_agent(tmp_path / "other.zip")


# Everything at once.


@pytest.mark.parametrize(
    ("kind", "arrays", "message"),
    [
        ("online-grid", {"heads": lambda a: a + 10**6}, "heads has .* cells"),
        ("online-gmm", {"partition_shown": lambda a: a - 10**6}, "shown"),
        ("online-gmm", {"partition_placed": lambda a: a[:-1]}, "has shape"),
        ("fitted", {"state": set_field("next_uniform", 501)}, "next_uniform is 501"),
        ("fitted", {"env_state": set_field("last_row", 10**6)}, "last_row is 1000000"),
        ("fitted", {"memory_steps": lambda a: a + 2.0}, "unknown mark"),
        ("fitted", {"policy0_models": lambda a: a[:, :-1]}, "models has shape"),
        ("model", {"planner_learned_world_waves": lambda a: np.ones((4, 9, 2))}, "waves is of"),
        ("model", {"planner_learned_world_terms": np.full((1, 2), 9)}, "terms"),
        ("codevectors", {"performed": np.zeros((1, 2))}, "performed has shape"),
    ],
)  # fmt: skip
def test_invalid_arrays_of_other_agents(kind, arrays, message, tmp_path):
    subject = fuzz_subjects.subject(kind, tmp_path)
    path = changed(subject.file, **arrays)
    tracemalloc.start()
    with pytest.raises(InvalidFileError, match=message):
        subject.load(path)
    assert tracemalloc.get_traced_memory()[1] < 1e8
    tracemalloc.stop()


def quickly(loaded, thoroughly):
    """Decide, act and learn on, without an environment."""
    if hasattr(loaded, "interface"):
        shape = loaded.interface.observation_shape
        fuzz_subjects.tried(lambda: loaded.predict(np.zeros((2, *shape))))
        for _ in range(3):
            fuzz_subjects.tried(lambda: loaded.act(np.zeros(shape)))
            step = np.zeros(shape), 0, 1.0, np.ones(shape), False, False
            fuzz_subjects.tried(lambda step=step: loaded.update(*step))
    else:
        fuzz_subjects.use_estimator(loaded, thoroughly)


def test_nothing_escapes(tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz_files, "SECONDS", 60)  # a loaded machine is no fault of a file
    for name in ("online-gmm", "fitted", "tree-stream", "mixture-held"):
        own = dataclasses.replace(fuzz_subjects.subject(name, tmp_path), use=quickly)
        counts = fuzz_files.attack(own, 8, 20)
        assert counts["refused"] > 2
        assert counts["refused"] + counts["harmless"] == 8
