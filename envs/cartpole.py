"""The cart-pole of 1983, with friction: compiled dynamics and a Gymnasium Env."""

import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium import logger, spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from oda_rl._compile import spliced
from oda_rl._types import Float32Array, FloatArray

MAX_EPISODE_STEPS = 1000
CART_FRICTION = 0.0005
POLE_FRICTION = 0.000002
# An upper bound: speed v at acceleration a takes a distance of v²/2a, and there are 4.8 m
# (a < 11 m/s²) and 24° (a < 20 rad/s²).
MAX_SPEED = 20.0


class CartPole(NamedTuple):
    """Constants of a cart-pole; products are as Gymnasium's CartPole stores them."""

    gravity: float
    total_mass: float
    masspole: float
    length: float
    polemass_length: float
    force_mag: float
    tau: float
    friction_cart: float
    friction_pole: float
    x_threshold: float
    theta_threshold_radians: float
    semi_implicit: float
    step_reward: float
    failure_reward: float


def cartpole_parameters(env: CartPoleEnv) -> FloatArray:
    """Read :class:`CartPole` from an environment, shape (14,); Gymnasium's has no friction."""
    sutton = env._sutton_barto_reward
    return np.array([
        *(float(getattr(env, name, 0.0)) for name in CartPole._fields[:11]),
        float(env.kinematics_integrator != "euler"),
        0.0 if sutton else 1.0, -1.0 if sutton else 1.0,
    ])  # fmt: skip


@spliced
def cartpole_step(parameters: FloatArray, state: FloatArray, action: int) -> tuple[float, bool]:
    """Advance ``state`` = (x, x_dot, theta, theta_dot) in place; return reward and failure.

    The operations are in the order of Gymnasium's CartPole, so that results without friction agree
    to the last bit.
    """
    p = parameters
    pole = CartPole(
        p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11], p[12], p[13]
    )
    x, x_dot, theta, theta_dot = state[0], state[1], state[2], state[3]
    force = pole.force_mag if action == 1 else -pole.force_mag
    cos_theta = math.cos(theta)
    sin_theta = math.sin(theta)
    direction = 0.0
    if x_dot > 0.0:
        direction = 1.0
    elif x_dot < 0.0:
        direction = -1.0
    push = (
        force
        + pole.polemass_length * (theta_dot * theta_dot) * sin_theta
        - pole.friction_cart * direction
    ) / pole.total_mass
    hinge = pole.friction_pole * theta_dot / pole.polemass_length
    theta_acc = (pole.gravity * sin_theta - cos_theta * push - hinge) / (
        pole.length * (4.0 / 3.0 - pole.masspole * (cos_theta * cos_theta) / pole.total_mass)
    )
    x_acc = push - pole.polemass_length * theta_acc * cos_theta / pole.total_mass
    state[1], state[3] = x_dot + pole.tau * x_acc, theta_dot + pole.tau * theta_acc
    if pole.semi_implicit != 0.0:
        x_dot, theta_dot = state[1], state[3]
    x, theta = x + pole.tau * x_dot, theta + pole.tau * theta_dot
    state[0], state[2] = x, theta
    # Not a conditional expression: compiled, that takes half as long again.
    reward = pole.step_reward
    failed = bool((abs(x) > pole.x_threshold) | (abs(theta) > pole.theta_threshold_radians))
    if failed:
        reward = pole.failure_reward
    return reward, failed


@spliced
def look(parameters: FloatArray, state: FloatArray, observation: FloatArray) -> None:
    """Write the state in single precision."""
    for j in range(state.shape[0]):
        observation[j] = np.float32(state[j])


def cartpole_resets(rng: np.random.Generator, n: int) -> FloatArray:
    """Return the states of the next n resets, shape (n, 4)."""
    return rng.uniform(-0.05, 0.05, size=(n, 4))


