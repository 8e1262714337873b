"""The environments of the suite, as agents are given them.

Published returns are those of rl-baselines3-zoo (github.com/DLR-RM/rl-baselines3-zoo), benchmark.md
at commit 0088472b. Hyper-parameters of the baselines are in agents/sb3/settings.py.
"""

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np

from common.everyday import WORLDS
from common.summaries import Rows
from oda_rl.envs.dynamics import ActionChoices  # importing oda_rl.envs registers BartoCartPole

N_TORQUES = 5


@dataclass(frozen=True)
class Task:
    name: str
    env_id: str
    solved: float  # Least mean return of the delivered policy
    checkpoints: tuple[int, ...]
    n_seeds: int
    published: str = "-"  # Results of rl-zoo: algorithm, return, steps
    baseline_steps: tuple[int, ...] = ()  # After how many steps the baselines are evaluated
    digits: int = 1  # Decimal places of returns
    options: dict[str, Any] = field(default_factory=dict)
    model_steps: tuple[int, ...] = ()  # After how many steps the model agent is evaluated
    model_seeds: int = 20
    boxed: bool = False  # Continuous actions are offered as they are


BARTO, CARTPOLE = "oda_rl/BartoCartPole-v0", "CartPole-v1"
SHORT = (2_000, 5_000, 10_000, 20_000, 50_000)
MIDDLE = (1_000, 5_000, 20_000)
LONG = (20_000, 50_000, 100_000, 200_000)

_TASKS = (
    Task("BartoCartPole", BARTO, 950.0, SHORT, 100, baseline_steps=(50_000,), digits=0,
         model_steps=(250, 500, 1_000), model_seeds=100),
    Task("CartPole-v1", CARTPOLE, 475.0, SHORT, 100, baseline_steps=(50_000,), digits=0,
         model_steps=(250, 500, 1_000), model_seeds=100,
         published="DQN 500 (50k), PPO 500 (100k)"),
    Task("MountainCar-v0", "MountainCar-v0", -110.0, LONG, 100, baseline_steps=(100_000,),
         model_steps=MIDDLE, published="DQN -100.8 (120k), PPO -110.4 (1M)"),
    Task("Pendulum-v1, 5 torques", "Pendulum-v1", -200.0, LONG, 100, baseline_steps=(100_000,),
         model_steps=MIDDLE, published="PPO -172.2 (100k), continuous"),
    Task("Acrobot-v1", "Acrobot-v1", -100.0, LONG, 40, baseline_steps=(100_000,),
         model_steps=(2_000, 5_000, 20_000, 100_000),
         published="DQN -76.6 (100k), PPO -73.5 (1M)"),
    Task("LunarLander-v3", "LunarLander-v3", 200.0, (50_000, 100_000, 200_000, 300_000), 20,
         baseline_steps=(100_000,), digits=0, model_steps=(300_000, 600_000),
         published="DQN 154 (100k), PPO 242 (1M), v2"),
    Task("MountainCarContinuous-v0, 5 forces", "MountainCarContinuous-v0", 90.0, LONG, 20,
         published="SAC 94.7 (50k)"),
    Task("CliffWalking-v1", "CliffWalking-v1", -13.0, LONG[:3], 20, digits=0,
         options={"max_episode_steps": 200}, model_steps=(5_000,)),
    Task("FrozenLake8x8-v1", "FrozenLake8x8-v1", 0.85, LONG, 20, digits=2, model_steps=(50_000,)),
    Task("Taxi-v4", "Taxi-v4", 8.0, (), 0, digits=2, model_steps=(20_000,)),
    Task("Pendulum-v1", "Pendulum-v1", -200.0, (), 0, baseline_steps=MIDDLE[1:],
         model_steps=MIDDLE, published="SAC -156.9 (20k)", boxed=True),
    Task("MountainCarContinuous-v0", "MountainCarContinuous-v0", 90.0, (), 0,
         baseline_steps=MIDDLE[1:], model_steps=MIDDLE, published="SAC 94.7 (50k)", boxed=True),
    # Everyday worlds: 0.8 of the way from the best constant action to the rule by hand.
    *(Task(name, name, solved, (), 0)
      for name, solved in (("Inventory", 1011.0), ("Admission", 226.0), ("DelayedCart", 250.9))),
    Task("Hopper-v5", "Hopper-v5", 2500.0, (), 0, digits=0, published="PPO 2410, SAC 2326 (1M)"),
)  # fmt: skip
TASKS = {task.name: task for task in _TASKS}


def goal(line: Rows) -> str:
    """Return the task of some rows, and the return that solves it."""
    return f"{line[0]['task']} ≥ {TASKS[line[0]['task']].solved:g}"


def make(task: Task) -> gym.Env[Any, Any]:
    if task.env_id in WORLDS:
        return WORLDS[task.env_id]()
    env: gym.Env[Any, Any] = gym.make(task.env_id, **task.options)
    if isinstance(env.action_space, gym.spaces.Box) and not task.boxed:
        space = env.action_space
        choices = np.linspace(space.low, space.high, N_TORQUES).astype(np.float32)
        env = ActionChoices(env, choices)
    return env
