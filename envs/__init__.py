"""Environments: importing this package registers ``oda_rl/BartoCartPole-v0`` with Gymnasium.

>>> import gymnasium
>>> import oda_rl.envs
>>> env = gymnasium.make("oda_rl/BartoCartPole-v0")
>>> observation, info = env.reset(seed=0)
>>> observation.shape
(4,)
"""

from gymnasium.envs.registration import register

from oda_rl.envs.cartpole import MAX_EPISODE_STEPS, BartoCartPoleEnv
from oda_rl.envs.dynamics import Dynamics

__all__ = ["BartoCartPoleEnv", "Dynamics"]

register(
    id="oda_rl/BartoCartPole-v0",
    entry_point="oda_rl.envs.cartpole:BartoCartPoleEnv",
    max_episode_steps=MAX_EPISODE_STEPS,
    reward_threshold=950.0,
)
for _name, _steps in (("DeepSea", None), ("TwoRooms", 200), ("DoorKey", 250)):
    register(f"oda_rl/{_name}-v0", f"oda_rl.envs.sparse:{_name}", max_episode_steps=_steps)
