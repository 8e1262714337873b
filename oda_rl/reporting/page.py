"""A report as one HTML page: the policy, its tables and figures."""

import io
import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.policies.explaining import overview, value_text
from oda_rl.files.archive import write_text
from oda_rl.plotting.agents import MAX_ACTIONS, MAX_ROWS, shown_components
from oda_rl.reporting.content import Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from oda_rl.agents import Agent
    from oda_rl.agents.policies.explaining import Overview


def policy_rows(policy: "Overview") -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of a policy: a row for each cell, those visited most first.

    Columns: number of the cell, share of the states visited, how often the agent has learned from
    it, its codevector, the value of each action there, by how much the best is worth more than the
    next, and which that is. There are at most 40 rows, and as many components as are shown.
    """
    actions = range(len(policy.action_names) if len(policy.action_names) <= MAX_ACTIONS else 0)
    components = shown_components(policy)
    headings = ["cell", "visited, %", "learned from", *(policy.names[j] for j in components)]
    value = policy.value_name
    headings += [f"{value} of {policy.action_names[a]}" for a in actions] or [value]
    rows = []
    for i in range(min(len(policy.cells), MAX_ROWS)):
        values = [policy.q_values[i, a] for a in actions or policy.actions[i : i + 1]]
        row = [
            str(policy.cells[i]),
            "" if np.isnan(policy.shares[i]) else f"{100.0 * policy.shares[i]:.1f}",
            f"{policy.visits[i]:,.0f}",
            *(f"{policy.codevectors[i, j]:.3g}" for j in components),
            *map(value_text, values),
            "" if np.isinf(policy.margins[i]) else f"{policy.margins[i]:.2g}",
            policy.labels[i],
        ]
        rows.append(row)
    return [*headings, "margin", "action"], rows


def policy_remarks(policy: "Overview") -> list[str]:
    """Return what a reader of :func:`policy_rows` should know: what is left out, what blends."""
    remarks = []
    n, rest = len(policy.cells), policy.shares[MAX_ROWS:].sum()
    if n > MAX_ROWS:
        share = "" if np.isnan(rest) else f", where {100.0 * rest:.1f} % of the states visited are"
        remarks.append(f"{n - MAX_ROWS} more cells are left out{share}")
    if policy.nowhere:
        remarks.append(f"{policy.nowhere} more cells decide nowhere that is known")
    left_out = len(policy.names) - len(shown_components(policy))
    if left_out:
        remarks.append(f"{left_out} more components differ less between the cells")
    if policy.agreement < 1.0:
        remarks.append(
            f"neighbouring cells are blended: in {100.0 * policy.agreement:.1f} % of the states "
            "visited the action is that of the cell's row"
        )
    return remarks


_DRAWN_STEPS = 2000
_MAX_SVG = 120_000  # characters; beyond, a picture of points takes less
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
    if d == 2 or (d > 2 and not has_state_table(agent)):
        axes["partition"] = plotting.plot_partition(
            agent,
            visited=agent.visited_states(_DRAWN_STEPS, seed=seed),
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


def has_state_table(agent: "Agent") -> bool:
    """Whether an agent has learned a table of states, each of which it tells from all others."""
    from oda_rl.agents import ModelAgent
    from oda_rl.agents.policies import TablePolicy

    return isinstance(agent, ModelAgent) and isinstance(agent.policy, TablePolicy)


def names_for(agent: "Agent") -> tuple["Sequence[str] | None", "Sequence[str] | None"]:
    """Names of the observation's components and of the actions, where they are known."""
    from oda_rl.agents.environments.spaces import matching_names

    return matching_names(agent.env_id, agent.interface)


def as_html(figure: "Figure", name: str) -> str:
    """Return a figure as an element of HTML, in the colour of the text around it.

    Lines and letters stay sharp; where they are so many that this takes much room, as a picture.
    What has a picture in it is on white, as the colours of that are meant for.

    >>> from oda_rl.plotting import new_axes
    >>> as_html(new_axes()[0].figure, "empty")[:30]
    '<svg role="img" aria-label="em'
    """
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}), io.StringIO() as file:
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
        text = file.getvalue()
    if len(text) > _MAX_SVG:
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
    with io.BytesIO() as file:
        figure.savefig(file, format="png", dpi=_PICTURE_DPI, facecolor="white")
        code = b64encode(file.getvalue()).decode("ascii")
    return f'<img alt="{name}" src="data:image/png;base64,{code}">'


_VISITED_STEPS = 5_000  # from which to count how often the policy is in which cell
_TITLES = {
    "learning_curve": "Learning curve",
    "partition": "Partition",
    "metric": "What the value depends on",
    "bifurcation": "Bifurcation",
}


