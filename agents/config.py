"""What can be set about the agents, and what known environments' observations are called."""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True)
class TwoTimescaleConfig:
    """Settings of :class:`oda_rl.agents.TwoTimescaleAgent`, each with its default.

    Temperatures and distances are in units of the scaled observation, whose total variance is 2.
    """

    discount: float = 0.995
    """Discount factor gamma of the return, in (0, 1]."""

    trace_decay: float = 0.98
    """Decay lambda of Watkins' eligibility traces, in [0, 1]. 0 is one-step Q-learning."""

    step_exponent: float = 0.2
    """The n-th update of a Q-value has step size n ** -step_exponent; in [0, 1]."""

    min_step_size: float = 0.01
    """Lower bound of that step size, in (0, 1]."""

    exploration: float = 0.5
    """Probability of a random action at the (re)start, in [0, 1]."""

    exploration_decay: float = 1000.0
    """Steps after which that probability has halved: exploration / (1 + t / exploration_decay)."""

    max_cells: int = 8
    """Annealing stops once there are so many cells (there may be up to twice as many)."""

    initial_temperature: float = 4.0
    """Temperature of the first level; positive."""

    cooling: float = 0.2
    """Factor from one temperature level to the next, in (0, 1)."""

    min_temperature: float = 0.03
    """Annealing stops below this temperature; positive."""

    observe_every: int = 4
    """The slow timescale sees every so manyth step."""

    samples_per_level: int = 200
    """Least number of samples seen at a temperature level."""

    samples_per_cell: float = 10.0
    """Least number of samples for each cell at a temperature level."""

    perturbation: float = 0.05
    """Standard deviation of the shifts by which a codevector is split; positive."""

    merge_threshold: float = 0.001
    """Codevectors merge if their squared distance is below merge_threshold times temperature."""

    min_mass: float = 1e-4
    """Cells with a smaller share of the samples are dropped; in [0, 1)."""

    bins: int | tuple[int, ...] = 3
    """Of a grid: bins of every component of the observation, or of each."""

    ranges: tuple[tuple[float, float], ...] | None = None
    """Of a grid: low and high of each component, in its units. None: by ``spread``."""

    spread: float = 2.0
    """Without ranges a grid reaches so many standard deviations of random play to either side of
    its mean; positive."""

    map_shape: tuple[int, ...] = (5, 5)
    """Of a self-organising map: codevectors of a chain, or rows and columns of a grid."""

    map_periodic: bool = False
    """Whether the sides of the map are glued together."""

    map_rate: float = 0.3
    """Of a map: first rate, in (0, 1]; it falls to .01."""

    map_samples_per_cell: int = 50
    """Of a map: samples for each codevector until it rests."""

    mixture_components: int = 16
    """Of a Gaussian mixture: components, on the grid nearest to a square; at most 4096."""

    mixture_forgetting: float = 0.005
    """Of a mixture: least rate at which a component follows its states, in (0, 1)."""

    mixture_samples_per_cell: int = 50
    """Of a mixture: samples for each component until it rests."""

    infex_bandwidth: float = 0.7
    """Of exemplars of the visited states: bandwidth, in units of the scaled observation;
    positive."""

    infex_reservoir: int = 2000
    """Of exemplars: visited states that are remembered."""

    infex_first_refit: int = 100
    """Of exemplars: states seen before the first fit; each later one waits for half as many
    again."""

    infex_max_cells: int = 64
    """Of exemplars: at most so many are cells, those of the largest weights."""

    metric: Literal["learned", "std"] | tuple[tuple[float, ...], ...] = "learned"
    """Distances between states: learned from the gradients of Q while the cells are annealed, in
    standard deviations of the observation, or a symmetric positive semi-definite matrix."""

    action_bins: int = 5
    """Values of each component of a continuous action, least to greatest; at least 2."""

    warmup_steps: int = 500
    """Random steps before learning, which give the scale; at least 2."""

    solved_return: float | None = None
    """Return from which an episode counts as solved. None: the environment's reward threshold; if
    it has none, learning neither rests nor starts again."""

    solved_episodes: int = 2
    """After so many solved episodes in a row the agent stops learning, until one falls short.
    0: it never stops, and one that falls short is enough to start again."""

    restart_after: int = 5000
    """If after so many steps as many episodes in a row fall short as would have had to be solved,
    learning starts from nothing. 0: it never does."""

    def __post_init__(self) -> None:
        """Check every range; raise ValueError naming the setting, its value and what is right."""
        _require(self, "discount", 0.0 < self.discount <= 1.0, "in (0, 1]")
        for name in ("trace_decay", "step_exponent", "exploration"):
            _require(self, name, 0.0 <= getattr(self, name) <= 1.0, "in [0, 1]")
        _require(self, "min_step_size", 0.0 < self.min_step_size <= 1.0, "in (0, 1]")
        _require(self, "cooling", 0.0 < self.cooling < 1.0, "in (0, 1)")
        _require(self, "min_mass", 0.0 <= self.min_mass < 1.0, "in [0, 1)")
        for name in (
            "exploration_decay",
            "initial_temperature",
            "min_temperature",
            "perturbation",
            "spread",
            "infex_bandwidth",
        ):
            value = getattr(self, name)
            _require(self, name, math.isfinite(value) and value > 0.0, "positive and finite")
        for name in ("samples_per_cell", "merge_threshold"):
            value = getattr(self, name)
            _require(self, name, math.isfinite(value) and value >= 0.0, "finite and at least 0")
        for name, least in (
            ("max_cells", 1),
            ("observe_every", 1),
            ("samples_per_level", 1),
            ("warmup_steps", 2),
            ("solved_episodes", 0),
            ("restart_after", 0),
            ("map_samples_per_cell", 1),
            ("mixture_components", 1),
            ("mixture_samples_per_cell", 1),
            ("infex_reservoir", 1),
            ("infex_first_refit", 1),
            ("infex_max_cells", 1),
            ("action_bins", 2),
        ):
            _require(self, name, getattr(self, name) >= least, f"at least {least}")
        if self.solved_return is not None:
            _require(self, "solved_return", not math.isnan(self.solved_return), "a number")
        few = self.mixture_components <= 4096
        _require(self, "mixture_components", few, "at most 4096")
        forgets = 0.0 < self.mixture_forgetting < 1.0
        _require(self, "mixture_forgetting", forgets, "in (0, 1)")
        _require(self, "map_rate", 0.0 < self.map_rate <= 1.0, "in (0, 1]")
        one_each = "an integer of at least 1, or a list of one for each component"
        _require(self, "bins", _are_counts(self.bins), one_each)
        sides = isinstance(self.map_shape, Sequence) and len(self.map_shape) in (1, 2)
        sides = sides and _are_counts(self.map_shape)
        _require(self, "map_shape", sides, "one or two integers of at least 1")
        for name in ("bins", "map_shape"):
            if not isinstance(getattr(self, name), int):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.ranges is not None:
            right = all(
                len(pair) == 2 and -math.inf < pair[0] < pair[1] < math.inf for pair in self.ranges
            )
            _require(self, "ranges", right, "pairs of finite numbers, the lower first")
            object.__setattr__(self, "ranges", tuple((float(a), float(b)) for a, b in self.ranges))
        if not isinstance(self.metric, str):
            try:
                rows = tuple(tuple(float(value) for value in row) for row in self.metric)
                object.__setattr__(self, "metric", rows)
            except (TypeError, ValueError):
                rows = ()
            right = _is_metric(rows)
            _require(self, "metric", right, "a symmetric, positive semi-definite matrix, or a name")
        else:
            right = self.metric in ("learned", "std")
            _require(self, "metric", right, "'learned', 'std' or a matrix")


