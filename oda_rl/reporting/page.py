"""A report as one HTML page: the policy, its tables and figures."""

import io
import json
import re
from html import escape
from pathlib import Path
from string import Template

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from oda_rl import plotting
from oda_rl._types import FloatArray
from oda_rl.agents import Agent, ModelAgent
from oda_rl.agents.environments.names import number_text
from oda_rl.agents.policies import TablePolicy
from oda_rl.agents.policies.explaining import Overview, overview, value_text
from oda_rl.files.archive import write_text
from oda_rl.plotting.agents import MAX_ACTIONS, MAX_ROWS, plot_episode, shown_components
from oda_rl.reporting.content import Report, frame_of, page_part


def policy_rows(policy: Overview, n: int | None = None) -> tuple[list[str], list[list[str]]]:
    """Return headings and at most 40 rows of a policy: a cell each, the most visited first.

    If n is given, they show n components, and the value of the best action alone.
    """
    n_actions = len(policy.action_names)
    actions = range(n_actions if n is None and n_actions <= MAX_ACTIONS else 0)
    components, value = shown_components(policy, n), policy.value_name
    names = [policy.names[j] for j in components]
    headings = ["cell", "action", "visited, %", "learned from", *names]
    headings += [f"{value} of {policy.action_names[a]}" for a in actions] or [value]
    rows = []
    for i in range(min(len(policy.cells), MAX_ROWS)):
        values = [policy.q_values[i, a] for a in actions or policy.actions[i : i + 1]]
        row = [
            str(policy.cells[i]),
            policy.labels[i],
            "" if np.isnan(policy.shares[i]) else f"{100.0 * policy.shares[i]:.2f}",
            f"{policy.visits[i]:,.0f}",
            *(_short(policy.codevectors[i, j], policy.scale[j]) for j in components),
            *map(value_text, values),
            "" if np.isinf(policy.margins[i]) else f"{policy.margins[i]:.2g}",
        ]
        rows.append(row)
    return [*headings, "margin"], rows


def _short(value: float, scale: float) -> str:
    """Return a number to three digits or more; 0 where it is next to nothing beside deviations."""
    return "0" if abs(value) * scale < _NEGLIGIBLE else number_text(value, scale, 3)


def policy_remarks(policy: Overview, n_components: int | None = None) -> list[str]:
    """Return remarks on :func:`policy_rows`: omitted cells and components, blending."""
    remarks = []
    n, share = len(policy.cells), policy.shares[MAX_ROWS:].sum()
    if n > MAX_ROWS:
        visits = "" if np.isnan(share) else f", with {100.0 * share:.2f} % of the states visited"
        remarks.append(f"cells left out: {n - MAX_ROWS}{visits}")
    if policy.nowhere:
        remarks.append(f"cells without a known visited state: {policy.nowhere}")
    left_out = len(policy.names) - len(shown_components(policy, n_components))
    if left_out:
        reason = ", which differ less between the cells" if n > 1 else ""
        remarks.append(f"components left out: {left_out}{reason}")
    if policy.agreement < 1.0:
        remarks.append(
            f"neighbouring cells are blended: in {100.0 * policy.agreement:.1f} % of the states "
            "visited the action is that of the cell's row"
        )
    return remarks


_DRAWN_STEPS = 2000
_NEGLIGIBLE = 1e-3  # standard deviations
_MAX_SVG = 120_000  # characters; a larger figure has its points and lines as a picture
_PICTURE_DPI = 144
_OF_PAGE = {  # colours of text, axes and blocks in figures
    "#000000": "currentColor", "#4c4c4c": "currentColor", "#4d4d4d": "currentColor",
    "#595959": "var(--soft)", "#ededed": "var(--rule)",
}  # fmt: skip


