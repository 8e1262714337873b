"""Fitted Q-iteration from logged transitions alone: what they cannot say is not believed.

While an agent plays, an action that it has not tried is worth the best return seen, so that it
will be tried. From a log nothing more can be tried. Here such an action is worth the least that
rewards allow, and one that was taken much more seldom in a cell than another is barred there, as
by Fujimoto et al. The most cautious fit, the clone, does what was done most often; its cells lie in
a metric that is learned for the actions. It is what is delivered unless another is surely better:

- where a world that is learned from the log is believed, also what an agent learns in that world
  may be delivered (:mod:`oda_rl.agents.fitted.imagined`), and all are judged there;
- elsewhere fits that are less cautious compete, and are judged by the lower bounds of
  :func:`estimate`.

:func:`estimate` fits the values of one policy. In a cell there are two actions then, the policy's
and all others, and only the first is believed to go on. Fits to episodes drawn again, with
replacement, say how sure that is; where the log does not show what the policy does, values are the
least or the greatest that rewards allow: the one makes the lower bound, the other the upper one.

References
----------
S. Fujimoto, D. Meger, D. Precup, "Off-policy deep reinforcement learning without exploration",
ICML 2019.
P. Rashidinejad, B. Zhu, C. Ma, J. Jiao, S. Russell, "Bridging offline reinforcement learning and
imitation learning: a tale of pessimism", NeurIPS 2021.
R. Laroche, P. Trichelair, R. Tachet des Combes, "Safe policy improvement with baseline
bootstrapping", ICML 2019.
B. Hao, X. Ji, Y. Duan, H. Lu, C. Szepesvári, M. Wang, "Bootstrapping fitted Q-evaluation for
off-policy inference", ICML 2021.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from oda_rl._types import BoolArray, FloatArray, IntArray
from oda_rl.agents.base.memory import ACTION, GOES_ON, MARK, REWARD
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.fitted.behaviour import Behaviour, metric_of_actions, shares_of
from oda_rl.agents.fitted.imagined import Imagining, believed_world
from oda_rl.agents.fitting.action_codevectors import label
from oda_rl.agents.fitting.delivery import Fit, Places, averaged_metric, policy_of
from oda_rl.agents.fitting.one_piece import iterate
from oda_rl.agents.fitting.placement import Assigned, Cells, Experience, assign, place_cells
from oda_rl.agents.fitting.regression import Belief
from oda_rl.agents.fitting.settings import FittedQConfig
from oda_rl.agents.policies.cells import CellPolicy, CodevectorPolicy

_FITS = 3  # one after the other, each in the metric of those before
_SWEEPS = 300  # of an estimate: nothing is known to begin with
_REPLICATES = 20
_REPLICATES_OF_RIVALS = 3
_ERRORS = 2.0  # standard errors in an interval
_UNKNOWN = 1.0  # weight of what is believed of a policy's unseen actions, in transitions


class Caution(NamedTuple):
    """How little is believed."""

    cells_per_root: float
    """There are so many cells for each square root of the number of steps."""
    share: float
    """An action is barred where it was taken less often than this share of the most frequent."""
    weight: float
    """Of the belief that an action is worth the least, in transitions."""
    of_actions: float
    """Share of the metric of the actions that were taken in that of the cells, beside values'."""


CLONES = (Caution(4.0, 1.0, 0.3, 1.0), Caution(4.0, 1.0, 0.3, 0.5))
BOLDER = (Caution(4.0, 0.6, 0.3, 0.0), Caution(4.0, 0.1, 3.0, 0.0))


class Estimate(NamedTuple):
    """What a policy would return, as logged transitions tell: discounted, from where they began."""

    mean: float
    """Midway between what is most and what is least believed."""
    low: float
    """Lower bound of the interval."""
    high: float
    """Upper bound."""
    discount: float
    """Discount factor of the return, which goes on beyond limits of time."""


def fit_logged(
    seen: Experience,
    interface: Interface,
    config: FittedQConfig,
    rng: np.random.Generator,
    begin: Callable[..., Imagining],
) -> Fit:
    """Fit to trajectories: the clone of who has taken them, or what is surely better.

    ``begin`` makes the engine that learns in a world: of interface, settings and three generators.
    """
    of_actions = metric_of_actions(seen, config, rng)
    fits = [fit_cautiously(seen, caution, of_actions, config, rng) for caution in CLONES]
    bounds = bounds_of(seen.steps, config.discount)
    behaviour = Behaviour.of(seen, of_actions, config, rng)
    world = believed_world(seen, interface, behaviour, bounds, config.discount, rng)
    seed = rng.bit_generator.random_raw() >> 1
    if world is None:
        fits += [fit_cautiously(seen, caution, of_actions, config, rng) for caution in BOLDER]
        found = [
            estimate(seen, one.policy, fits[0].metric, config, np.random.default_rng(seed), True)
            for one in fits
        ]
        gains = [one.low - found[0].low for one in found]
    else:
        engine = begin(interface, config, *np.random.default_rng(seed).spawn(3))
        world.learn(engine, rng)
        assert engine.scale is not None  # it has been fitted there
        fits.append(Fit(engine.policy, np.empty(0), engine.metric, engine.scale))
        returns = [world.returns(one.policy, np.random.default_rng(seed)) for one in fits]
        gains = [_surely(one - returns[0]) for one in returns]  # of the first 0
    return fits[int(np.argmax(gains))]  # the first where none is greater than 0


