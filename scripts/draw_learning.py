"""The README's animation: cells split while a cart-pole learns to stand.

Greedy episodes of the online agent after more and more steps in BartoCartPole. Left the cart and
its pole; right the actions in the plane of angle and angular velocity through the middle of the
track, the codevectors, projected onto it, and the path of the episode.

Run: python scripts/draw_learning.py
Writes results/learning.gif.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import tyro
from common.experiment import RESULTS, say
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from rich.progress import track

from oda_rl._types import FloatArray
from oda_rl.agents import TwoTimescaleAgent
from oda_rl.plotting.axes import COLORS, Ranges, draw_regions, grid, new_axes

BARTO = "oda_rl/BartoCartPole-v0"
STAGES = (1_000, 2_000, 4_000, 7_000, 12_000, 20_000, 35_000)
SHOWN, EVERY = 120, 4  # steps of each episode, and of those that have a frame
ANGLES, RATES = (-0.21, 0.21), (-1.6, 1.6)
TRACK, POLE = 2.4, 1.0  # m


@dataclass(frozen=True)
class Stage:
    """A policy after a number of steps."""

    steps: int
    actions: Any  # Actions at the points of the plane, shape (n,)
    codevectors: FloatArray  # Shape (K, 4)
    states: FloatArray  # States of an episode, shape (T + 1, 4)


def stages(agent: TwoTimescaleAgent, plane: FloatArray) -> Iterator[Stage]:
    env = gym.make(BARTO)
    points = np.zeros((len(plane), 4))
    points[:, 2:] = plane
    for steps in track(STAGES, "learning"):
        agent.learn(steps - agent.num_timesteps)
        policy = agent.policy
        observation, over = env.reset(seed=1)[0], False
        states = [observation]
        while not over:
            action = int(agent.predict(observation)[0])
            observation, _, terminated, truncated, _ = env.step(action)
            states.append(observation)
            over = terminated or truncated
        actions = policy.choices(points)
        yield Stage(steps, actions, policy.codevectors, np.array(states, dtype=np.float64))


def draw(stage: Stage, step: int, ranges: Ranges, left: Axes, right: Axes) -> None:
    for ax in (left, right):
        ax.clear()
    position, _, angle, _ = stage.states[step]
    left.set(xlim=(-TRACK, TRACK), ylim=(-0.45, 1.5), xticks=[], yticks=[], aspect="equal")
    left.axhline(-0.15, color="0.6", linewidth=1)
    left.add_patch(Rectangle((position - 0.3, -0.15), 0.6, 0.3, color="0.25"))
    tip = position + POLE * np.sin(angle), 0.1 + POLE * np.cos(angle)
    left.plot([position, tip[0]], [0.1, tip[1]], color=COLORS[1], linewidth=6)
    title = f"after {stage.steps:,} steps: {len(stage.states) - 1} of 1000 balanced"
    left.set_title(title, loc="left")
    left.spines[:].set_visible(False)
    draw_regions(right, ranges, stage.actions, np.array(COLORS[:2]))
    right.plot(np.degrees(stage.codevectors[:, 2]), stage.codevectors[:, 3], "w.", markersize=3)
    way = np.degrees(stage.states[: step + 1, 2]), stage.states[: step + 1, 3]
    right.plot(*way, color="0.1", linewidth=1)
    right.plot(way[0][-1:], way[1][-1:], "o", color="0.1", markersize=5)
    right.set(xlabel="pole angle (degrees)", ylabel="angular velocity (rad/s)")
    n_cells = len(stage.codevectors)
    title = f"{n_cells} cell{'s' * (n_cells > 1)}: blue pushes left, orange right"
    right.set_title(title, loc="left")


def main() -> None:
    left, right = new_axes(8.0, 3.0, 2)
    figure = left.figure
    figure.subplots_adjust(left=0.02, right=0.98, bottom=0.2, top=0.88, wspace=0.2)
    degrees, plane = tuple(map(math.degrees, ANGLES)), grid((ANGLES, RATES))
    writer, path = PillowWriter(fps=12), RESULTS / "learning.gif"
    with writer.saving(figure, str(path), dpi=80):
        for stage in stages(TwoTimescaleAgent(BARTO, seed=0), plane):
            for step in range(0, min(SHOWN + 1, len(stage.states)), EVERY):
                draw(stage, step, (degrees, RATES), left, right)
                writer.grab_frame()
            for _ in range(5):
                writer.grab_frame()
    say(f"written: {path}")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
