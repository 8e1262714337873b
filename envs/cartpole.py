"""The cart-pole of 1983, with friction: compiled dynamics, a Gymnasium Env, a VectorEnv."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import logger, spaces
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.vector.utils import batch_space

from oda_rl._compile import allocating, spliced
from oda_rl._types import BoolArray, Float32Array, FloatArray, IntArray

MAX_EPISODE_STEPS = 1000
CART_FRICTION = 0.0005
POLE_FRICTION = 0.000002
# No play that starts within the reset's bounds gets faster: to gain speed v at acceleration a takes
# v²/2a of way, and there are 4.8 m (a < 11 m/s²) and 24° (a < 20 rad/s²).
MAX_SPEED = 20.0


# Slots of the parameter vector that the compiled dynamics read. Total mass and the product of pole
# mass and length are slots of their own because Gymnasium's CartPole stores them so.
(
    GRAVITY,
    TOTAL_MASS,
    POLE_MASS,
    HALF_LENGTH,
    POLE_MASS_LENGTH,
    FORCE,
    TIME_STEP,
    FRICTION_CART,
    FRICTION_POLE,
    X_THRESHOLD,
    THETA_THRESHOLD,
    SEMI_IMPLICIT,
    STEP_REWARD,
    FAILURE_REWARD,
) = range(14)


def cartpole_parameters(env: CartPoleEnv | CartPoleVectorEnv) -> FloatArray:
    """Read a cart-pole's constants, shape (14,), from the environment object.

    Gymnasium's CartPole has no friction: its two friction slots are 0.
    """
    sutton = env._sutton_barto_reward
    return np.array(
        [
            env.gravity,
            env.total_mass,
            env.masspole,
            env.length,
            env.polemass_length,
            env.force_mag,
            env.tau,
            getattr(env, "friction_cart", 0.0),
            getattr(env, "friction_pole", 0.0),
            env.x_threshold,
            env.theta_threshold_radians,
            float(env.kinematics_integrator != "euler"),
            0.0 if sutton else 1.0,
            -1.0 if sutton else 1.0,
        ]
    )


@spliced
def cartpole_step(parameters: FloatArray, state: FloatArray, action: int) -> tuple[float, bool]:
    """Advance ``state`` = (x, x_dot, theta, theta_dot) in place by one time step.

    The operations stand in the order in which Gymnasium's CartPole has them, so that without
    friction the results agree to the last bit. Returns the reward, and whether the cart-pole has
    failed.
    """
    x, x_dot, theta, theta_dot = state[0], state[1], state[2], state[3]
    force = parameters[FORCE] if action == 1 else -parameters[FORCE]
    cos_theta = math.cos(theta)
    sin_theta = math.sin(theta)
    direction = 0.0
    if x_dot > 0.0:
        direction = 1.0
    elif x_dot < 0.0:
        direction = -1.0
    total_mass = parameters[TOTAL_MASS]
    pole_mass_length = parameters[POLE_MASS_LENGTH]
    push = (
        force
        + pole_mass_length * (theta_dot * theta_dot) * sin_theta
        - parameters[FRICTION_CART] * direction
    ) / total_mass
    hinge = parameters[FRICTION_POLE] * theta_dot / pole_mass_length
    theta_acc = (parameters[GRAVITY] * sin_theta - cos_theta * push - hinge) / (
        parameters[HALF_LENGTH]
        * (4.0 / 3.0 - parameters[POLE_MASS] * (cos_theta * cos_theta) / total_mass)
    )
    x_acc = push - pole_mass_length * theta_acc * cos_theta / total_mass
    tau = parameters[TIME_STEP]
    state[1], state[3] = x_dot + tau * x_acc, theta_dot + tau * theta_acc
    if parameters[SEMI_IMPLICIT] != 0.0:
        x_dot, theta_dot = state[1], state[3]
    x, theta = x + tau * x_dot, theta + tau * theta_dot
    state[0], state[2] = x, theta
    x_limit = parameters[X_THRESHOLD]
    theta_limit = parameters[THETA_THRESHOLD]
    # Not a conditional expression: compiled, that takes half as long again.
    reward = parameters[STEP_REWARD]
    failed = bool((abs(x) > x_limit) | (abs(theta) > theta_limit))
    if failed:
        reward = parameters[FAILURE_REWARD]
    return reward, failed


@spliced
def look(parameters: FloatArray, state: FloatArray, observation: FloatArray) -> None:
    """Write the state in single precision."""
    for j in range(4):
        observation[j] = np.float32(state[j])


@allocating
def cartpole_step_batch(
    parameters: FloatArray,
    states: FloatArray,
    actions: IntArray,
    terminated: BoolArray,
) -> None:
    """Advance every column of ``states``, shape (4, n), in place; ``terminated`` has shape (n,)."""
    state = np.empty(4)
    for i in range(actions.shape[0]):
        for j in range(4):
            state[j] = states[j, i]
        terminated[i] = cartpole_step(parameters, state, actions[i])[1]
        for j in range(4):
            states[j, i] = state[j]


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

    The bounds of position and angle are twice the thresholds of failure, so that the failing
    observation is inside; those of the velocities are beyond what can be reached.

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
    >>> gym.make_vec("oda_rl/BartoCartPole-v0", num_envs=3).single_action_space
    Discrete(2)

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
        self.observation_space = _observation_space(self)
        self.friction_cart = _friction("friction_cart", friction_cart)
        self.friction_pole = _friction("friction_pole", friction_pole)

    def step(self, action: Any) -> tuple[Float32Array, float, bool, bool, dict[str, Any]]:
        """Push the cart; see the class for what comes back."""
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


class BartoCartPoleVectorEnv(CartPoleVectorEnv):
    """Many copies of :class:`BartoCartPoleEnv` in one compiled step.

    Autoreset is Gymnasium's ``NEXT_STEP``: the step after an episode's last ignores its action,
    resets that copy and returns its first observation with reward 0.

    Parameters
    ----------
    num_envs : int
        Number of copies.
    max_episode_steps : int
        Steps after which an episode is truncated.
    render_mode : {None, "rgb_array"}
        ``render()`` returns one image of shape (400, 600, 3) a copy.
    friction_cart, friction_pole : float
        As in :class:`BartoCartPoleEnv`.

    Examples
    --------
    >>> import gymnasium, numpy, oda_rl.envs
    >>> envs = gymnasium.make_vec("oda_rl/BartoCartPole-v0", num_envs=5)
    >>> observations, infos = envs.reset(seed=0)
    >>> envs.step(numpy.ones(5, dtype=int))[0].shape
    (5, 4)
    """

    def __init__(
        self,
        num_envs: int = 1,
        max_episode_steps: int = MAX_EPISODE_STEPS,
        render_mode: str | None = None,
        friction_cart: float = CART_FRICTION,
        friction_pole: float = POLE_FRICTION,
    ) -> None:
        super().__init__(num_envs, max_episode_steps, render_mode)
        self.single_observation_space = _observation_space(self)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.friction_cart = _friction("friction_cart", friction_cart)
        self.friction_pole = _friction("friction_pole", friction_pole)

    def step(
        self, action: npt.NDArray[np.integer[Any]]
    ) -> tuple[
        Float32Array,
        Float32Array,
        BoolArray,
        BoolArray,
        dict[str, Any],
    ]:
        """Step every copy; ``action`` has shape (num_envs,)."""
        if not self.action_space.contains(action):
            raise ValueError(
                f"action is {action!r}: it must be {self.num_envs} integers, each 0 or 1"
            )
        if self.state is None:
            raise RuntimeError("step was called before reset: call envs.reset() first")
        # A new array: what was returned before must not change.
        self.state = np.array(self.state, dtype=np.float64)
        terminated = np.empty(self.num_envs, dtype=np.bool_)
        cartpole_step_batch(
            cartpole_parameters(self),
            self.state,
            np.ascontiguousarray(action, dtype=np.int64),
            terminated,
        )
        self.steps += 1
        truncated = self.steps >= self.max_episode_steps
        reward = np.ones(self.num_envs, dtype=np.float32)
        done = self.prev_done
        if done.any():
            self.state[:, done] = self.np_random.uniform(
                self.low, self.high, size=(4, int(done.sum()))
            )
            self.steps[done] = 0
            reward[done] = 0.0
            terminated[done] = False
            truncated[done] = False
        self.prev_done = terminated | truncated
        return self.state.T.astype(np.float32), reward, terminated, truncated, {}


def _observation_space(env: CartPoleEnv | CartPoleVectorEnv) -> spaces.Box:
    high = np.array(
        [2.0 * env.x_threshold, MAX_SPEED, 2.0 * env.theta_threshold_radians, MAX_SPEED],
        dtype=np.float32,
    )
    return spaces.Box(-high, high, dtype=np.float32)


def _friction(name: str, value: float) -> float:
    if not (math.isfinite(value) and value >= 0.0):
        raise ValueError(f"{name} is {value!r}: it must be finite and at least 0")
    return float(value)
