"""Disturbed environments, and transformed observations.

Agents with their package defaults, and rules by hand, in disturbed cart-poles; policies are
evaluated in the environment as it was in the last step. Then agents in tasks whose observations are
transformed, beside the plain ones. Means are over 100 greedy episodes a seed; the seeds, from
51,200,000 on, chose no setting.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from common.experiment import Experiment, MethodSelection, chosen
from common.hand_rules import RULES
from common.learning import FITTED, HAND, MODEL, ONLINE, learn, play, side_by_side
from common.suite_tasks import TASKS, goal
from common.summaries import Column, Row, Rows, Table, among, count, of, the
from gymnasium.wrappers import StickyAction, TransformObservation

from oda_rl._types import FloatArray

EXPERIMENT = Experiment("benchmark_disturbed")
CARTPOLE = "CartPole-v1"
CHANGE = 5_000  # steps: physics drift until then; then actions are swapped
LATE_CHANGE = 20_000  # and so late where much is remembered
ONLINE_CHANGE = 100_000  # of the online agent, whose step sizes have fallen by then
AFTER = (0, 10_000, 20_000, 40_000)  # steps after that at which agents are looked at
DRIFT = 2.0, 1.0, 2.0, 0.7  # factors of the pole's length, gravity, the cart's mass, the force
STRETCH = 2.0, 2.0, 1.0, 1.0
METHODS = (MODEL, FITTED, HAND)
N_NOISE = 16
Env = gym.Env[Any, Any]
Wrap = Callable[[Env, int, np.random.Generator], Env]
"""Disturbs an environment as it is in a step, from 0; less than 0: it is to be learned in."""


class Late(gym.Wrapper[Any, Any, Any, Any]):
    """Take actions a step late; the first one is drawn."""

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        found = self.env.reset(**options)
        self._waiting = int(self.np_random.integers(2))
        return found

    def step(self, action: Any) -> Any:
        self._waiting, last = action, self._waiting
        return self.env.step(last)


class Changing(gym.Wrapper[Any, Any, Any, Any]):
    """A cart-pole that changes with the steps, completely after ``end`` of them.

    It stays as it is in ``steps``; if that is less than 0, it begins at 0, and they are counted.
    ``change`` is told of the environment, an action and how far things have come, from 0 to 1, and
    returns the action that is done.
    """

    def __init__(
        self, env: Env, steps: int, change: Callable[[Any, int, float], int], end: int = CHANGE
    ) -> None:
        super().__init__(env)
        self._counts, self._steps, self._change = steps < 0, max(steps, 0), change
        self._end = end

    def step(self, action: Any) -> Any:
        action = self._change(self.unwrapped, int(action), min(self._steps / self._end, 1.0))
        self._steps += self._counts
        return self.env.step(action)


def drift(cart: Any, action: int, share: float, factors: tuple[float, ...] = DRIFT) -> int:
    length, gravity, mass, force = (factor**share for factor in factors)
    cart.length, cart.gravity, cart.masscart = 0.5 * length, 9.8 * gravity, mass
    cart.force_mag = 10.0 * force
    cart.total_mass, cart.polemass_length = mass + cart.masspole, cart.masspole * cart.length
    return action


def swap(cart: Any, action: int, share: float) -> int:
    return 1 - action if share >= 1.0 else action


def changing(change: Callable[[Any, int, float], int], end: int = CHANGE) -> Wrap:
    return lambda env, steps, rng: Changing(env, steps, change, end)


def noisy(share: float) -> Wrap:
    """Add noise of a share of the components' deviations in random play."""

    def wrap(env: Env, steps: int, rng: np.random.Generator) -> Env:
        noise = share * deviations(env.unwrapped)
        return seen(env, lambda x: x + noise * env.np_random.normal(size=len(x)))

    return wrap


def deviations(env: Any) -> FloatArray:
    """Return the components' standard deviations in 2000 steps of random play."""
    rng = np.random.default_rng(0)
    observations = [env.reset(seed=0)[0]]
    while len(observations) < 2000:
        observation, _, terminated, *_ = env.step(int(rng.integers(env.action_space.n)))
        observations.append(env.reset()[0] if terminated else observation)
    return np.std(np.array(observations, dtype=np.float64), axis=0)


def seen(env: Env, function: Callable[[FloatArray], FloatArray], more: int = 0) -> Env:
    """Show a function of the observation, with ``more`` components, in double precision."""
    (d,) = env.observation_space.shape or ()
    box = gym.spaces.Box(-np.inf, np.inf, (d + more,), np.float64)
    return TransformObservation(env, lambda x: function(x.astype(np.float64)), box)


def rotated(env: Env, steps: int, rng: np.random.Generator) -> Env:
    """Turn standardised observations by an orthogonal matrix."""
    scale = deviations(env.unwrapped)
    turn = np.linalg.qr(rng.normal(size=(len(scale), len(scale))))[0]
    return seen(env, lambda x: turn @ (x / scale))


def mapped(env: Env, steps: int, rng: np.random.Generator) -> Env:
    """Map standardised observations by a matrix whose singular values are from 1 to 0.01."""
    scale = deviations(env.unwrapped)
    d = len(scale)
    one, other = np.linalg.qr(rng.normal(size=(2, d, d)))[0]
    matrix = one * np.logspace(0.0, -2.0, d) @ other
    return seen(env, lambda x: matrix @ (x / scale))


