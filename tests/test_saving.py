"""Files: what is saved comes back, damaged ones are refused, nothing is half-written."""

import json

import gymnasium as gym
import numpy as np
import pytest
from environments import BARTO, quick_rule

from oda_rl.agents import CodevectorAgent, FittedQAgent, ModelAgent, TwoTimescaleAgent, load_agent
from oda_rl.agents.two_timescale.engine import OnlineEngine
from oda_rl.files.archive import load_archive, save_archive, write_text


@pytest.fixture(scope="module")
def agent():
    return TwoTimescaleAgent(BARTO, seed=3).learn(4_000)


def test_run_folder(agent, tmp_path):
    folder = tmp_path / "deep" / "run"
    agent.save(folder)
    assert {path.name for path in folder.iterdir()} == {"agent.zip", "config.json", "monitor.csv"}
    with pytest.raises(ValueError, match="must be a folder"):
        agent.save(folder / "config.json")
    config = json.loads((folder / "config.json").read_text())
    assert config["env_id"] == BARTO
    assert config["algorithm"] == "TwoTimescaleAgent"
    assert config["num_timesteps"] == 4_000
    assert config["config"]["gamma"] == agent.config.gamma
    np.testing.assert_array_equal(TwoTimescaleAgent.load(folder).q_values, agent.q_values)


def test_stable_baselines3_reads_the_monitor_file(agent, tmp_path):
    from stable_baselines3.common.monitor import load_results
    from stable_baselines3.common.results_plotter import X_TIMESTEPS, ts2xy

    agent.save(tmp_path)
    frame = load_results(str(tmp_path))
    np.testing.assert_allclose(frame["r"], agent.episodes.rows[:, 0])
    np.testing.assert_array_equal(frame["l"], agent.episodes.rows[:, 1])
    assert (np.diff(frame["t"]) >= 0).all()
    steps, returns = ts2xy(frame, X_TIMESTEPS)
    assert steps[-1] == agent.episodes.rows[:, 1].sum()
    assert len(returns) == len(agent.episodes.rows)


def test_environment_is_made_when_needed_and_checked(agent, tmp_path):
    agent.save(tmp_path / "a.zip")
    loaded = TwoTimescaleAgent.load(tmp_path / "a.zip")
    assert loaded.env is None
    assert loaded.learn(10).env.spec.id == BARTO
    assert TwoTimescaleAgent.load(tmp_path / "a.zip", env="CartPole-v1").env_id == "CartPole-v1"
    with pytest.raises(ValueError, match="trained with"):
        TwoTimescaleAgent.load(tmp_path / "a.zip", env="Acrobot-v1")


def test_an_environment_without_an_id(tmp_path):
    env = gym.make("CartPole-v1").unwrapped
    env.spec = None
    TwoTimescaleAgent(env, seed=0).learn(600).save(tmp_path / "a.zip")
    loaded = TwoTimescaleAgent.load(tmp_path / "a.zip")
    assert loaded.predict(np.zeros(4))[0] in (0, 1)
    with pytest.raises(ValueError, match="env is None"):
        loaded.learn(5)


def test_missing_and_damaged_files(agent, tmp_path):
    for load in (TwoTimescaleAgent.load, load_agent):
        for path in (tmp_path / "nowhere", tmp_path):
            with pytest.raises(FileNotFoundError, match=f"{path.name}' is no .*run folder"):
                load(path)
    file = tmp_path / "agent.zip"
    agent.save(file)
    whole = file.read_bytes()
    places = range(0, len(whole) - 50, len(whole) // 60)
    holes = [whole[:at] + bytes(50) + whole[at + 50 :] for at in places]
    for damaged in (b"", whole[:1000], b"no zip at all", *holes):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match="is damaged"):
            TwoTimescaleAgent.load(file)
        with pytest.raises(ValueError, match="is damaged"):
            load_agent(tmp_path)
    save_archive(file, {"kind": "TwoTimescaleAgent", "format": 1}, {})
    with pytest.raises(ValueError, match="is damaged"):
        TwoTimescaleAgent.load(file)
    save_archive(file, {"kind": "ODAClusterer", "format": 1}, {})
    with pytest.raises(ValueError, match="holds 'ODAClusterer': it must hold an agent"):
        load_agent(file)


def test_no_bit_of_a_file_changes_unnoticed(tmp_path):
    file, array = tmp_path / "numbers.zip", np.arange(100.0) ** 3
    save_archive(file, {"kind": "numbers"}, {"x": array})
    whole, noticed = file.read_bytes(), 0
    for at in range(len(whole)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        try:
            metadata, arrays = load_archive(file)
        except ValueError:
            noticed += 1
        else:  # of what a zip file says twice, or says about times
            assert metadata == {"kind": "numbers"}
            assert arrays.keys() <= {"x"}
            np.testing.assert_array_equal(arrays.get("x", array), array)
    assert noticed > 0.5 * len(whole)


def test_load_agent_finds_the_class(agent, tmp_path):
    fitted = FittedQAgent("CartPole-v1", seed=0).learn(300)
    rule = quick_rule("CartPole-v1", seed=0).learn(300)
    parts = CodevectorAgent("Pendulum-v1", seed=0).learn(300)
    both = [("b.zip", parts), ("fitted", fitted), ("c.zip", rule), ("rule", rule)]
    for name, one in (("a.zip", agent), ("run", agent), *both):
        one.save(tmp_path / name)
        loaded = load_agent(tmp_path / name)
        assert type(loaded) is type(one)
        assert loaded.env is None
        assert loaded.env_id == one.env_id
        assert loaded.num_timesteps == one.num_timesteps
        np.testing.assert_array_equal(loaded.q_values, one.q_values)
    assert load_agent(tmp_path / "run", env="CartPole-v1").env_id == "CartPole-v1"
    with pytest.raises(ValueError, match="trained with"):
        load_agent(tmp_path / "run", env="MountainCar-v0")
    for path, kind, other in (
        ("a.zip", FittedQAgent, "Tw"), ("b.zip", FittedQAgent, "Co"), ("rule", FittedQAgent, "Mo"),
        ("fitted", TwoTimescaleAgent, "Fi"), ("fitted", ModelAgent, "Fi"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"holds '{other}"):
            kind.load(tmp_path / path)


def test_a_failed_save_leaves_the_old_file(agent, tmp_path, monkeypatch):
    path = tmp_path / "a.zip"
    agent.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(OnlineEngine, "state_arrays", lambda self: {"x": np.array([print])})
    with pytest.raises(ValueError, match="[Oo]bject"):
        agent.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["a.zip"]


def test_replacing_keeps_the_usual_permissions(tmp_path):
    (tmp_path / "usual").write_text("")
    write_text(tmp_path / "ours", "text")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode
