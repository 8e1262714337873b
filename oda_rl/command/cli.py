"""The oda-rl command: train, evaluate, plot, explain, report, simplify, export, compare, warm."""

import gc
import io
import re
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import tyro
from rich.console import Console
from rich.measure import Measurement

from oda_rl.agents import Agent, export_policy, load_agent
from oda_rl.agents.policies.explaining import overview
from oda_rl.agents.policies.export import default_file
from oda_rl.agents.videos import check_video, write_video
from oda_rl.command.report import (
    evaluation_line,
    policy_table,
    save_figure,
    write_figures,
)
from oda_rl.command.reporting import Report, report
from oda_rl.command.simplifying import Simplify, simplify
from oda_rl.command.training import (
    INTERRUPTED,
    TrainFitted,
    defaults_for,
    resumed_defaults,
    train,
)
from oda_rl.reporting.page import policy_remarks

_EVALUATION_EPISODES = 100


@dataclass(frozen=True)
class Evaluate:
    """Play greedily with a trained agent."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder, or the agent's file."""

    episodes: int = _EVALUATION_EPISODES
    """Episodes to play."""

    seed: int = 0
    """Of the environment's first reset."""

    video: Path | None = None
    """Folder for films of a few more greedy episodes."""

    trust_env: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Import the modules that the file names, of the environment's id and of its wrappers."""


@dataclass(frozen=True)
class Plot:
    """Draw the figures of a run folder anew."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""

    seed: int = 0
    """Of the episode whose states are drawn over the partition."""

    trust_env: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Import the modules that the file names, of the environment's id and of its wrappers."""


@dataclass(frozen=True)
class Export:
    """Write the policy of a trained agent to a file that needs no Python."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder, or the agent's file."""

    format: Literal["c", "json", "onnx"] = "c"
    """c: a C99 header with a function. json: all numbers, and how to decide by them. onnx: a model
    for onnxruntime and others; needs pip install 'oda-rl[onnx]'."""

    fixed_point: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Of a C header: tables of 16-bit integers."""

    allow_disagreement: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Write such tables also if they decide otherwise than the agent in more than one of a thousand
    states of its training."""

    learn: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Of a C header of an online agent: a learner over its cells, instead of its policy."""

    out: Path | None = None
    """File to write; by default policy.h, policy.json or policy.onnx in the run folder."""


@dataclass(frozen=True)
class Explain:
    """Print the whole policy as a table, and draw it to explanation.png in the run folder."""

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""

    names: tuple[str, ...] = ()
    """Names of all components of the observation; by default those of known environments."""

    actions: tuple[str, ...] = ()
    """Names of all actions, likewise."""

    steps: int = 5_000
    """Steps to play greedily, from which to count how often the policy is in which cell."""

    seed: int = 0
    """Of the environment's first reset."""

    trust_env: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Import the modules that the file names, of the environment's id and of its wrappers."""


@dataclass(frozen=True)
class Compare:
    """Train our agents, and DQN, PPO and A2C of Stable-Baselines3; write a figure and tables.

    Theirs have rl-zoo's tuned hyper-parameters, where it has some, and ours their defaults. Every
    run is a process of its own; a command that was interrupted goes on where it was.
    """

    env_id: str = "CartPole-v1"
    """Gymnasium id of the environment; 'module:id' imports a module first."""

    seeds: int = 5
    """Runs of DQN and of A2C."""

    own_seeds: int = 20
    """Runs of each of our agents, and of PPO, whose seconds theirs are compared with."""

    total_timesteps: int = 50_000
    """Environment steps of each run."""

    threshold: float | None = None
    """Mean return from which a seed counts as solved; by default what the environment says."""

    out: Path | None = None
    """Folder to write; by default runs/compare-ENV_ID."""

    workers: int = 1
    """Runs at once; -1: one for each core. Runs are timed: more than one may slow each other."""

    retry_failed: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Make those runs again that failed the last time."""


@dataclass(frozen=True)
class Warm:
    """Compile everything once, so that no later call has to: for images and classrooms."""

    clear: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Remove all compiled code instead."""


