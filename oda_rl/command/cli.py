"""The oda-rl command: train, evaluate, enjoy, plot, explain, report, simplify and others."""

import gc
import io
import os
import re
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any, Literal, NoReturn, Union

import numpy as np
import tyro
from rich.console import Console
from rich.measure import Measurement
from rich.text import Text

from oda_rl.agents import Agent, export_policy, load_agent
from oda_rl.agents.base.files import refuse_foreign
from oda_rl.agents.base.player import Limits
from oda_rl.agents.base.settings import checked_count
from oda_rl.agents.distilling.distil import STEPS, Simplifiable
from oda_rl.agents.policies.explaining import overview
from oda_rl.agents.policies.export import default_file
from oda_rl.agents.policies.rules import RulePolicy, named_as
from oda_rl.agents.videos import show, write_video
from oda_rl.command import reporting, training
from oda_rl.files.archive import refuse_links, write_text
from oda_rl.files.schema import printable
from oda_rl.reporting.content import report_of, verify
from oda_rl.reporting.page import policy_remarks, write_page

_EVALUATION_EPISODES = 100
_WIDTH = 100  # of printed tables and rules, or that of a wider terminal
_GYMNASIUMS = re.compile(r"\x1b\[\d+m(WARN: )?")  # colours and a word around its warnings

_Run = Annotated[Path, tyro.conf.Positional]
_Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff]


@dataclass(frozen=True)
class _Command:
    """A command: its options; calling it with a console runs it. May return an exit code."""

    run: _Run  # Run folder; evaluate, enjoy, explain and export also take the agent's file.

    def folder(self) -> Path:
        """Return the run folder, or raise FileNotFoundError."""
        if not self.run.is_dir():
            raise FileNotFoundError(f"run is {str(self.run)!r}: it must be a run folder")
        return self.run


@dataclass(frozen=True)
class _Loading(_Command):
    """Options of commands that load a trained agent and make its environment."""

    trust_env: _Flag = False
    """Import any module that the file names for its environment, and allow any arguments."""

    def agent(self) -> Agent:
        agent = load_agent(self.run)
        agent.named_by_file = not self.trust_env
        return agent


@dataclass(frozen=True)
class _Playing(_Loading):
    """Options of commands that play with a trained agent."""

    seed: int | None = None
    """Random seed of the first reset; by default that of the training, for the same episodes."""

    max_steps: int = Limits.steps
    """Maximum number of steps played in the environment that the file names."""

    max_seconds: float = Limits.seconds  # Maximum time of playing.

    max_megabytes: int = 4_000  # Maximum memory taken, where the operating system can limit it.

    @property
    def limits(self) -> Limits:
        return Limits(self.max_steps, self.max_seconds)

    def load(self) -> tuple[Agent, int]:
        """Return the agent, and the seed of the episodes to play."""
        for name in {"episodes", "steps"} & vars(self).keys():
            checked_count(name, getattr(self, name))
        agent = self.agent()
        agent.limits = self.limits
        if self.seed is not None and self.seed < 0:
            raise ValueError(f"seed is {self.seed}: it must be at least 0")
        if self.seed is not None:
            return agent, self.seed
        options = training.options_of_run(self.run)
        return agent, 0 if options is None else options.seed


@dataclass(frozen=True)
class Evaluate(_Playing):
    """Play greedy episodes with a trained agent."""

    episodes: int = _EVALUATION_EPISODES  # Episodes to play.

    def __call__(self, console: Console) -> None:
        agent, seed = self.load()
        returns, doubt = reporting.evaluated(agent, self.episodes, seed)
        number = f"{len(returns)} greedy episodes, seed {seed}"
        console.print(f"return over {number}: {reporting.evaluation_line(returns)}")
        if doubt is not None:
            console.print(doubt)


@dataclass(frozen=True)
class Enjoy(_Playing):
    """Watch a trained agent play greedy episodes in a window, or write films of them."""

    episodes: int = 3  # Episodes to play.

    video: Path | None = None
    """Folder for films, instead of a window; needs pip install 'oda-rl[video]'."""

    def __call__(self, console: Console) -> None:
        agent, seed = self.load()
        if self.video is not None:
            for path in write_video(agent, self.video, self.episodes, seed):
                console.print(str(path))
        else:
            returns = show(agent, self.episodes, seed)
            console.print(f"returns: {', '.join(map('{:.1f}'.format, returns))}")


