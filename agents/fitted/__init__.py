"""The replaying agent: cells and values fitted to all that was ever seen.

``engine`` says when to fit (:mod:`oda_rl.agents.fitting` is how); ``replay`` chooses actions and
remembers what came of them; ``competing`` which policy is the best; the
``codevector`` files choose continuous actions.
"""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.agents.fitted.agent import FittedQAgent as FittedQAgent
    from oda_rl.agents.fitted.codevector_agent import CodevectorAgent as CodevectorAgent

__getattr__, __dir__ = offer(
    __name__,
    {
        "FittedQAgent": "agent",
        "CodevectorAgent": "codevector_agent",
    },
)