def _are_counts(value: Any) -> bool:
    """Whether this is an integer of at least 1, or some of them."""
    values = value if isinstance(value, Sequence) else (value,)
    return all(isinstance(n, int) and n >= 1 for n in values) and len(values) > 0


def _is_metric(rows: tuple[tuple[float, ...], ...]) -> bool:
    if any(len(row) != len(rows) for row in rows) or not rows:
        return False
    matrix = np.array(rows)
    if not (np.isfinite(matrix).all() and np.allclose(matrix, matrix.T)):
        return False
    eigenvalues = np.linalg.eigvalsh(matrix)
    return bool(eigenvalues[-1] > 0.0 and eigenvalues[0] >= -1e-9 * eigenvalues[-1])


@dataclass(frozen=True)
class FittedQConfig:
    """Settings of :class:`oda_rl.agents.FittedQAgent`, each with its default."""

    discount: float = 0.99
    """Discount factor gamma of the return, in (0, 1)."""

    trace_decay: float = 0.8
    """Decay lambda of Watkins' returns, in [0, 1]. 0 looks one step ahead."""

    metric: Literal["learned", "std"] = "learned"
    """Distances between states: learned from the gradients of Q, or in standard deviations."""

    max_cells: int = 256
    """Upper bound of the number of cells; at most 65535."""

    cells_per_root: float = 0.4
    """There are so many cells for each square root of the number of transitions; positive."""

    optimism: float = 0.3
    """Weight, in transitions, of the belief that an action is worth the best return seen;
    positive."""

    sweeps: int = 20
    """Most sweeps of fitted Q-iteration at a refit."""

    first_sweeps: int = 100
    """Most sweeps at the first fit."""

    tolerance: float = 1e-3
    """Sweeps end when values change by less than this share of (1 - discount) of their range."""

    refit_every: float = 0.1
    """Refit when the transitions have grown by this share; positive."""

    least_refit: int = 100
    """But not before so many new transitions."""

    exploration: float = 0.4
    """Random decisions in an episode, on average; at least 0."""

    longest_hold: int = 100
    """A random action is held for 1/U steps, U uniform in (0, 1), but no longer than this."""

    action_bins: int = 5
    """Values of each component of a continuous action, least to greatest; of a CodevectorAgent so
    many action codevectors in each cell for each component; at least 2."""

    kept_policies: int = 40
    """How many policies compete to be delivered, the newest included; at least 2."""

    confirm_episodes: int = 100
    """The policy to be delivered is played again, without exploration, until it has been played in
    so many episodes; 0 trusts what was seen when it was new."""

    confirm_share: float = 0.2
    """Most of the steps that go into that, in [0, 1]."""

    max_transitions: int | None = None
    """Bound of the memory: a fair sample of whole episodes is kept. None keeps all transitions."""

    def __post_init__(self) -> None:
        """Check every range; raise ValueError naming the setting, its value and what is right."""
        _require(self, "discount", 0.0 < self.discount < 1.0, "in (0, 1)")
        _require(self, "trace_decay", 0.0 <= self.trace_decay <= 1.0, "in [0, 1]")
        known = isinstance(self.metric, str) and self.metric in ("learned", "std")
        _require(self, "metric", known, "'learned' or 'std'")
        _require(self, "confirm_share", 0.0 <= self.confirm_share <= 1.0, "in [0, 1]")
        _require(self, "max_cells", 1 <= self.max_cells <= 65_535, "in [1, 65535]")
        for name in ("cells_per_root", "optimism", "refit_every"):
            value = getattr(self, name)
            _require(self, name, math.isfinite(value) and value > 0.0, "positive and finite")
        for name in ("tolerance", "exploration"):
            value = getattr(self, name)
            _require(self, name, math.isfinite(value) and value >= 0.0, "finite and at least 0")
        for name, least in (
            ("sweeps", 1),
            ("first_sweeps", 1),
            ("least_refit", 1),
            ("longest_hold", 1),
            ("kept_policies", 2),
            ("confirm_episodes", 0),
            ("action_bins", 2),
        ):
            _require(self, name, getattr(self, name) >= least, f"at least {least}")
        if self.max_transitions is not None:
            _require(self, "max_transitions", self.max_transitions >= 1, "at least 1, or None")


def _require(config: Any, name: str, right: bool, expected: str) -> None:
    if not right:
        raise ValueError(f"{name} is {getattr(config, name)!r}: it must be {expected}")


@cache
def _names() -> dict[str, dict[str, list[str]]]:
    text = files("oda_rl.agents").joinpath("names.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def component_names(env_id: str | None) -> tuple[Sequence[str] | None, Sequence[str] | None]:
    """Names of a known environment's observation components and actions, for people to read.

    >>> component_names("MountainCar-v0")[0]
    ['position', 'velocity']
    """
    names = _names().get(env_id or "", {})
    return names.get("observations"), names.get("actions")


def matching_names(
    env_id: str | None, n_features: int, n_actions: int
) -> tuple[Sequence[str] | None, Sequence[str] | None]:
    """Return the known names, as far as there are so many components and actions.

    There are others if the environment was wrapped.
    """
    names, action_names = component_names(env_id)
    if names is not None and len(names) != n_features:
        names = None
    if action_names is not None and len(action_names) != n_actions:
        action_names = None
    return names, action_names