@dataclass(frozen=True)
class Plot(_Playing):
    """Redraw the figures of a run folder."""

    def __call__(self, console: Console) -> None:
        folder, (agent, seed) = self.folder(), self.load()
        returns, _ = reporting.evaluated(agent, _EVALUATION_EPISODES, seed)
        for path in reporting.write_figures(agent, folder, seed, returns):
            console.print(str(path))


@dataclass(frozen=True)
class Explain(_Playing):
    """Print the policy as a table, and a rule with continuous actions in words.

    With --observation, explain the action in one state instead.
    """

    steps: int = 5_000  # Greedy steps, from which the share of each cell is estimated.

    observation: tuple[float, ...] = ()
    """A state: its components, in the order of the table."""

    def __call__(self, console: Console) -> None:
        agent, seed = self.load()
        if self.observation:
            interface, n = agent.interface, len(self.observation)
            if n != (d := len(interface.names)):
                names = ", ".join(interface.names)
                raise ValueError(f"--observation has {n} components: it must have {d} ({names})")
            state = np.reshape(self.observation, interface.observation_shape)
            console.print(str(agent.explain(state)), markup=False, soft_wrap=True)
            return
        policy = overview(agent, agent.visited_states(self.steps, seed=seed))
        width = max(console.width, _WIDTH)
        if isinstance(agent.policy, RulePolicy) and agent.policy.continuous:
            for line in named_as(agent.policy, agent.interface).rules().splitlines():
                console.print(fill(line, width, subsequent_indent="    ", break_on_hyphens=False))
            if agent.n_cells == 1:
                return
        anywhere = console.options.update(width=1_000)
        for n in (None, *range(len(policy.names), -1, -1)):
            table = reporting.policy_table(policy, n)
            if Measurement.get(console, anywhere, table).minimum <= width:
                break
        console.print(table, width=width)
        for line in policy_remarks(policy, n):
            console.print(line)


@dataclass(frozen=True)
class Report(_Playing):
    """Write the policy to one HTML file: a card, figures, tables, and a view to try it in.

    With --verify, evaluate the policy in such a file again, and say whether its card is true.
    """

    run: _Run  # Run folder; with --verify, a report.

    verify: _Flag = False
    """Verify a report instead of writing one; the exit code is 1 if its card is not true."""

    out: Path | None = None  # File to write; by default report.html in the run folder.

    episodes: int = _EVALUATION_EPISODES  # Greedy episodes for the card.

    def __call__(self, console: Console) -> int:
        if self.verify:
            verdict = verify(self.run, self.trust_env, self.limits)
            console.print(str(verdict))
            return 0 if verdict.true else 1
        folder, (agent, seed) = self.folder(), self.load()
        out = self.out or folder / "report.html"
        refuse_links(out)
        options = training.options_of_run(folder)
        command = None if options is None else training.command_of(options)
        content = report_of(agent, self.episodes, seed, command)
        path = write_page(agent, content, out)
        console.print(f"return: {content.score}")
        console.print(f"{path}: {path.stat().st_size:,} bytes")
        return 0


@dataclass(frozen=True)
class Simplify(_Loading):
    """Distil a trained agent to a rule of a few cells; print it, and returns by number of cells.

    Writes rule.txt to the run folder. A rule that returns less than the agent, or that the steps
    were too few to compare with it, is not written, and the exit code is 1.
    """

    cells: int | None = None
    """Maximum number of cells; by default the smallest whose return is not worse than with more."""

    steps: int = STEPS  # Maximum number of environment steps.

    seed: int = 0  # Random seed.

    accept_worse: _Flag = False
    """Write the rule even if it returns less than the agent by more than a standard error, or was
    not compared with it."""

    def __call__(self, console: Console) -> int:
        folder, agent = self.folder(), self.agent()
        assert isinstance(agent, Simplifiable)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # printed below
            result = agent.simplify(self.cells, self.steps, self.seed, progress_bar=True)
        console.print(f"the rule: {result.rules()}")
        console.print(f"{result.comparison}{': worse' if result.worse else ''}")
        refused = result.worse is not False and not self.accept_worse
        if refused:
            console.print("not written: try more --steps or --cells, or add --accept-worse")
        else:
            write_text(folder / "rule.txt", f"{result}\n")
            console.print(str(folder / "rule.txt"))
        if any(len(size.returns) for size in result.curve):
            console.print(reporting.sizes_table(result))
        return 1 if refused else 0