def write_page(
    agent: "Agent",
    report: Report,
    out: Path,
    seed: int | None = None,
    command: str | None = None,
) -> Path:
    """Write the page of a report.

    Parameters
    ----------
    agent : Agent
        Of which it is; figures and tables are drawn from it.
    report : Report
        What :func:`~oda_rl.reporting.content.report_of` said of it.
    out : Path
        File to write, as a whole or not at all.
    seed : int, optional
        Of the training, if it is known.
    command : str, optional
        Which makes the same again.

    Returns
    -------
    Path
        ``out``.

    Raises
    ------
    ValueError
        If ``out`` is a folder.
    """
    if out.is_dir():
        raise ValueError(f"out is {str(out)!r}, which is a folder: it must be a file")
    write_text(out, page_of(agent, report, seed, command))
    return out


def page_of(
    agent: "Agent", report: Report, seed: int | None = None, command: str | None = None
) -> str:
    """Return the text of the page of a report; see :func:`write_page`."""
    script, style = _part("script.js"), _part("style.css")
    digest = b64encode(sha256(script.encode("utf-8")).digest()).decode("ascii")
    drawn = draw_figures(agent, report.seed, np.array(report.returns))
    figures = [
        f'<figure class="{name}">{as_html(axes.figure, _TITLES[name])}</figure>'  # type: ignore[arg-type]
        for name, axes in drawn.items()
    ]
    return Template(_part("page.html")).substitute(
        title=escape(f"A policy for {report.env_id or 'an environment without a name'}"),
        policy=f"sha256-{digest}",
        style=style,
        card=_card(agent, report, seed, command),
        rule=_rule(agent),
        cells=_cells(agent, report),
        figures="\n".join(figures),
        report=_in_script(report),
        script=script,
    )


def _card(agent: "Agent", report: Report, seed: int | None, command: str | None) -> str:
    begun = "" if seed is None else f", seed {seed}"
    rows = [
        ("environment", _environment(agent, report), ""),
        ("agent", f"{type(agent).__name__}, {agent.policy.n_cells} cells", ""),
        ("learned from", f"{agent.num_timesteps:,} steps{begun}", ""),
        ("return", report.score, "score"),
        ("first reset of these", f"seed {report.seed}", ""),
        ("learned with", _versions(agent.versions), ""),
        ("played with", _versions(report.versions), ""),
        ("digest of the policy", report.digest, "digest"),
    ]
    if command is not None:
        rows.insert(5, ("made by", command, "command"))
    return "\n".join(
        f"<div><dt>{escape(name)}</dt><dd{f' id={key}' if key else ''}>{escape(text)}</dd></div>"
        for name, text, key in rows
    )


def _environment(agent: "Agent", report: Report) -> str:
    spec, said = report.env_spec or {}, report.env_id or "without a name"
    own = [f"{key}={value!r}" for key, value in (spec.get("kwargs") or {}).items()]
    if spec.get("max_episode_steps") is not None:
        own.append(f"{spec['max_episode_steps']} steps at most")
    own += [f"wrapped by {one['name']}" for one in spec.get("wrappers") or []]
    solved = agent.solved_return
    own += [] if solved is None else [f"solved from {solved:g}"]
    return ", ".join([said, *own])


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _rule(agent: "Agent") -> str:
    """Return the rule in words, of an agent that has one."""
    from oda_rl.agents import ModelAgent

    if not isinstance(agent, ModelAgent) or has_state_table(agent):
        return ""
    return f"<section><h2>The rule</h2><pre>{escape(agent.rules())}</pre></section>"


def _cells(agent: "Agent", report: Report) -> str:
    policy = overview(agent, agent.visited_states(_VISITED_STEPS, seed=report.seed))
    headings, rows = policy_rows(policy)
    head = "".join(f'<th scope="col">{escape(one)}</th>' for one in headings)
    lines = []
    for row in rows:
        cell, *middle, action = map(escape, row)
        numbers = "".join(f"<td>{one}</td>" for one in middle)
        lines.append(
            f'<tr data-cell="{cell}"><th scope="row">{cell}</th>{numbers}<td>{action}</td></tr>'
        )
    remarks = "".join(f"<p>{escape(one)}</p>" for one in policy_remarks(policy))
    body = "\n".join(lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{remarks}"


def _in_script(report: Report) -> str:
    """Return JSON that nothing in a script element ends."""
    text = json.dumps(report.to_json(), ensure_ascii=False, allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _part(name: str) -> str:
    return files("oda_rl.reporting").joinpath(name).read_text(encoding="utf-8")