DISTURBED: dict[str, Wrap] = {
    "sticky actions, 25 %": lambda env, steps, rng: StickyAction(env, 0.25),
    "noise of 1 %": noisy(0.01),
    "noise of 10 %": noisy(0.1),
    "drifting physics": changing(drift),
    "actions a step late": lambda env, steps, rng: Late(env),
    "actions swapped after 5,000": changing(swap),
}
LATER: dict[str, Wrap] = {
    "actions swapped after 20,000": changing(swap, LATE_CHANGE),
    "actions swapped after 100,000": changing(swap, ONLINE_CHANGE),
    "other physics after 100,000": changing(
        lambda cart, action, share: drift(cart, action, float(share >= 1.0)), ONLINE_CHANGE
    ),
    "gravity, length doubled by 100,000": changing(partial(drift, factors=STRETCH), ONLINE_CHANGE),
}
TRANSFORMED: dict[str, Wrap] = {
    "plain": lambda env, steps, rng: env,
    "rotated": rotated,
    "mapped, condition 100": mapped,
    "rescaled by 1e3 and 1e-3": lambda env, steps, rng: seen(
        env, lambda x: np.resize([1e3, 1e-3], len(x)) * x
    ),
    "shifted by 100": lambda env, steps, rng: seen(env, lambda x: x + 100.0),
    f"{N_NOISE} components of noise": lambda env, steps, rng: seen(
        env, lambda x: np.r_[x, env.np_random.normal(size=N_NOISE)], N_NOISE
    ),
}
MOUNTAIN, ACROBOT = "MountainCar-v0", "Acrobot-v1"
TRANSFORMED_STEPS: dict[str, dict[str, tuple[int, ...]]] = {
    MODEL: {CARTPOLE: (500,), MOUNTAIN: (5_000,), ACROBOT: (5_000,)},
    FITTED: {CARTPOLE: (20_000, 50_000), ACROBOT: (100_000,)},
    ONLINE: {CARTPOLE: (50_000, 100_000)},
}
"""Steps after which agents with transformed observations are evaluated."""


def measure(method: str, task: str, world: str, seed: int) -> list[Row]:
    from oda_rl import agents

    wrap = (DISTURBED | LATER | TRANSFORMED)[world]

    def make(step: int) -> Env:
        return wrap(gym.make(task), step, np.random.default_rng(seed))

    checkpoints = checkpoints_of(method, task, world)
    if method == HAND:
        rows = [{**play(RULES[task], make(n - 1), seed), "steps": n} for n in checkpoints]
    else:
        agent = getattr(agents, method)(make(-1), seed=seed)
        rows = [*learn(agent, checkpoints, lambda n: side_by_side(
            agent.predict, lambda: make(n - 1), seed))]  # fmt: skip
    return [{**row, "solved": int(row["mean"] >= TASKS[task].solved)} for row in rows]


def checkpoints_of(method: str, task: str, world: str) -> tuple[int, ...]:
    if world in TRANSFORMED:
        return TRANSFORMED_STEPS[method][task]
    if world in LATER:
        change = LATE_CHANGE if method == FITTED else ONLINE_CHANGE
        return tuple(change + steps for steps in AFTER)
    return (CHANGE, 2 * CHANGE) if "swapped" in world else (CHANGE,)


def tables(rows: Rows) -> dict[str, Table]:
    transformed = Rows(row for row in rows if row["world"] in TRANSFORMED)
    world_and_steps = Column(CARTPOLE, the("world"), once=True), Column("steps", the("steps", ","))
    seconds = of(np.median, "seconds", ".2g")
    columns = [
        *world_and_steps,
        Column("seeds", lambda line: count(line.where(method=MODEL))),
        *(
            Column(name if name == HAND else f"`{name}`", among(Rows.mean_and_least, method=name))
            for name in METHODS
        ),
        Column("processor s", among(seconds, method=MODEL)),
    ]
    lines = [at for world in DISTURBED for at in rows.where(world=world).by_steps()]
    later = [
        *world_and_steps,
        Column("seeds", count),
        Column("share ≥ 450", partial(Rows.share_from, level=450.0)),
        Column("agent", lambda line: f"`{line[0]['method']}`"),
        Column("mean (min)", Rows.mean_and_least),
        Column("processor s", seconds),
    ]
    late = [at for world in LATER for at in rows.where(world=world).by_steps()]
    others = [
        Column("", lambda line: f"`{line[0]['method']}`", once=True),
        Column("solved", goal),
        Column("steps", the("steps", ",")),
        Column("seeds", Rows.count_seeds),
        *(
            Column(world, among(partial(Rows.solved_and_mean, digits=1), world=world))
            for world in TRANSFORMED
        ),
    ]
    tasks = [
        at
        for method, steps in TRANSFORMED_STEPS.items()
        for task in steps
        for at in transformed.where(method=method, task=task).by_steps()
    ]
    return {
        "disturbed": Table("mean return (minimum over seeds)", columns, lines),
        "changed": Table("mean return (minimum over seeds)", later, late),
        "transformed": Table("share of seeds solved (mean return)", others, tasks),
    }


@dataclass(frozen=True)
class Options(MethodSelection):
    tasks: tuple[str, ...] = ()  # Ids of environments with transformed observations.


def settings(options: Options) -> list[Row]:
    worlds = chosen(options.only, [*DISTURBED, *LATER, *TRANSFORMED])
    methods = chosen(options.methods, [*METHODS, ONLINE])
    tasks = chosen(options.tasks, TRANSFORMED_STEPS[MODEL])
    kinds = [(CARTPOLE, world, method) for world in DISTURBED for method in METHODS]
    kinds += [(CARTPOLE, world, ONLINE if "100,000" in world else FITTED) for world in LATER]
    kinds += [
        (task, world, method)
        for method, steps in TRANSFORMED_STEPS.items()
        for task in steps
        if task in tasks
        for world in TRANSFORMED
    ]
    return [
        {"method": method, "task": task, "world": world, "seed": seed}
        for task, world, method in kinds
        if world in worlds and method in methods
        for seed in EXPERIMENT.seeds(options)
    ]
