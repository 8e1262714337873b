"""An agent in a few lines: for a prompt, and for a notebook."""

import html
from typing import TYPE_CHECKING

from oda_rl.agents.base.files import present_versions

if TYPE_CHECKING:
    from oda_rl.agents.base.agent import Agent


def facts(agent: "Agent") -> dict[str, str]:
    """Return what there is to say, by what it is about."""
    told = {"environment": _place(agent), "steps": f"{agent.num_timesteps:,}"}
    episodes = agent.episodes
    if episodes.count:
        told["episodes"] = f"{episodes.count:,} in {agent.training_seconds:.3g} s"
        best, recent = episodes.best_return, episodes.recent_return()
        told["returns in training"] = f"{best:.6g} at best, lately {recent:.6g}"
    policy = agent.policy
    size = sum(part.size for part in policy.parameters)
    cells, choices = _many(policy.n_cells, "cell"), _many(policy.n_actions, policy.choice_name)
    told["policy"] = f"{cells}, {choices}, {_many(size, 'number')}"
    others = agent.versions.items() - present_versions().items()
    if others:
        told["saved with"] = ", ".join(f"{name} {text}" for name, text in sorted(others))
    return told


def in_a_line(agent: "Agent") -> str:
    """Return what a prompt shows."""
    return (
        f"<{type(agent).__name__} of {_place(agent)}, {agent.num_timesteps:,} steps, "
        f"{_many(agent.policy.n_cells, 'cell')}>"
    )


def as_text(agent: "Agent") -> str:
    """Return what ``print`` shows."""
    told = facts(agent)
    width = max(map(len, told))
    return "\n".join(
        [type(agent).__name__, *(f"  {name:{width}}  {text}" for name, text in told.items())]
    )


def as_html(agent: "Agent") -> str:
    """Return what a notebook shows: a table."""
    rows = "".join(
        f'<tr><th style="text-align:left">{html.escape(name)}</th>'
        f'<td style="text-align:left">{html.escape(text)}</td></tr>'
        for name, text in facts(agent).items()
    )
    return f"<table><caption>{type(agent).__name__}</caption>{rows}</table>"


def _place(agent: "Agent") -> str:
    """Return where it learns; one that was made of spaces has no environment."""
    return agent.env_id or ("no environment" if agent.env is None else str(agent.env))


def _many(n: int, thing: str) -> str:
    return f"{n:,} {thing}" + ("" if n == 1 else "s")
