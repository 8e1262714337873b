"""A file does not decide how long a command runs, nor how much memory it takes."""

import numpy as np
import pytest

from oda_rl.agents import load_agent
from oda_rl.agents.base.player import Limits
from oda_rl.command.cli import main, memory_limit


def stack(size):
    return {
        "name": "FrameStackObservation",
        "entry_point": "gymnasium.wrappers.stateful_observation:FrameStackObservation",
        "kwargs": {"stack_size": size},
        "fault": None,
    }


@pytest.mark.parametrize("limit", [None, 2 * 10**11])
def test_episodes_without_an_end_stop_at_the_limit(limit, small_agent, changed, capsys):
    path = changed(
        small_agent, lambda metadata: metadata["env_spec"].update(max_episode_steps=limit)
    )
    agent = load_agent(path)
    agent.limits = Limits(steps=50)
    with pytest.raises(ValueError, match="more than 50 steps or 600 seconds: raise agent.limits"):
        agent.evaluate(100, seed=0)
    assert main(["evaluate", str(path), "--max-steps", "50"]) == 2
    assert "--max-steps" in capsys.readouterr().err
    assert main(["evaluate", str(path), "--episodes", "1"]) == 0


def test_seconds_are_limited(small_agent):
    agent = load_agent(small_agent)
    agent.limits = Limits(seconds=-1.0)
    with pytest.raises(ValueError, match="or -1 seconds"):
        agent.visited_states(100)
    agent.limits = None
    assert len(agent.visited_states(100)) == 100


@pytest.mark.parametrize("sizes", [[60_000_000], [10**300], [20_000, 20_000], [9] * 50])
def test_sizes_in_arguments_are_bounded_before_anything_is_made(
    sizes, small_agent, changed, capsys
):
    path = changed(
        small_agent, lambda metadata: metadata["env_spec"]["wrappers"].extend(map(stack, sizes))
    )
    assert main(["evaluate", str(path)]) == 2
    assert "FrameStackObservation with stack_size=" in capsys.readouterr().err


def test_memory_is_limited():
    with pytest.raises(MemoryError), memory_limit(100):
        np.ones(10**8)
    assert len(np.ones(2 * 10**7)) == 2 * 10**7


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [("desc", ["F" * 10_000] * 20, "has more than 100,000 values"),
     ("render_mode", "human", "would open a window")],
)  # fmt: skip
def test_long_texts_and_windows_are_refused(small_agent, changed, name, value, message):
    path = changed(small_agent, lambda data: data["env_spec"]["kwargs"].update({name: value}))
    with pytest.raises(ValueError, match=message):
        load_agent(path)