@dataclass(frozen=True)
class Export(_Command):
    """Write the policy of a trained agent to a file for use without Python."""

    format: Literal["c", "json", "onnx"] = "c"
    """c: a C99 header with a function. json: all numbers, with instructions.
    onnx: a model for onnxruntime and others; needs pip install 'oda-rl[onnx]'."""

    fixed_point: _Flag = False  # C header with tables of 16-bit integers.

    allow_disagreement: _Flag = False
    """Write these tables even if more than 0.1 % of the training's states change their action."""

    learn: _Flag = False
    """C header with a learner over the cells of an online agent, instead of its policy."""

    out: Path | None = None
    """File to write; by default policy.h, policy.json or policy.onnx in the run folder."""

    def __call__(self, console: Console) -> None:
        path = export_policy(
            load_agent(self.run),
            self.out or default_file(self.run, self.format),
            self.format,
            self.fixed_point,
            learn=self.learn,
            allow_disagreement=self.allow_disagreement,
        )
        console.print(f"{path}: {path.stat().st_size:,} bytes")


@dataclass(frozen=True)
class Compare:
    """Compare our agents with DQN, PPO and A2C of Stable-Baselines3; write a figure and tables.

    Ours use their defaults, theirs rl-zoo's tuned hyperparameters where they exist. Every run is a
    process of its own; an interrupted command continues where it stopped.
    """

    env_id: str = "CartPole-v1"
    """Gymnasium id of the environment; 'module:id' imports a module first."""

    seeds: int = 20
    """Runs of each of our agents, and of PPO; of DQN and of A2C there are at most five."""

    total_timesteps: int = 50_000  # Environment steps of each run.

    threshold: float | None = None  # Mean return of a solved run; by default the environment's.

    out: Path | None = None  # Folder to write; by default runs/compare-ENV_ID.

    workers: int = 1
    """Runs in parallel; -1: one for each core. Runs are timed, and may slow each other."""

    retry_failed: _Flag = False  # Repeat the runs that failed the last time.

    def __call__(self, console: Console) -> None:
        from oda_rl.agents.comparison import Plan, compare, headline
        from oda_rl.command.comparison import FILES, write_comparison

        folder = self.out or Path("runs") / f"compare-{re.sub('[/:]', '-', self.env_id)}"
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"out is {str(folder)!r}, which is a file: it must be a folder")
        refuse_links(*(folder / name for name in FILES))
        refuse_foreign(folder, FILES, "runs.jsonl", "out")
        plan = Plan(self.env_id, self.seeds, self.total_timesteps, self.threshold)
        comparison = compare(plan, folder / "runs.jsonl", self.workers, self.retry_failed)
        files = write_comparison(comparison, folder)
        for line in (*headline(comparison), *comparison.failed, *map(str, files)):
            console.print(line)


@dataclass(frozen=True)
class Warm:
    """Compile all code now, for images and classrooms."""

    clear: _Flag = False  # Remove all compiled code instead.

    def __call__(self, console: Console) -> None:
        from oda_rl import _cache
        from oda_rl.command import warming

        if self.clear:
            _cache.clear()
            console.print(f"removed the compiled code in {_cache.FOLDER}")
        else:
            begun = time.perf_counter()
            warming.warm(console=console)
            console.print(f"compiled in {time.perf_counter() - begun:.0f} s")


_COMMANDS = Evaluate, Enjoy, Plot, Explain, Report, Simplify, Export, Compare, Warm
"""All but ``train``, whose options depend on the algorithm."""