def draw_figures(agent: Agent, seed: int = 0, returns: FloatArray | None = None) -> dict[str, Axes]:
    """Draw learning curve, partition with visited states, metric and bifurcation, by name."""
    curve, solved, steps = agent.episodes.curve, agent.solved_return, agent.num_timesteps
    learning = plotting.plot_learning_curve(
        curve, solved_return=solved, num_timesteps=steps, delivered=returns
    )
    axes = {"learning_curve": learning}
    d = agent.interface.n_features
    if d == 2 or (d > 2 and not has_state_table(agent)):
        visited = agent.visited_states(_DRAWN_STEPS, seed=seed)
        axes["partition"] = plotting.plot_partition(agent, visited=visited)
    if agent.metric_ is not None:
        axes["metric"] = plotting.plot_metric(agent)
    if any(level.temperature > 0.0 for level in agent.history):
        axes["bifurcation"] = plotting.plot_bifurcation(agent.history)
    return axes


def has_state_table(agent: Agent) -> bool:
    """Return whether an agent has learned a table of discrete states."""
    return isinstance(agent, ModelAgent) and isinstance(agent.policy, TablePolicy)


def as_html(figure: Figure, name: str) -> str:
    """Return a figure as inline SVG with the colours of the page, light or dark, for its text."""
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        text = _as_svg(figure)
        if len(text) > _MAX_SVG:
            for axes in figure.axes:
                for artist in (*axes.lines, *axes.collections):
                    artist.set_rasterized(True)
            text = _as_svg(figure)
    text = text[text.index("<svg") :]
    text = re.sub(r"<(metadata|style)\b.*?</\1>", "", text, flags=re.DOTALL)  # as style.css has it
    for color, of_page in _OF_PAGE.items():
        text = text.replace(color, of_page)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    text = re.sub(r' id="([^"]+)"', lambda match: match[0] if match[1] in used else "", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(name)}"', 1)


def _as_svg(figure: Figure) -> str:
    with io.StringIO() as file:
        figure.savefig(
            file, format="svg", transparent=True, dpi=_PICTURE_DPI, metadata={"Date": None}
        )
        return file.getvalue()


_VISITED_STEPS = 5_000  # from which the shares of the cells are estimated


def write_page(agent: Agent, report: Report, out: Path) -> Path:
    """Write the page of an agent's report, with figures and tables, atomically; return ``out``."""
    write_text(out, page_of(agent, report))
    return out


def page_of(agent: Agent, report: Report) -> str:
    """Return the HTML of an agent's report, with figures and tables."""
    drawn = draw_figures(agent, report.seed, np.array(report.returns))
    if report.world is None:  # there is no live view
        drawn["episode"] = plot_episode(agent, seed=report.seed)[0]
    figures = [
        f'<figure class="{name}">{as_html(axes.figure, name.replace("_", " "))}</figure>'  # type: ignore[arg-type]
        for name, axes in drawn.items()
    ]
    rule = ""
    if isinstance(agent, ModelAgent) and not has_state_table(agent):
        rule = f"<section><h2>The rule</h2><pre>{escape(agent.rules())}</pre></section>"
    head, tail = frame_of(report)
    middle = page_part("page.html").partition("$rule")[2].partition("$report")[0]
    said = Template(middle).substitute(cells=_cells(agent, report), figures="\n".join(figures))
    data = json.dumps(report.to_json(), ensure_ascii=False, allow_nan=False)
    for sign in "<>&\u2028\u2029":  # which could end the script element
        data = data.replace(sign, f"\\u{ord(sign):04x}")
    return "".join([head, rule, said, data, tail])


def _cells(agent: Agent, report: Report) -> str:
    policy = overview(agent, agent.visited_states(_VISITED_STEPS, seed=report.seed))
    headings, rows = policy_rows(policy)
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    lines = []
    for row in rows:
        cell, *others = map(escape, row)
        columns = "".join(f"<td>{value}</td>" for value in others)
        lines.append(f'<tr data-cell="{cell}"><th scope="row">{cell}</th>{columns}</tr>')
    remarks = "".join(f"<p>{escape(remark)}</p>" for remark in policy_remarks(policy))
    body = "\n".join(lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{remarks}"
