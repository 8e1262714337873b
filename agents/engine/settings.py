"""What the settings of all agents share."""

from typing import Any, Protocol


class Settings(Protocol):
    """What the engine reads of an agent's settings."""

    @property
    def action_bins(self) -> int:
        """Values of each component of a continuous action."""


def require(settings: Any, name: str, right: bool, expected: str) -> None:
    """Raise ValueError, naming a setting, its value and what is expected, unless it is right."""
    if not right:
        raise ValueError(f"{name} is {getattr(settings, name)!r}: it must be {expected}")
