"""The comparison of the agents with Stable-Baselines3 in one environment."""

from typing import TYPE_CHECKING

from oda_rl._lazy import offer

if TYPE_CHECKING:
    from oda_rl.agents.comparison.contest import Comparison as Comparison
    from oda_rl.agents.comparison.contest import Competitor as Competitor
    from oda_rl.agents.comparison.contest import Own as Own
    from oda_rl.agents.comparison.contest import Plan as Plan
    from oda_rl.agents.comparison.contest import Solved as Solved
    from oda_rl.agents.comparison.contest import compare as compare
    from oda_rl.agents.comparison.contest import headline as headline
    from oda_rl.agents.comparison.contest import origin_of_settings as origin_of_settings
    from oda_rl.agents.comparison.contest import seeds_text as seeds_text
    from oda_rl.agents.comparison.contest import solved_at as solved_at

__getattr__, __dir__ = offer(
    __name__,
    {
        "Comparison": "contest",
        "Competitor": "contest",
        "Own": "contest",
        "Plan": "contest",
        "Solved": "contest",
        "compare": "contest",
        "headline": "contest",
        "origin_of_settings": "contest",
        "seeds_text": "contest",
        "solved_at": "contest",
    },
)
