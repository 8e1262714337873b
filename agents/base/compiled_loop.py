"""Agent and environment in one compiled loop: for training, and for greedy episodes.

The loops call functions of the agent and of the environment by names of this module; each agent and
environment gets a compiled copy of the loop with its functions in their place.
"""

import hashlib
import marshal
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from oda_rl._compile import bound_copy, compiled, integer
from oda_rl._types import Array, FloatArray
from oda_rl.agents.base.state import EPISODE_END, UNIFORMS
from oda_rl.agents.policies.contract import InLoops
from oda_rl.envs.dynamics import Compiled


class Rule(NamedTuple):
    """Functions of an agent that are inlined into the loop."""

    name: str
    unpack: Callable[..., Any]  # (arrays, 0) to a NamedTuple with state, trajectory and more
    start: Callable[..., int]  # (agent, observation) to events: an episode begins or continues
    choose: Callable[..., int]  # (agent) to an action from 0; negative without random numbers
    learn: Callable[..., int]  # (agent, observation, reward, terminated, truncated) to events


def _unbound(*arguments: Any) -> Any:
    raise NotImplementedError


# Names that the copies replace; the sizes are constants there, so that loops are unrolled.
n_state = n_features = 0
unpack = start = choose = learn = decide = step = look = _unbound


def _train(
    environment: tuple[Any, ...], max_episode_steps: int, starts: FloatArray, budget: int,
    episodes: FloatArray, arrays: tuple[Any, ...],
) -> tuple[int, int, int]:  # fmt: skip
    """Train until the budget or the starts are used up, or an event needs attention.

    ``environment`` is that of :func:`environment_arrays`. ``starts``, (n, n_state + d), are states
    and observations to begin at; ``episodes`` takes (return, length, steps taken in this call).
    Returns events, the steps taken, and the number of episodes written.
    """
    parameters, choices, position, observation = environment
    agent = unpack(arrays, 0)
    state, env_state = agent.state, agent.trajectory.env_state
    events = taken = written = integer(0)
    ended = integer(EPISODE_END)
    while not events and taken != budget and written != starts.shape[0]:
        if ended:  # at first, too; one call, because each is compiled
            events = start(agent, observation)
            if events:
                break
        action = choose(agent)
        if action < 0:
            events = UNIFORMS
            break
        reward, terminated = step(parameters, position, choices[action])
        look(parameters, position, observation)
        taken += 1
        truncated = env_state.episode_length + 1 >= max_episode_steps
        events = learn(agent, observation, reward, terminated, truncated)
        ended = events & EPISODE_END
        if ended:
            events -= EPISODE_END
            episodes[written, 0] = state.last_return
            episodes[written, 1] = state.last_length
            episodes[written, 2] = taken
            for j in range(n_state):
                position[j] = starts[written, j]
            for j in range(n_features):
                observation[j] = starts[written, n_state + j]
            written += 1
    return events, taken, written


def _play(
    environment: tuple[Any, ...], max_episode_steps: int, starts: FloatArray, budget: int,
    floor: float, arrays: tuple[Any, ...], returns: FloatArray, seen: FloatArray,
) -> tuple[int, int, float]:  # fmt: skip
    """Play as :func:`play_from`; return finished episodes, steps, and the maximum reward."""
    parameters, choices, position, observation = environment
    taken, ended, greatest = 0, 0, -np.inf
    for episode in range(starts.shape[0]):
        for j in range(n_state):
            position[j] = starts[episode, j]
        for j in range(n_features):
            observation[j] = starts[episode, n_state + j]
        total = 0.0
        length = 0
        terminated = False
        while not terminated and length < max_episode_steps:
            if taken == budget:
                return ended, taken, greatest
            if taken < seen.shape[0]:
                for j in range(n_features):
                    seen[taken, j] = observation[j]
            action = decide(arrays, observation)
            reward, terminated = step(parameters, position, choices[action])
            look(parameters, position, observation)
            length += 1
            taken += 1
            total += reward
            greatest = max(greatest, reward)
            if total < floor:
                total = -np.inf
                break
        returns[episode] = total
        ended += 1
    return ended, taken, greatest


