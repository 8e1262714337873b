"""``oda-rl report``: a trained agent's policy as a document, and whether one is true."""

import json
import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from oda_rl.agents import load_agent
from oda_rl.agents.base.files import CONFIG_FILE
from oda_rl.command.training import FREE, GROUPS, TrainFitted, defaults_for

REPORT_FILE = "report.html"
_LARGE = 1_000_000  # bytes


@dataclass(frozen=True)
class Report:
    """Write what was learned to one HTML file: a card, figures, tables, and a view to try it in.

    With --verify, play the policy in such a file again, and say whether its score is true.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder; with --verify, a report."""

    verify: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Verify a report instead of writing one: the exit code is 1 if its score is not true."""

    out: Path | None = None
    """File to write; by default report.html in the run folder."""

    episodes: int = 100
    """Fresh greedy episodes to play for the card."""

    seed: int = 0
    """Of the environment's first reset in these."""

    trust_env: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Import the modules that the file names, of the environment's id and of its wrappers."""


def report(options: Report, console: Console) -> int:
    """Load, play, write, say where; or verify."""
    if options.verify:
        from oda_rl.reporting.verifying import verify

        verdict = verify(options.run, options.trust_env)
        console.print(str(verdict), markup=False)
        return 0 if verdict.true else 1
    from oda_rl.reporting.content import report_of
    from oda_rl.reporting.page import write_page

    if not options.run.is_dir():
        raise FileNotFoundError(f"run is {str(options.run)!r}: it must be a run folder")
    agent = load_agent(options.run)
    agent.named_by_file = not options.trust_env
    made = made_by(options.run)
    command, seed = (None, None) if made is None else (command_of(made), made.seed)
    said = report_of(agent, options.episodes, options.seed)
    path = write_page(agent, said, options.out or options.run / REPORT_FILE, seed, command)
    console.print(f"return: {said.score}")
    size = path.stat().st_size
    console.print(f"{path}: {size:,} bytes")
    if size > _LARGE:
        console.print(f"that is much because of the policy's {agent.policy.n_cells:,} cells")
    return 0


def made_by(run: Path) -> TrainFitted | None:
    """Return the options of the training that a run folder is of; None where no command does it.

    The environment may have been wrapped, or the seed not be known.
    """
    path = run / CONFIG_FILE
    try:
        found = defaults_for(None, str(path), trust_env=True) if path.is_file() else None
    except ValueError:
        return None
    return found if found is not None and _has_seed(path) else None


def command_of(options: TrainFitted) -> str:
    """Return the command with these options, without those that have their defaults.

    Examples
    --------
    >>> from dataclasses import replace
    >>> command_of(replace(TrainFitted(), env_id="MountainCar-v0", total_timesteps=20_000))
    'oda-rl train --algo fitted --env-id MountainCar-v0 --seed 0 --total-timesteps 20000'
    """
    usual = defaults_for(options.algo, None)
    words = ["oda-rl", "train"]
    for name in ("algo", "env_id", "seed", "total_timesteps"):
        words += [_flag(name), str(getattr(options, name))]
    said = {"algo", "env_id", "seed", "total_timesteps"}
    for one in fields(options):
        if one.name not in FREE | said | {*GROUPS}:
            words += _given(one.name, getattr(options, one.name), getattr(usual, one.name))
    for group in GROUPS:
        own = getattr(options, group, None)
        for name, value in () if own is None else vars(own).items():
            words += _given(name, value, getattr(getattr(usual, group), name))
    return shlex.join(words)


def _given(name: str, value: Any, usual: Any) -> list[str]:
    """Return an option as the command takes it; nothing if it has its default."""
    if value == usual:
        return []
    if isinstance(value, bool):
        return [_flag(name if value else f"no_{name}")]
    parts = value if isinstance(value, list | tuple) else [value]
    return [_flag(name), *map(str, parts)]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _has_seed(path: Path) -> bool:
    return "seed" in json.loads(path.read_text(encoding="utf-8"))