def _surely(gains: FloatArray) -> float:
    """Return a lower bound of a mean."""
    return float(gains.mean() - _ERRORS * gains.std() / np.sqrt(len(gains)))


def fit_cautiously(
    seen: Experience,
    caution: Caution,
    of_actions: FloatArray | None,
    config: FittedQConfig,
    rng: np.random.Generator,
) -> Fit:
    """Fit cells and models to trajectories, and believe no more than ``caution`` allows."""
    own = replace(config, cells_per_root=caution.cells_per_root)
    low, high = bounds_of(seen.steps, config.discount)
    learned, found = None, None
    for _ in range(1 if caution.of_actions == 1.0 else _FITS):
        at = place_cells(seen, _mixed(learned, of_actions, caution.of_actions), own, rng)
        rows, parts = assign(seen, at)
        shares = shares_of(rows, len(at.codevectors), seen.n_actions)
        missing = 1.0 - shares / caution.share if caution.share > 0.0 else 0.0 * shares
        barred = ((high - low) or 1.0) * np.maximum(missing, 0.0)
        belief = Belief(low, high, low, caution.weight, barred)
        done = iterate(rows, at, None, belief, seen.n_actions, config.first_sweeps, own)
        learned = averaged_metric(seen, rows, at, done, learned, rng)
        found = Fit(policy_of(at, Places.of(at), parts, done), done.values, learned, at.units.scale)
    assert found is not None
    return found


def _mixed(
    learned: FloatArray | None, of_actions: FloatArray | None, share: float
) -> FloatArray | None:
    """Return a metric of values and of actions, of which the latter has a share."""
    if of_actions is None or share == 0.0:
        return learned
    return of_actions if learned is None else share * of_actions + (1.0 - share) * learned


def bounds_of(steps: FloatArray, discount: float) -> tuple[float, float]:
    """Least and greatest discounted return that the rewards of steps allow."""
    rewards = steps[steps[:, MARK] == GOES_ON, REWARD]
    low, high = min(0.0, float(rewards.min())), max(0.0, float(rewards.max()))
    return low / (1.0 - discount), high / (1.0 - discount)


def estimate(
    seen: Experience,
    policy: CellPolicy,
    learned: FloatArray | None,
    config: FittedQConfig,
    rng: np.random.Generator,
    roughly: bool = False,
) -> Estimate:
    """Estimate the discounted return of a policy from where episodes began, and how sure that is.

    Parameters
    ----------
    seen : Experience
        The trajectories.
    policy : CellPolicy
    learned : ndarray, shape (d, d), or None
        The metric of the cells that values are fitted in.
    config : FittedQConfig
    rng : numpy.random.Generator
        Places cells, and draws episodes.
    roughly : bool
        Whether few replicates, and the lower bound, will do.
    """
    ends = np.flatnonzero(seen.steps[:, MARK] != GOES_ON) + 1
    begins = np.concatenate([[0], ends[:-1]])
    steps = seen.steps.copy()
    steps[:, ACTION] = ~_agrees(seen, policy)
    told = seen._replace(steps=steps, n_actions=2, taken=None)
    low, high = bounds_of(steps, config.discount)
    least: list[float] = []
    most: list[float] = []
    for i in range(_REPLICATES_OF_RIVALS if roughly else _REPLICATES):
        drawn = rng.integers(len(ends), size=len(ends)) if i else np.arange(len(ends))
        rows = np.concatenate([np.arange(begins[k], ends[k]) for k in drawn])
        lengths = (ends - begins)[drawn]
        starts = np.cumsum(lengths) - lengths
        again = told._replace(observations=seen.observations[rows], steps=steps[rows])
        at = place_cells(again, learned, config, rng)
        assigned, _ = assign(again, at)
        for prior, values in ((low, least), (high, most)):
            if not (roughly and values is most):
                values.append(_mean_value(assigned, at, starts, (low, high, prior), config))
    lower, upper = np.array(least), np.array(most or least)
    return Estimate(
        float(0.5 * (lower.mean() + upper.mean())),
        max(low, float(lower.mean() - _ERRORS * lower.std())),
        min(high, float(upper.mean() + _ERRORS * upper.std())),
        config.discount,
    )


def _agrees(seen: Experience, policy: CellPolicy) -> BoolArray:
    """Whether the policy does what was done, for each row."""
    chosen = policy.choices(seen.observations)
    if seen.taken is None or not isinstance(policy, CodevectorPolicy):
        return np.asarray(seen.steps[:, ACTION] == chosen)
    cells = policy.cells(seen.observations)[:, None].astype(np.uint16)
    labels = np.zeros(cells.shape, dtype=np.int16)
    label(seen.taken.actions, cells, policy.parts, labels)
    return np.asarray(labels[:, 0] == chosen)


def _mean_value(
    rows: Assigned,
    at: Cells,
    starts: IntArray,
    bounds: tuple[float, float, float],
    config: FittedQConfig,
) -> float:
    """Return the mean value of states by a policy whose actions have the number 0, others 1."""
    low, high, prior = bounds
    others = np.zeros((len(at.codevectors), 2))
    others[:, 1] = 1e3 * max(high - low, 1e-9)  # so that they are never the best
    belief = Belief(low, high, prior, _UNKNOWN, others)
    values = iterate(rows, at, None, belief, 2, _SWEEPS, config).values
    return float(values[starts].mean())