Options = TrainFitted | Evaluate | Plot | Explain | Report | Simplify | Export | Compare | Warm


def evaluate(options: Evaluate, console: Console) -> int:
    """Load, play, print."""
    agent = _loaded(options)
    if options.video is not None:
        check_video(agent, options.video)
    returns = agent.evaluate(options.episodes, seed=options.seed, progress_bar=True)
    console.print(f"return over {len(returns)} greedy episodes: {evaluation_line(returns)}")
    if options.video is not None:
        for path in write_video(agent, options.video, options.seed):
            console.print(str(path))
    return 0


def plot(options: Plot, console: Console) -> int:
    """Load, draw, say where."""
    _require_folder(options.run)
    agent = _loaded(options)
    returns = agent.evaluate(_EVALUATION_EPISODES, seed=options.seed + 1, progress_bar=True)
    for path in write_figures(agent, options.run, options.seed, returns):
        console.print(str(path))
    return 0


def export(options: Export, console: Console) -> int:
    """Load, write, say where."""
    out = options.out or default_file(options.run, options.format)
    agent, kind = load_agent(options.run), options.format
    path = export_policy(
        agent,
        out,
        kind,
        options.fixed_point,
        learn=options.learn,
        allow_disagreement=options.allow_disagreement,
    )
    console.print(f"{path}: {path.stat().st_size:,} bytes")
    return 0


def explain(options: Explain, console: Console) -> int:
    """Load, play, print, draw."""
    from oda_rl.plotting.agents import plot_policy

    _require_folder(options.run)
    agent = _loaded(options)
    visited = agent.visited_states(options.steps, seed=options.seed)
    policy = overview(agent, visited, options.names or None, options.actions or None)
    table = policy_table(policy)
    needed = Measurement.get(console, console.options, table).minimum
    console.print(table, width=max(console.width, needed))
    for line in policy_remarks(policy):
        console.print(line)
    console.print(str(save_figure(plot_policy(policy), options.run / "explanation.png")))
    return 0


def compare(options: Compare, console: Console) -> int:
    """Run all, print the headline, write, say where."""
    from oda_rl.agents.comparison import contest as comparison
    from oda_rl.command.comparison import write_comparison
    from oda_rl.runs.parallel import Execution

    folder = options.out or Path("runs") / f"compare-{re.sub('[/:]', '-', options.env_id)}"
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out is {str(folder)!r}, which is a file: it must be a folder")
    plan = comparison.Plan(
        options.env_id, options.seeds, options.own_seeds, options.total_timesteps, options.threshold
    )
    execution = Execution(workers=options.workers, retry_failed=options.retry_failed)
    found = comparison.compare(plan, folder / "runs.jsonl", execution)
    files = write_comparison(found, folder)
    for line in [*comparison.headline(found), *found.failed, *map(str, files)]:
        console.print(line)
    return 0


def warm(options: Warm, console: Console) -> int:
    """Compile everything, with a bar; say how long it took. Or remove what was compiled."""
    from oda_rl import _cache
    from oda_rl.command import warming

    if options.clear:
        _cache.clear()
        console.print(f"removed the compiled code in {_cache.FOLDER}")
        return 0
    begun = time.perf_counter()
    warming.warm(console=console)
    console.print(f"compiled in {time.perf_counter() - begun:.0f} s")
    return 0


def _loaded(options: Evaluate | Explain | Plot) -> Agent:
    """Load an agent, whose environment may be in a module that its file names if that is asked."""
    agent = load_agent(options.run)
    agent.named_by_file = not options.trust_env
    return agent


def _require_folder(run: Path) -> None:
    if not run.is_dir():
        raise FileNotFoundError(f"run is {str(run)!r}: it must be a run folder")


