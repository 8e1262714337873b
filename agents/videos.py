"""Films of a trained agent."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from oda_rl.files.archive import refuse_links

if TYPE_CHECKING:
    from oda_rl.agents import Agent

_EPISODES = 3


def check_video(agent: "Agent", folder: Path) -> None:
    """Raise ValueError if an agent cannot be filmed, LinkError if a film would go elsewhere."""
    refuse_links(*(folder / f"episode-episode-{i}.mp4" for i in range(_EPISODES)))
    if find_spec("moviepy") is None:
        raise ValueError("video needs moviepy, which is not installed: pip install moviepy")
    modes = agent._require_env().metadata.get("render_modes") or ()
    if "rgb_array" not in modes:
        raise ValueError(
            f"video: {agent.env_id} cannot be filmed, its render_modes are {list(modes)}: there "
            "must be 'rgb_array' among them"
        )


def write_video(agent: "Agent", folder: Path, seed: int) -> list[Path]:
    """Film a few greedy episodes; return the files."""
    import gymnasium as gym

    try:
        filmed = gym.wrappers.RecordVideo(
            agent.make_separate_env("rgb_array"), str(folder), episode_trigger=lambda number: True,
            name_prefix="episode", disable_logger=True,
        )  # fmt: skip
        agent.evaluate(_EPISODES, env=filmed, seed=seed)
        filmed.close()  # type: ignore[no-untyped-call]
    except gym.error.DependencyNotInstalled as error:
        raise ValueError(f"video: {error}") from error
    return sorted(folder.glob("episode-episode-*.mp4"))
