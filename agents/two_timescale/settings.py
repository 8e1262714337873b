"""What can be set about the online agent and, for now, its partitions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from oda_rl.agents.engine.settings import require


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
        require(self, "discount", 0.0 < self.discount <= 1.0, "in (0, 1]")
        for name in ("trace_decay", "step_exponent", "exploration"):
            require(self, name, 0.0 <= getattr(self, name) <= 1.0, "in [0, 1]")
        require(self, "min_step_size", 0.0 < self.min_step_size <= 1.0, "in (0, 1]")
        require(self, "cooling", 0.0 < self.cooling < 1.0, "in (0, 1)")
        require(self, "min_mass", 0.0 <= self.min_mass < 1.0, "in [0, 1)")
        for name in (
            "exploration_decay",
            "initial_temperature",
            "min_temperature",
            "perturbation",
            "spread",
            "infex_bandwidth",
        ):
            value = getattr(self, name)
            require(self, name, math.isfinite(value) and value > 0.0, "positive and finite")
        for name in ("samples_per_cell", "merge_threshold"):
            value = getattr(self, name)
            require(self, name, math.isfinite(value) and value >= 0.0, "finite and at least 0")
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
            require(self, name, getattr(self, name) >= least, f"at least {least}")
        if self.solved_return is not None:
            require(self, "solved_return", not math.isnan(self.solved_return), "a number")
        few = self.mixture_components <= 4096
        require(self, "mixture_components", few, "at most 4096")
        forgets = 0.0 < self.mixture_forgetting < 1.0
        require(self, "mixture_forgetting", forgets, "in (0, 1)")
        require(self, "map_rate", 0.0 < self.map_rate <= 1.0, "in (0, 1]")
        one_each = "an integer of at least 1, or a list of one for each component"
        require(self, "bins", _are_counts(self.bins), one_each)
        sides = isinstance(self.map_shape, Sequence) and len(self.map_shape) in (1, 2)
        sides = sides and _are_counts(self.map_shape)
        require(self, "map_shape", sides, "one or two integers of at least 1")
        for name in ("bins", "map_shape"):
            if not isinstance(getattr(self, name), int):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if self.ranges is not None:
            right = all(
                len(pair) == 2 and -math.inf < pair[0] < pair[1] < math.inf for pair in self.ranges
            )
            require(self, "ranges", right, "pairs of finite numbers, the lower first")
            object.__setattr__(self, "ranges", tuple((float(a), float(b)) for a, b in self.ranges))
        if not isinstance(self.metric, str):
            try:
                rows = tuple(tuple(float(value) for value in row) for row in self.metric)
                object.__setattr__(self, "metric", rows)
            except (TypeError, ValueError):
                rows = ()
            right = _is_metric(rows)
            require(self, "metric", right, "a symmetric, positive semi-definite matrix, or a name")
        else:
            right = self.metric in ("learned", "std")
            require(self, "metric", right, "'learned', 'std' or a matrix")


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
