"""A report as one HTML file that asks nobody for anything.

Whatever came out of a file is escaped. What may run is the one script below, known by its digest:
browsers would run no other, wherever it came from, and open no connection.
"""

import json
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import numpy as np

from oda_rl import persistence
from oda_rl.agents.policies.explaining import overview
from oda_rl.reporting.content import Report
from oda_rl.reporting.figures import as_html, draw_figures, tells_states_apart
from oda_rl.reporting.tables import policy_remarks, policy_rows

if TYPE_CHECKING:
    from oda_rl.agents import Agent

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
    persistence.write_text(out, page_of(agent, report, seed, command))
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

    if not isinstance(agent, ModelAgent) or tells_states_apart(agent):
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