class _Console(Console):
    """Prints texts without markup, and with control characters escaped."""

    def __init__(self) -> None:
        super().__init__(highlight=False, soft_wrap=True, markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(_escaped(text), **options)


def parse(arguments: Sequence[str]) -> Any:
    """Parse the command line; ``train`` has the options of its algorithm. Or raise ValueError."""
    arguments = [*map(_without_exponent, arguments)]
    defaults, metric = _defaults(arguments), _value(arguments, "--metric")
    if metric not in (None, "learned", "std"):
        raise ValueError(
            f"metric is {metric!r}: it must be 'learned' or 'std' here; --config can give a matrix"
        )
    if arguments[:1] == ["train"]:
        training.check_options(defaults, (word for word in arguments if word.startswith("--")))
    kinds: list[Any] = [
        Annotated[type(defaults), tyro.conf.subcommand("train", default=defaults)],
        *(Annotated[kind, tyro.conf.subcommand(kind.__name__.lower())] for kind in _COMMANDS),
    ]
    message = io.StringIO()
    try:
        with redirect_stderr(message):
            any_command: Any = Union[tuple(kinds)]  # noqa: UP007
            return tyro.cli(
                any_command,
                prog="oda-rl",
                description="Reinforcement learning you can read. --version: which version.",
                args=arguments,
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise ValueError(_without_frame(message.getvalue())) from None


def _defaults(arguments: Sequence[str]) -> training.TrainFitted:
    """Return the defaults of ``train``, which may come from a file."""
    algo, config, env_id, out = (
        _value(arguments, f"--{name}") for name in ("algo", "config", "env-id", "out")
    )
    if out == "":
        raise ValueError("out is '': it must be the path of a folder or file")
    trust: bool | str = any(word.replace("_", "-") == "--trust-env" for word in arguments)
    if "--resume" not in arguments:
        return training.defaults_for(algo, config, trust or env_id or False)
    if config is not None:
        raise ValueError(f"config is {config!r}: --resume uses the options of the checkpoint")
    defaults = training.defaults_for(algo, None)
    run = replace(defaults, resume=True, out=None if out is None else Path(out))
    if env_id is not None:
        run = replace(run, env_id=env_id)
    resumed = training.resumed_defaults(run.folder, algo, trust or run.env_id)
    return resumed or defaults


def _without_frame(text: str) -> str:
    """Return tyro's message, which it prints in a box, as one line, and a hint in another."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    lines = re.sub(r"[\u2500-\u257f|]|-{3,}", " ", plain).strip().splitlines()
    message = " ".join(" ".join(lines[1:]).split())  # the first is a title
    message = re.sub(r"Error parsing __tyro\S+: ", "", message)
    return re.sub(r" ?For full helptext, (run|see) ", "\nSee ", message)


def _without_exponent(argument: str) -> str:
    """Write an integer such as 1e5 or --total-timesteps=1e5 with digits only."""
    match = re.fullmatch(r"(--[\w-]+=)?(\d+(?:\.\d+)?[eE]\+?\d{1,2})", argument)
    number = float(match[2]) if match else 0.5
    return f"{match[1] or ''}{number:.0f}" if match and number.is_integer() else argument


def _value(arguments: Sequence[str], option: str) -> str | None:
    for i, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") == option:
            return value if equals else next(iter(arguments[i + 1 :]), None)
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; an error is printed, and the exit code is 2."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # for environments of its modules, as python -m does
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # no names that its encoding lacks end a command
            stream.reconfigure(errors="backslashreplace")
    console = _Console()
    given = sys.argv[1:] if arguments is None else arguments
    if list(given) == ["--version"]:
        console.print(f"oda-rl {version('oda-rl')}")
        return 0
    try:
        options = parse(given)
        limited = isinstance(options, _Playing)
        limit = memory_limit(options.max_megabytes) if limited else nullcontext()
        with limit, warnings.catch_warnings():
            warnings.showwarning = partial(_show_warning, set())
            is_training = isinstance(options, training.TrainFitted)
            return (training.train(options, console) if is_training else options(console)) or 0
    except KeyboardInterrupt:
        print("oda-rl: stopped", file=sys.stderr)
        return training.INTERRUPTED
    except BrokenPipeError:  # a pager was quit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MemoryError as error:
        print(f"oda-rl: out of memory; --max-megabytes allows more ({error})", file=sys.stderr)
        return 2
    except (ValueError, TypeError, OSError, ImportError) as error:
        print("oda-rl:", _escaped(str(error)), file=sys.stderr)
        return 2


@contextmanager
def memory_limit(megabytes: int) -> Iterator[None]:
    """Limit further memory of this process, on Linux; beyond the limit, MemoryError."""
    if sys.platform != "linux":
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    wanted = pages * resource.getpagesize() + megabytes * 10**6
    limit = wanted if soft == resource.RLIM_INFINITY else min(wanted, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _show_warning(shown: set[str], message: Warning | str, *where: Any) -> None:
    text = _GYMNASIUMS.sub("", str(message))
    if text not in shown:
        print(f"warning: {_escaped(text)}", file=sys.stderr)
    shown.add(text)


def _escaped(text: str) -> str:
    """Return lines without what a terminal would obey."""
    return "\n".join(map(printable, text.split("\n")))


def run() -> NoReturn:
    """Run the command and exit."""
    code = main()
    gc.freeze()  # the interpreter's last garbage collection would take a third of a second
    sys.exit(code)


if __name__ == "__main__":
    run()
