"""Figures of an agent: which there are to draw, and how they stand in a page."""

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oda_rl._types import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from oda_rl.agents import Agent

_VISITED_STEPS = 2000
_MOST_SVG = 120_000  # characters; beyond, a picture of points takes less
_PICTURE_DPI = 90
_DARK = ("#000000", "#4d4d4d")  # what matplotlib and oda_rl.plotting write text and axes in


def draw_figures(
    agent: "Agent", seed: int = 0, returns: FloatArray | None = None
) -> "dict[str, Axes]":
    """Draw learning curve, partition, metric and bifurcation, as far as there are any; by names.

    The states drawn over the partition are those that the greedy policy visits. An agent that
    anneals anew at each fit has no bifurcation to show, and a table of states of more than two
    components no plane in which they lie. ``returns`` are those of the evaluation, if there was
    one: the learning curve ends with their mean.
    """
    from oda_rl import plotting

    axes = {
        "learning_curve": plotting.plot_learning_curve(
            agent.episodes.curve,
            solved_return=agent.solved_return,
            num_timesteps=agent.num_timesteps,
            delivered=returns,
        )
    }
    names, action_names = names_for(agent)
    d = agent.interface.n_features
    if d == 2 or (d > 2 and not tells_states_apart(agent)):
        axes["partition"] = plotting.plot_partition(
            agent,
            visited=agent.visited_states(_VISITED_STEPS, seed=seed),
            names=names,
            action_names=action_names,
        )
    if agent.metric_ is not None:
        axes["metric"] = plotting.plot_metric(agent, names=names)
    if any(level.temperature > 0.0 for level in agent.history):
        left, right = plotting.new_axes(11.0, 4.2, columns=2)
        axes["bifurcation"] = plotting.plot_bifurcation(agent.history, ax=left)
        plotting.plot_cells_over_time(agent.history, agent.num_timesteps, ax=right)
    return axes


def tells_states_apart(agent: "Agent") -> bool:
    """Whether an agent has learned a table of states, each of which it tells from all others."""
    from oda_rl.agents import ModelAgent
    from oda_rl.agents.policies import TablePolicy

    return isinstance(agent, ModelAgent) and isinstance(agent.policy, TablePolicy)


def names_for(agent: "Agent") -> tuple["Sequence[str] | None", "Sequence[str] | None"]:
    """Names of the observation's components and of the actions, where they are known."""
    from oda_rl.agents.environments.names import matching_names

    return matching_names(agent.env_id, agent.interface)


def as_html(figure: "Figure", name: str) -> str:
    """Return a figure as an element of HTML, in the colour of the text around it.

    Lines and letters stay sharp; where they are so many that this takes much room, as a picture.
    What has a picture in it is on white, as the colours of that are meant for.

    >>> from oda_rl.plotting import new_axes
    >>> as_html(new_axes()[0].figure, "empty")[:30]
    '<svg role="img" aria-label="em'
    """
    from html import escape

    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}), io.StringIO() as file:
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
        text = file.getvalue()
    if len(text) > _MOST_SVG:
        return _picture(figure, escape(name))
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for color in _DARK:
        text = text.replace(color, "currentColor")
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    text = re.sub(r' id="([^"]+)"', lambda one: one[0] if one[1] in used else "", text)
    light = ' class="light"' if "<image" in text else ""
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(name)}"{light}', 1)


def _picture(figure: "Figure", name: str) -> str:
    from base64 import b64encode

    with io.BytesIO() as file:
        figure.savefig(file, format="png", dpi=_PICTURE_DPI, facecolor="white")
        code = b64encode(file.getvalue()).decode("ascii")
    return f'<img alt="{name}" src="data:image/png;base64,{code}">'