def parse(arguments: Sequence[str]) -> Options:
    """Read the command line; the options of ``train`` are those of its algorithm.

    Raises
    ------
    ValueError
        If it can't be understood.
    """
    arguments = [*map(_as_whole, arguments)]
    defaults = _defaults(arguments)
    online = defaults.algo == "two-timescale"
    if arguments[:1] == ["train"] and not online and _value(arguments, "--partition"):
        raise ValueError(
            f"--partition is an option of --algo two-timescale, and algo is {defaults.algo!r}: "
            "give --algo two-timescale, too"
        )
    commands: Any = (
        Annotated[type(defaults), tyro.conf.subcommand("train", default=defaults)]
        | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
        | Annotated[Plot, tyro.conf.subcommand("plot")]
        | Annotated[Explain, tyro.conf.subcommand("explain")]
        | Annotated[Report, tyro.conf.subcommand("report")]
        | Annotated[Simplify, tyro.conf.subcommand("simplify")]
        | Annotated[Export, tyro.conf.subcommand("export")]
        | Annotated[Compare, tyro.conf.subcommand("compare")]
        | Annotated[Warm, tyro.conf.subcommand("warm")]
    )
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            options: Options = tyro.cli(
                commands,
                prog="oda-rl",
                description="Reinforcement learning you can read.",
                args=list(arguments),
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
            )
            return options
    except SystemExit as stop:
        if not stop.code:
            raise
        raise ValueError(_without_frame(complaint.getvalue())) from None


def _defaults(arguments: Sequence[str]) -> TrainFitted:
    """Return what options of ``train`` are that are not given."""
    algo, config, env_id, seed, out = (
        _value(arguments, f"--{name}") for name in ("algo", "config", "env-id", "seed", "out")
    )
    usual = TrainFitted()
    trust_env = any(one.replace("_", "-") == "--trust-env" for one in arguments)
    if "--resume" not in arguments:
        return defaults_for(algo, config, trust_env)
    if config is not None:
        raise ValueError(f"config is {config!r}: --resume takes the options of the checkpoint")
    run = replace(
        usual,
        env_id=env_id or usual.env_id,
        seed=usual.seed if seed is None else int(seed),
        out=None if out is None else Path(out),
    )
    return resumed_defaults(run.folder, algo, trust_env) or defaults_for(algo, None)


def _without_frame(text: str) -> str:
    """Return what tyro says in a box, as one line."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    lines = re.sub(r"[\u2500-\u257f|]|-{3,}", " ", plain).strip().splitlines()
    message = " ".join(" ".join(lines[1:]).split())  # the first is a title
    message = re.sub(r"Error parsing __tyro\S+: ", "", message)
    return re.sub(r"For full helptext, (run|see) ", "See ", message)


def _as_whole(argument: str) -> str:
    """Write a whole number such as 1e5 or --total-timesteps=1e5 with digits alone."""
    found = re.fullmatch(r"(--[\w-]+=)?(\d+(?:\.\d+)?[eE]\+?\d{1,2})", argument)
    number = float(found[2]) if found else 0.5
    return f"{found[1] or ''}{number:.0f}" if found and number.is_integer() else argument


def _value(arguments: Sequence[str], option: str) -> str | None:
    for i, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") == option:
            return value if equals else next(iter(arguments[i + 1 :]), None)
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; errors take one line, and the exit code is 2."""
    console = Console(highlight=False, soft_wrap=True)
    given = sys.argv[1:] if arguments is None else arguments
    if list(given) == ["--version"]:
        console.print(f"oda-rl {version('oda-rl')}")
        return 0
    try:
        options = parse(given)
        if isinstance(options, TrainFitted):
            return train(options, console)
        if isinstance(options, Evaluate):
            return evaluate(options, console)
        if isinstance(options, Explain):
            return explain(options, console)
        if isinstance(options, Report):
            return report(options, console)
        if isinstance(options, Simplify):
            return simplify(options, console)
        if isinstance(options, Export):
            return export(options, console)
        if isinstance(options, Compare):
            return compare(options, console)
        if isinstance(options, Warm):
            return warm(options, console)
        return plot(options, console)
    except KeyboardInterrupt:
        print("oda-rl: stopped", file=sys.stderr)
        return INTERRUPTED
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"oda-rl: {' '.join(str(error).split())}", file=sys.stderr)
        return 2


def run() -> NoReturn:
    """Run the command and leave the process."""
    code = main()
    gc.freeze()  # the interpreter's last search for garbage would take a third of a second
    sys.exit(code)


if __name__ == "__main__":
    run()