class BartoCartPoleEnv(CartPoleEnv):
    """The cart-pole of Barto, Sutton and Anderson (1983), with friction in track and hinge.

    ## Description

    A pole stands on a cart that moves along a bounded track; the agent pushes the cart left or
    right at every step and keeps the pole up for as long as it can. Gymnasium's ``CartPole`` is the
    same system without friction.

    With sgn(0) = 0 and F = ±10 N,

        θ̈ = [g sin θ + cos θ (−F − m l θ̇² sin θ + μ_c sgn ẋ) / (m_c + m) − μ_p θ̇ / (m l)]
             / [l (4/3 − m cos² θ / (m_c + m))]
        ẍ = [F + m l (θ̇² sin θ − θ̈ cos θ) − μ_c sgn ẋ] / (m_c + m)

    integrated by Euler's explicit method with the time step τ.

    | Constant                        | Attribute           | Value      |
    |---------------------------------|---------------------|------------|
    | gravity g                       | ``gravity``         | 9.8 m/s²   |
    | mass of the cart m_c            | ``masscart``        | 1.0 kg     |
    | mass of the pole m              | ``masspole``        | 0.1 kg     |
    | half the pole's length l        | ``length``          | 0.5 m      |
    | friction of cart on track μ_c   | ``friction_cart``   | 0.0005     |
    | friction of pole on cart μ_p    | ``friction_pole``   | 0.000002   |
    | force                           | ``force_mag``       | 10 N       |
    | time step τ                     | ``tau``             | 0.02 s     |

    ## Action Space

    ``Discrete(2)``: 0 pushes the cart to the left, 1 to the right.

    ## Observation Space

    ``Box`` of shape (4,), float32. ``env.unwrapped.state`` is the same state in float64.

    | Num | Observation           | Min              | Max             | Unit  |
    |-----|-----------------------|------------------|-----------------|-------|
    | 0   | cart position x       | -4.8             | 4.8             | m     |
    | 1   | cart velocity ẋ       | -20              | 20              | m/s   |
    | 2   | pole angle θ          | -0.418 (-24°)    | 0.418 (24°)     | rad   |
    | 3   | pole angular velocity | -20              | 20              | rad/s |

    The bounds of position and angle are twice the thresholds of failure, to contain the failing
    observation; those of the velocities cannot be reached.

    ## Rewards

    +1 for every step, the failing one included.

    ## Starting State

    Each component is uniform in (-0.05, 0.05). ``reset(options={"low": a, "high": b})`` changes it.

    ## Episode End

    1. Termination: abs(x) > 2.4 m.
    2. Termination: abs(θ) > 12°.
    3. Truncation: 1000 steps (by the ``TimeLimit`` of ``gymnasium.make``).

    ## Arguments

    ``render_mode`` (None, ``"rgb_array"`` or ``"human"``; the last two need pygame:
    ``pip install oda-rl[render]``), ``friction_cart`` and ``friction_pole`` (finite, at least 0;
    with both 0 the dynamics are those of Gymnasium's ``CartPole``).

    ```python
    >>> import gymnasium as gym
    >>> import oda_rl.envs
    >>> env = gym.make("oda_rl/BartoCartPole-v0")
    >>> observation, info = env.reset(seed=0)
    >>> observation, reward, terminated, truncated, info = env.step(1)
    >>> reward, terminated, truncated
    (1.0, False, False)

    ```

    ## References

    A. G. Barto, R. S. Sutton, C. W. Anderson, "Neuronlike adaptive elements that can solve
    difficult learning control problems", IEEE Transactions on Systems, Man, and Cybernetics 13
    (1983), 834-846, appendix.
    """

    steps_beyond_terminated: int | None  # type: ignore[assignment]

    def __init__(
        self,
        render_mode: str | None = None,
        friction_cart: float = CART_FRICTION,
        friction_pole: float = POLE_FRICTION,
    ) -> None:
        super().__init__(render_mode=render_mode)
        self.friction_cart, self.friction_pole = friction_cart, friction_pole
        for name in ("friction_cart", "friction_pole"):
            if not 0.0 <= (value := getattr(self, name)) < math.inf:
                raise ValueError(f"{name} is {value!r}: it must be finite and at least 0")
        high = [2.0 * self.x_threshold, MAX_SPEED, 2.0 * self.theta_threshold_radians, MAX_SPEED]
        bound = np.array(high, dtype=np.float32)
        self.observation_space = spaces.Box(-bound, bound, dtype=np.float32)

    def step(self, action: Any) -> tuple[Float32Array, float, bool, bool, dict[str, Any]]:
        """Push the cart to the left (0) or right (1)."""
        if not self.action_space.contains(action):
            raise ValueError(f"action is {action!r}: it must be 0 (left) or 1 (right)")
        if self.state is None:
            raise RuntimeError("step was called before reset: call env.reset() first")
        state = np.array(self.state, dtype=np.float64)
        terminated = cartpole_step(cartpole_parameters(self), state, int(action))[1]
        self.state = state
        reward = 1.0
        if self.steps_beyond_terminated is not None:
            if self.steps_beyond_terminated == 0:
                logger.warn(
                    "step() was called after an episode had terminated: call reset() first; "
                    "what further steps do is undefined."
                )
            self.steps_beyond_terminated += 1
            reward = 0.0
        elif terminated:
            self.steps_beyond_terminated = 0
        if self.render_mode == "human":
            self.render()  # type: ignore[no-untyped-call]
        return state.astype(np.float32), reward, terminated, False, {}
