"""Rules that people write by hand, by the name of the suite's task."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

Decide = Callable[[Any], Any]

_DISCRETE: Any = SimpleNamespace(unwrapped=SimpleNamespace(continuous=False))  # a lander's actions
_GRAVITY = 10.0  # of Gymnasium's pendulum, a rod of length and mass 1


def _lean(observation: Any) -> int:
    """Push to where the pole leans and moves."""
    x, velocity, angle, turning = observation
    return int(0.1 * x + 0.3 * velocity + 5.0 * angle + turning > 0.0)


def _swing_up(observation: Any) -> Any:
    """Pump energy until there is enough to stand, then hold by position and velocity."""
    cosine, sine, turning = map(float, observation)
    if cosine > 0.85 and abs(turning) < 3.0:
        torque = -12.0 * math.atan2(sine, cosine) - 3.0 * turning
    else:
        missing = _GRAVITY / 2.0 * (1.0 - cosine) - turning * turning / 6.0
        torque = 2.0 * math.copysign(1.0, missing * turning)
    return np.array([min(max(torque, -2.0), 2.0)], dtype=np.float32)


def _land(observation: Any) -> int:
    """Do what Gymnasium's own demonstration does: two PD controllers, for angle and hovering."""
    from gymnasium.envs.box2d.lunar_lander import heuristic

    return int(heuristic(_DISCRETE, observation))


RULES: dict[str, Decide] = {
    "BartoCartPole": _lean,
    "CartPole-v1": _lean,
    "MountainCar-v0": lambda seen: 2 if seen[1] > 0.0 else 0,  # with the velocity
    "Acrobot-v1": lambda seen: 2 if seen[5] > 0.0 else 0,  # with the second joint
    "LunarLander-v3": _land,
    "Pendulum-v1": _swing_up,
    "MountainCarContinuous-v0": lambda seen: np.float32(np.where(seen[1:] > 0.0, 1.0, -1.0)),
}