def train_loop(rule: Rule, environment: Compiled) -> Callable[..., tuple[int, int, int]]:
    """Return the compiled loop that trains an agent with a rule in an environment."""
    dynamics = environment.dynamics
    return _compile(_train, rule.name, dynamics.step, dynamics.look, environment.sizes, rule)


def is_compiled(loop: Any) -> bool:
    """Whether a loop has been compiled, by this process or by an earlier one."""
    kept = loop.stats.cache_path if hasattr(loop, "stats") else None  # none under NUMBA_DISABLE_JIT
    return kept is not None and any(Path(kept).glob(f"*{loop.__name__}-*.nbi"))


@cache
def _compile(
    loop: FunctionType, name: str, step: Callable[..., Any], look: Callable[..., Any],
    sizes: tuple[int, int, int], hooks: Rule | Callable[..., int],
) -> Callable[..., Any]:  # fmt: skip
    """Compile a loop with functions in place of their names.

    Compiled code is cached by the name of a function until this package changes, but a user's
    functions may change, too: so the name has a digest of their files.
    """
    names: dict[str, Any] = hooks._asdict() if isinstance(hooks, Rule) else {"decide": hooks}
    names |= {"step": step, "look": look, "n_state": sizes[0], "n_features": sizes[1]}
    sources = sorted({_source(part) for part in names.values() if callable(part)})
    digest = hashlib.sha256(b"".join(sources)).hexdigest()[:12]
    label = "_".join(["", name, step.__name__, *map(str, sizes), digest])
    bound: Callable[..., Any] = compiled(bound_copy(loop, label, **names))
    return bound


def _source(function: Any) -> bytes:
    """Return the file of a function, or its code if it has no file."""
    code = getattr(function, "py_func", function).__code__
    file = Path(code.co_filename)
    if not file.is_file():
        return marshal.dumps(code)
    return str(file).encode() + file.read_bytes()


def environment_arrays(environment: Compiled, observation: FloatArray) -> tuple[Any, ...]:
    """Return (parameters, choices, state, observation) for the loops."""
    point = np.array(observation, dtype=np.float64).ravel()
    return environment.dynamics.parameters, _choices(environment), environment.read_state(), point


def _choices(environment: Compiled) -> Array:
    """Return the actions in the order of their numbers."""
    if environment.choices is not None:
        return environment.choices
    return np.arange(environment.env.action_space.n)  # type: ignore[attr-defined]


def play_compiled(
    environment: Compiled, policy: InLoops, observation: FloatArray, n_episodes: int, budget: int
) -> FloatArray:
    """Return the returns of greedy episodes, the first from ``observation``; within the budget."""
    _, _, state, point = environment_arrays(environment, observation)
    later = environment.starts(environment.env.np_random, n_episodes - 1)
    starts = np.concatenate([np.concatenate([state, point])[None], later])
    return play_from(environment, policy, starts, budget).returns


class Played(NamedTuple):
    """Greedy episodes."""

    returns: FloatArray  # returns of finished episodes, shape (n,)
    steps: int  # steps taken, including those of an unfinished episode
    greatest: float  # maximum reward


def play_from(
    environment: Compiled, policy: InLoops, starts: FloatArray, budget: int = 2**62,
    seen: FloatArray | None = None, floor: float = -np.inf,
) -> Played:  # fmt: skip
    """Play an episode from each of the starts, as :meth:`Compiled.starts` returns them.

    The first m observations acted on are written to ``seen``, shape (m, d). An episode whose
    rewards add up to less than ``floor`` ends with return minus infinity.
    """
    dynamics, sizes = environment.dynamics, environment.sizes
    loop = _compile(_play, policy.kind, dynamics.step, dynamics.look, sizes, policy.decide)
    n_state, n_features, _ = sizes
    scratch = dynamics.parameters, _choices(environment), np.zeros(n_state), np.zeros(n_features)
    returns, room = np.empty(len(starts)), np.empty((0, n_features)) if seen is None else seen
    where = scratch, environment.max_episode_steps, starts, budget, floor
    ended, taken, greatest = loop(*where, policy.arrays, returns, room)
    return Played(returns[:ended], taken, greatest)
