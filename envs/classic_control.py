"""Dynamics of Gymnasium's classic control tasks, compiled.

The operations are in Gymnasium's order, so that results agree to the last bit if its sine is that
of the C library, which :mod:`oda_rl.envs.dynamics` checks. Squares there are the C library's power,
which once in a thousand times is not the product.

References
----------
M. Towers et al., "Gymnasium: a standard interface for reinforcement learning environments",
arXiv:2407.17032, 2024: ``gymnasium.envs.classic_control``.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from gymnasium.envs.classic_control import AcrobotEnv, MountainCarEnv, PendulumEnv

from oda_rl._compile import spliced
from oda_rl._types import Float32Array, FloatArray


def constants(env: object, names: Iterable[str]) -> list[float]:
    """Read attributes of an environment."""
    return [float(getattr(env, name)) for name in names]


_TWO = 2.0  # a variable for compiled code, which would multiply where Gymnasium takes a power


class MountainCar(NamedTuple):
    """Constants of MountainCar."""

    force: float
    gravity: float
    max_speed: float
    min_position: float
    max_position: float
    goal_position: float
    goal_velocity: float


@spliced
def mountain_car_step(parameters: FloatArray, state: FloatArray, action: int) -> tuple[float, bool]:
    """Advance ``state`` = (position, velocity) by one step; returns reward and whether it ends."""
    p = parameters
    car = MountainCar(p[0], p[1], p[2], p[3], p[4], p[5], p[6])
    position, velocity = state[0], state[1]
    velocity += (action - 1) * car.force + math.cos(3.0 * position) * (-car.gravity)
    velocity = min(max(velocity, -car.max_speed), car.max_speed)
    position += velocity
    position = min(max(position, car.min_position), car.max_position)
    if position == car.min_position and velocity < 0.0:
        velocity = 0.0
    state[0], state[1] = position, velocity
    return -1.0, bool(position >= car.goal_position and velocity >= car.goal_velocity)


def mountain_car_parameters(env: MountainCarEnv) -> FloatArray:
    """Read the constants from an environment."""
    return np.array(constants(env, MountainCar._fields))


def mountain_car_resets(rng: np.random.Generator, n: int) -> FloatArray:
    """Return the states of the next n resets, shape (n, 2)."""
    return np.column_stack([rng.uniform(-0.6, -0.4, size=n), np.zeros(n)])


class Pendulum(NamedTuple):
    """Constants of Pendulum."""

    g: float
    m: float
    l: float  # noqa: E741
    dt: float
    max_torque: float
    max_speed: float
    two: float


@spliced
def pendulum_step(
    parameters: FloatArray, state: FloatArray, action: Float32Array
) -> tuple[float, bool]:
    """Advance ``state`` = (angle, velocity) by one step; returns reward and that it never ends."""
    p = parameters
    rod = Pendulum(p[0], p[1], p[2], p[3], p[4], p[5], p[6])
    angle, velocity = state[0], state[1]
    # In single precision, as in Gymnasium.
    torque = np.float32(min(max(action[0], -rod.max_torque), rod.max_torque))
    upright = ((angle + math.pi) % (2.0 * math.pi)) - math.pi
    effort = np.float32(np.float32(0.001) * np.float32(torque ** np.float32(rod.two)))
    cost = math.pow(upright, rod.two) + 0.1 * math.pow(velocity, rod.two) + np.float64(effort)
    push = np.float32(np.float32(3.0 / (rod.m * math.pow(rod.l, rod.two))) * torque)
    velocity = velocity + (3.0 * rod.g / (2.0 * rod.l) * math.sin(angle) + push) * rod.dt
    velocity = min(max(velocity, -rod.max_speed), rod.max_speed)
    state[0], state[1] = angle + velocity * rod.dt, velocity
    return -cost, False


@spliced
def pendulum_look(parameters: FloatArray, state: FloatArray, observation: FloatArray) -> None:
    """Write cosine and sine of the angle, and the velocity, in single precision."""
    observation[0] = np.float32(math.cos(state[0]))
    observation[1] = np.float32(math.sin(state[0]))
    observation[2] = np.float32(state[1])


def pendulum_parameters(env: PendulumEnv) -> FloatArray:
    """Read the constants from an environment."""
    return np.array([*constants(env, Pendulum._fields[:-1]), _TWO])


def pendulum_resets(rng: np.random.Generator, n: int) -> FloatArray:
    """Return the states of the next n resets, shape (n, 2)."""
    high = np.array([np.pi, 1.0])
    return rng.uniform(-high, high, size=(n, 2))


class Acrobot(NamedTuple):
    """Constants of Acrobot."""

    dt: float
    LINK_MASS_1: float
    LINK_MASS_2: float
    LINK_LENGTH_1: float
    LINK_COM_POS_1: float
    LINK_COM_POS_2: float
    LINK_MOI: float
    MAX_VEL_1: float
    MAX_VEL_2: float
    nips: float  # 1 for the equations of the paper, 0 for those of the book
    min_torque: float  # of action 0; each later one has 1 more
    two: float


_GRAVITY = 9.8


@spliced
def acrobot_step(parameters: FloatArray, state: FloatArray, action: int) -> tuple[float, bool]:
    """Advance ``state`` = two angles and two velocities by a Runge-Kutta step.

    Returns the reward, and whether the tip is high enough.
    """
    p = parameters
    arm = Acrobot(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11])
    m1, m2, l1 = arm.LINK_MASS_1, arm.LINK_MASS_2, arm.LINK_LENGTH_1
    c1, c2, inertia = arm.LINK_COM_POS_1, arm.LINK_COM_POS_2, arm.LINK_MOI
    torque = arm.min_torque + action
    first, second, speed1, speed2 = state[0], state[1], state[2], state[3]
    sum1, sum2, sum3, sum4 = 0.0, 0.0, 0.0, 0.0  # of k1 + 2 k2 + 2 k3 + k4
    d_first, d_second, d_speed1, d_speed2 = 0.0, 0.0, 0.0, 0.0
    for stage in range(4):
        ahead = arm.dt if stage == 3 else arm.dt / 2.0
        if stage == 0:
            ahead = 0.0
        a, b = first + ahead * d_first, second + ahead * d_second
        da, db = speed1 + ahead * d_speed1, speed2 + ahead * d_speed2
        cosine, sine = math.cos(b), math.sin(b)
        d1 = m1 * (c1 * c1) + m2 * (l1 * l1 + c2 * c2 + 2.0 * l1 * c2 * cosine) + inertia + inertia
        d2 = m2 * (c2 * c2 + l1 * c2 * cosine) + inertia
        phi2 = m2 * c2 * _GRAVITY * math.cos(a + b - math.pi / 2.0)
        phi1 = (
            -m2 * l1 * c2 * math.pow(db, arm.two) * sine
            - 2.0 * m2 * l1 * c2 * db * da * sine
            + (m1 * c1 + m2 * l1) * _GRAVITY * math.cos(a - math.pi / 2.0)
            + phi2
        )
        drive = torque + d2 / d1 * phi1
        if arm.nips == 0.0:
            drive -= m2 * l1 * c2 * math.pow(da, arm.two) * sine
        d_speed2 = (drive - phi2) / (m2 * (c2 * c2) + inertia - math.pow(d2, arm.two) / d1)
        d_speed1 = -(d2 * d_speed2 + phi1) / d1
        d_first, d_second = da, db
        weight = 1.0 if stage == 0 or stage == 3 else 2.0
        sum1, sum2 = sum1 + weight * d_first, sum2 + weight * d_second
        sum3, sum4 = sum3 + weight * d_speed1, sum4 + weight * d_speed2
    sixth = arm.dt / 6.0
    state[0] = _wrapped(first + sixth * sum1)
    state[1] = _wrapped(second + sixth * sum2)
    state[2] = min(max(speed1 + sixth * sum3, -arm.MAX_VEL_1), arm.MAX_VEL_1)
    state[3] = min(max(speed2 + sixth * sum4, -arm.MAX_VEL_2), arm.MAX_VEL_2)
    high = bool(-math.cos(state[0]) - math.cos(state[1] + state[0]) > 1.0)
    return 0.0 if high else -1.0, high


@spliced
def _wrapped(angle: float) -> float:
    turn = 2.0 * math.pi
    while angle > math.pi:
        angle -= turn
    while angle < -math.pi:
        angle += turn
    return angle


@spliced
def acrobot_look(parameters: FloatArray, state: FloatArray, observation: FloatArray) -> None:
    """Write cosines and sines of the angles, and the velocities, in single precision."""
    observation[0] = np.float32(math.cos(state[0]))
    observation[1] = np.float32(math.sin(state[0]))
    observation[2] = np.float32(math.cos(state[1]))
    observation[3] = np.float32(math.sin(state[1]))
    observation[4], observation[5] = np.float32(state[2]), np.float32(state[3])


def acrobot_parameters(env: AcrobotEnv) -> FloatArray:
    """Read the constants from an environment."""
    nips = float(env.book_or_nips == "nips")
    return np.array([*constants(env, Acrobot._fields[:9]), nips, env.AVAIL_TORQUE[0], _TWO])


def acrobot_resets(rng: np.random.Generator, n: int) -> FloatArray:
    """Return the states of the next n resets, shape (n, 4)."""
    return rng.uniform(-0.1, 0.1, size=(n, 4)).astype(np.float32).astype(np.float64)


def acrobot_first_observations(states: FloatArray) -> FloatArray:
    """Return the observations of resets to states, with cosines in single precision."""
    a, b, da, db = states.astype(np.float32).T
    columns = np.cos(a), np.sin(a), np.cos(b), np.sin(b), da, db
    return np.column_stack(columns).astype(np.float64)
