"""The online agent: fast Q-learning over a few cells, slow learning of where they lie."""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.agents.two_timescale.agent import TwoTimescaleAgent as TwoTimescaleAgent

__getattr__, __dir__ = offer(
    __name__,
    {
        "TwoTimescaleAgent": "agent",
    },
)
