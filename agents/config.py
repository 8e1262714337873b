"""What can be set about the online agent, and the settings for known environments."""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any


@dataclass(frozen=True)
class TwoTimescaleConfig:
    """Settings of :class:`oda_rl.agents.TwoTimescaleAgent`, each with its default.

    Temperatures and distances are in units of the scaled observation (see ``state_scale``).
    """

    discount: float = 0.99
    """Discount factor gamma of the return, in (0, 1]."""

    trace_decay: float = 0.99
    """Decay lambda of Watkins' eligibility traces, in [0, 1]. 0 is one-step Q-learning."""

    step_exponent: float = 0.3
    """The n-th update of a Q-value has step size n ** -step_exponent; in [0, 1]."""

    min_step_size: float = 0.01
    """Lower bound of that step size, in (0, 1]."""

    exploration: float = 0.5
    """Probability of a random action at the (re)start, in [0, 1]."""

    exploration_decay: float = 500.0
    """Steps after which that probability has halved: exploration / (1 + t / exploration_decay)."""

    max_cells: int = 8
    """Annealing stops once there are so many cells (there may be up to twice as many)."""

    initial_temperature: float = 0.8
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

    state_scale: tuple[float, ...] | None = None
    """Divisor of each observation component (flattened). None: the environment's preset, or else
    running standard deviations, begun with warmup_steps of random play."""

    warmup_steps: int = 500
    """Random steps before learning when the scale has to be learned; at least 2."""

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
        ):
            _require(self, name, getattr(self, name) >= least, f"at least {least}")
        if self.solved_return is not None:
            _require(self, "solved_return", not math.isnan(self.solved_return), "a number")
        if self.state_scale is not None:
            scale = tuple(float(value) for value in self.state_scale)
            object.__setattr__(self, "state_scale", scale)
            _require(
                self,
                "state_scale",
                all(math.isfinite(value) and value > 0.0 for value in scale),
                "positive and finite in every component",
            )


def _require(config: TwoTimescaleConfig, name: str, right: bool, expected: str) -> None:
    if not right:
        raise ValueError(f"{name} is {getattr(config, name)!r}: it must be {expected}")


@cache
def _presets() -> dict[str, dict[str, Any]]:
    text = files("oda_rl.agents").joinpath("presets.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def preset(env_id: str | None) -> TwoTimescaleConfig:
    """Return the defaults with what is known to be better for this environment.

    >>> preset("CartPole-v1").state_scale
    (2.4, 3.0, 0.21, 0.7)
    >>> preset("Acrobot-v1") == TwoTimescaleConfig()
    True
    """
    known = {field.name for field in fields(TwoTimescaleConfig)}
    settings = _presets().get(env_id or "", {})
    return TwoTimescaleConfig(**{key: value for key, value in settings.items() if key in known})


def component_names(env_id: str | None) -> tuple[Sequence[str] | None, Sequence[str] | None]:
    """Names of a known environment's observation components and actions, for figures."""
    settings = _presets().get(env_id or "", {})
    return settings.get("observation_names"), settings.get("action_names")
