"""Watching a trained agent: in a window, or in films."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from oda_rl._types import FloatArray
from oda_rl.files.archive import refuse_links

if TYPE_CHECKING:
    import gymnasium as gym

    from oda_rl.agents import Agent


def show(agent: "Agent", episodes: int, seed: int) -> FloatArray:
    """Play greedy episodes in a window; return their returns."""
    env = _rendered(agent, "human")
    try:
        return agent.evaluate(episodes, env=env, seed=seed)
    finally:
        env.close()


def write_video(agent: "Agent", folder: Path, episodes: int, seed: int) -> list[Path]:
    """Film greedy episodes; return the files.

    Raises ValueError if the agent cannot be filmed, LinkError if a film would go elsewhere.
    """
    import gymnasium as gym

    refuse_links(*(folder / f"episode-episode-{i}.mp4" for i in range(episodes)))
    if find_spec("moviepy") is None:
        raise ValueError("video needs MoviePy: pip install 'oda-rl[video]'")
    filmed = gym.wrappers.RecordVideo(
        _rendered(agent, "rgb_array"), str(folder), episode_trigger=lambda number: True,
        name_prefix="episode", disable_logger=True,
    )  # fmt: skip
    try:
        agent.evaluate(episodes, env=filmed, seed=seed)
    finally:
        filmed.close()  # type: ignore[no-untyped-call]
    return sorted(folder.glob("episode-episode-*.mp4"))


def _rendered(agent: "Agent", mode: str) -> "gym.Env[object, object]":
    env = agent._require_env()
    modes = env.metadata.get("render_modes") or ()
    if mode not in modes:
        raise ValueError(
            f"{agent.env_id} cannot be shown, its render_modes are {list(modes)}: there must be "
            f"{mode!r} among them{'; --video films it' * ('rgb_array' in modes)}"
        )
    module = type(env.unwrapped).__module__
    mujoco = module.startswith("gymnasium.envs.mujoco.")
    display = sys.platform != "linux" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    windowless = mode != "human" and os.environ.get("MUJOCO_GL") in ("egl", "osmesa")
    if mujoco and not display and not windowless:
        films = "films (--video) of MuJoCo need MUJOCO_GL=egl or osmesa"
        raise ValueError(f"there is no display: a window needs one, and {films}")
    drawn = module.startswith(("gymnasium.", "oda_rl."))
    if drawn and not mujoco and find_spec("pygame") is None:
        raise ValueError("rendering needs pygame: pip install 'oda-rl[render]'")
    return agent.make_separate_env(mode)
