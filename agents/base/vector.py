"""Training in vector environments of Gymnasium, which are reset by themselves."""

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv

from oda_rl.agents.base.course import Course
from oda_rl.agents.base.engine import Engine
from oda_rl.agents.base.lanes import VectorStep
from oda_rl.agents.base.loops import STEPS_PER_REPORT, Progress
from oda_rl.agents.environments.spaces import Interface, plain

_NO_EPISODE = np.empty((0, 2))


class Resets:
    """Tells apart steps and resets of environments that are reset by themselves.

    Parameters
    ----------
    env : gymnasium.vector.VectorEnv
        With ``metadata["autoreset_mode"]``; without, it is taken to reset at the next step, as
        Gymnasium's own do.
    interface : Interface
        Of its environments.

    Raises
    ------
    ValueError
        If the mode is ``AutoresetMode.DISABLED``.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], interface: Interface) -> None:
        self._interface = interface
        mode = (env.metadata or {}).get("autoreset_mode", AutoresetMode.NEXT_STEP)
        if mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
            raise ValueError(
                f"env has the autoreset mode {mode}: it must be AutoresetMode.NEXT_STEP or "
                "SAME_STEP, so that episodes begin by themselves"
            )
        self._same_step = mode == AutoresetMode.SAME_STEP
        self._over = np.zeros(env.num_envs, dtype=np.bool_)
        self._acted = ~self._over

    def step(
        self,
        observations: Any,
        rewards: Any,
        terminated: Any,
        truncated: Any,
        infos: dict[str, Any],
    ) -> VectorStep:
        """Return what ``env.step`` returned as compiled code takes it."""
        ends, cuts = np.asarray(terminated, dtype=np.bool_), np.asarray(truncated, dtype=np.bool_)
        points = after = matrix(observations, self._interface)
        over, made = ends | cuts, self._acted
        if self._same_step:
            if over.any():
                after = points.copy()
                for lane in np.flatnonzero(over):
                    final = infos["final_obs"][lane]
                    after[lane] = self._interface.flatten("final_obs", final)
            acts, begins = made, over
        else:
            begins, self._over = self._over, over
            acts = self._acted = ~over
        gains = np.asarray(rewards, dtype=np.float64)
        return VectorStep(after, points, gains, ends, cuts, made, acts, begins)


def first_step(observations: Any, interface: Interface) -> VectorStep:
    """Return the beginning of episodes in all environments as a step that none has made."""
    points = matrix(observations, interface)
    n = len(points)
    no = np.zeros(n, dtype=np.bool_)
    return VectorStep(points, points, np.zeros(n), no, no, learns=no, acts=~no, begins=~no)


def matrix(observations: Any, interface: Interface) -> npt.NDArray[Any]:
    """Return the observations of n environments, of float32 or float64, in shape (n, d)."""
    if interface.native is not None and not interface.native.sees_vectors:
        observations = interface.native.points(observations)[0]
    array = np.asarray(observations)
    if array.shape[1:] != interface.observation_shape or array.ndim == 0:
        raise ValueError(
            f"the environments' observations have shape {array.shape}: it must be (n, "
            f"{', '.join(map(str, interface.observation_shape))})"
        )
    return plain(array).reshape(len(array), -1)


def train_vector(engine: Engine, env: VectorEnv[Any, Any, Any], course: Course) -> Progress:
    """Train in several environments at once, from what their reset returned.

    In whole steps of them all, so that there may be some more than asked for; a reset is no step.
    """
    resets, begun = Resets(env, engine.interface), engine.state.steps - course.steps
    engine.set_lanes(env.num_envs)
    first_action = engine.interface.first_action
    actions, _ = engine.advance(first_step(course.observation, engine.interface))
    steps = last = course.steps
    total, interrupt = course.total, course.interrupt
    stop, blocks = course.stop(STEPS_PER_REPORT), [_NO_EPISODE]
    moments: list[int] = []
    while steps < total:
        step = resets.step(*env.step(first_action + actions))
        if steps + np.count_nonzero(step.learns) >= total:
            step = step._replace(acts=np.zeros_like(step.acts))
        actions, ended = engine.advance(step)
        steps = engine.state.steps - begun
        if len(ended):
            blocks.append(ended)
            moments += [steps - last] * len(ended)
        if interrupt.requested or steps >= stop or (course.one_by_one and len(ended)):
            course.at(steps, None)
            yield steps, np.column_stack([np.concatenate(blocks), moments])
            blocks, moments = [_NO_EPISODE], []
            last, stop = steps, course.stop(STEPS_PER_REPORT)
