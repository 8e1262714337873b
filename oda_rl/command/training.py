"""``oda-rl train``: its options, its run folder, evaluation, logs and checkpoints."""

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields, make_dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import gymnasium as gym
import tyro
from rich.console import Console

from oda_rl import agents
from oda_rl._lock import LockedError, locked
from oda_rl.agents import Actors, Agent, TwoTimescaleAgent, TwoTimescaleConfig, load_agent
from oda_rl.agents.base.files import AGENT_FILE, CONFIG_FILE, OF_AGENT, refuse_foreign, save
from oda_rl.agents.base.progress import Stopped, ending_as_interrupts
from oda_rl.agents.base.settings import ELSEWHERE, checked_count
from oda_rl.agents.environments.making import make_env
from oda_rl.agents.environments.origins import from_json
from oda_rl.agents.environments.spaces import AnyEnv
from oda_rl.agents.partitions import PARTITIONS
from oda_rl.command.reporting import Evaluation, evaluated, summary, write_figures
from oda_rl.files.archive import load_archive, open_unlinked, parsed, refuse_links, sweep
from oda_rl.reporting.page import has_state_table

Algo = Literal["fitted", "codevector", "two-timescale", "model"]

INTERRUPTED = 130  # the exit code that shells report for Ctrl-C
CHECKPOINT_FILE = "checkpoint.zip"
_LOG, _LOCK, _RESERVE = "tensorboard", ".lock", ".reserve"
_RESERVED = 32_000_000  # bytes of disk for the agent and its checkpoint


@dataclass(frozen=True)
class TrainFitted:
    """Train an agent; write it, its configuration, its episodes and its figures to a folder."""

    env_id: str = "CartPole-v1"
    """Gymnasium id of the environment; 'module:id' imports a module first."""

    algo: Algo = "fitted"
    """fitted: refits cells and values to all transitions.
    codevector: the same with action codevectors, for continuous actions without a grid.
    two-timescale: learns online, in one pass.
    model: learns a model of the environment and searches for a rule in it; needs the fewest steps.
    'oda-rl train --algo model --help' lists the settings of an algorithm."""

    env_kwargs: str | None = None
    """Arguments of the environment as JSON, such as '{"is_slippery": false}';
    max_episode_steps may be among them."""

    config_file: Annotated[Path | None, tyro.conf.arg(name="config")] = None
    """Defaults of all options: config.json of a run folder."""

    seed: int = 0
    """Random seed."""

    total_timesteps: int = 50_000
    """Environment steps to train for."""

    out: Path | None = None
    """Run folder to write; by default runs/ENV_ID-ALGO-N, where N counts up."""

    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Replace the run that is in the folder."""

    names: tuple[str, ...] = ()
    """Names of all components of the observation; by default those that the environment gives."""

    action_names: tuple[str, ...] = ()
    """Names of all actions, or of the components of an action, likewise."""

    n_eval_episodes: int = 100
    """Greedy episodes to play after training, the same as those of 'oda-rl evaluate'."""

    log: Literal["tensorboard"] | None = None
    """Log each episode for TensorBoard, to tensorboard/ in the run folder."""

    checkpoint_every: int | None = None
    """Steps between checkpoints, which are written to checkpoint.zip in the run folder."""

    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Continue the training whose checkpoint is in the run folder, with its options.
    Without --out: in the latest folder of this environment and algorithm.
    A run that has ended goes on to more --total-timesteps; without a checkpoint one begins."""

    trust_env: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Import the module that the file of --config, or the checkpoint, names for its environment."""

    workers: int | None = None
    """Actors, processes that play episodes while this one learns: for steps of milliseconds.
    With --algo fitted, codevector, or model with continuous actions, where they play directions of
    a climb; needs pip install 'oda-rl[cluster]'."""

    address: str | None = None
    """Dask scheduler for the actors, tcp://host:port; by default they run on this machine."""

    config: agents.FittedQConfig = field(default_factory=agents.FittedQConfig)
    """Settings of the agent."""

    @property
    def folder(self) -> Path:
        """The run folder: the given one, the next of its kind, or if it resumes, the latest."""
        if self.out is not None:
            return self.out
        name = f"{re.sub('[/:]', '-', self.env_id)}-{self.algo}-"
        ends = (path.name.removeprefix(name) for path in Path("runs").glob(f"{name}*"))
        latest = max((int(end) for end in ends if end.isdecimal()), default=0)
        return Path("runs") / f"{name}{max(latest, 1) if self.resume else latest + 1}"

    @property
    def actors(self) -> Actors | None:
        """The actors, or None if the agent itself plays."""
        if self.workers is not None:
            return Actors(self.workers, self.address)
        if self.address is not None:
            raise ValueError(f"address is {self.address!r}: it needs --workers")
        return None

    def env(self) -> str | AnyEnv:
        """Return the environment's id, or the environment if it has arguments."""
        text = self.env_kwargs
        if text is None:
            return self.env_id
        try:
            kwargs = json.loads(text)
        except ValueError as error:
            raise ValueError(f"env_kwargs is {text!r}, which is not JSON: {error}") from error
        if not isinstance(kwargs, dict):
            raise ValueError(f'env_kwargs is {text!r}: it must be an object such as {{"g": 9.81}}')
        return make_env(self.env_id, **kwargs)

    @property
    def common(self) -> dict[str, Any]:
        """Arguments of every agent."""
        names, action_names = self.names or None, self.action_names or None
        return {"seed": self.seed, "names": names, "action_names": action_names}

    kind: ClassVar[type[Agent]] = agents.FittedQAgent  # The agent's class.

    def agent(self) -> Agent:
        return self.kind(self.env(), **self.common, **vars(self.config))


@dataclass(frozen=True)
class TrainCodevector(TrainFitted):
    """Train an agent; write it, its configuration, its episodes and its figures to a folder."""

    algo: Algo = "codevector"

    kind = agents.CodevectorAgent


@dataclass(frozen=True)
class TrainModel(TrainFitted):
    """Train an agent; write it, its configuration, its episodes and its figures to a folder."""

    algo: Algo = "model"

    total_timesteps: int = 5_000

    config: agents.ModelConfig = field(default_factory=agents.ModelConfig)  # type: ignore[assignment]
    """Settings of the agent."""

    kind = agents.ModelAgent


_PARTITION_SETTINGS: Any = make_dataclass(
    "PartitionSettings",
    [
        (name, Annotated[kind.Settings, tyro.conf.arg(help=str(kind.__doc__).partition("\n")[0])],
         field(default_factory=kind.Settings))
        for name, kind in PARTITIONS.items()
    ],
    frozen=True,
)  # fmt: skip


@dataclass(frozen=True)
class TrainTwoTimescale(_PARTITION_SETTINGS, TrainFitted):  # type: ignore[misc]
    """Train an agent; write it, its configuration, its episodes and its figures to a folder."""

    algo: Algo = "two-timescale"

    partition: str = "oda"
    """Partition of the observations: oda (annealed cells), grid (uniform cells),
    gmm (components of a Gaussian mixture), infex (exemplars of a mixture density)
    or som (a self-organising map)."""

    config: TwoTimescaleConfig = field(default_factory=TwoTimescaleConfig)  # type: ignore[assignment]
    """Settings of the agent."""

    kind = TwoTimescaleAgent

    def agent(self) -> Agent:
        """Make the agent, which refuses settings of other partitions."""
        given = {
            setting.name: value
            for name in ("config", *PARTITIONS)
            for setting in fields(getattr(self, name))
            if (value := getattr(getattr(self, name), setting.name)) != setting.default
        }
        return TwoTimescaleAgent(self.env(), partition=self.partition, **self.common, **given)


_KINDS: dict[str, type[TrainFitted]] = {
    kind.algo: kind for kind in (TrainFitted, TrainCodevector, TrainTwoTimescale, TrainModel)
}
_ALGORITHMS = {kind.kind.__name__: algo for algo, kind in _KINDS.items()}
_MAY_CHANGE = {"out", "overwrite", "config_file", "names", "action_names", "n_eval_episodes", "log",
               "checkpoint_every", "resume", "trust_env", "workers",
               "address"}  # fmt: skip  # when resuming
_SETTINGS = ("config", *PARTITIONS)  # options that are groups of settings


def defaults_for(
    algo: str | None, config_file: str | None, trust: bool | str = False
) -> TrainFitted:
    """Return the default options of an algorithm, or those of a valid, trusted configuration."""
    if config_file is None:
        return _KINDS.get(algo or "", TrainFitted)()
    try:
        config = parsed(Path(config_file).read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"config is {config_file!r}, which is not JSON: {error}") from error
    if not isinstance(config, dict) or config.get("algorithm") not in _ALGORITHMS:
        raise ValueError(f"config is {config_file!r}: it must be {CONFIG_FILE} of a run folder")
    source = f"config {config_file!r}"
    return _options_in(config, source, algo, trust, config_file=Path(config_file))


def check_options(options: TrainFitted, flags: Iterable[str]) -> None:
    """Raise ValueError for a flag of another algorithm, or of another library."""
    for flag in flags:
        name = flag.partition("=")[0].strip("-").replace("-", "_").removeprefix("no_")
        if name in _options_of(options):
            continue
        owners = [algo for algo, kind in _KINDS.items() if name in _options_of(kind())]
        option = f"--{name.replace('_', '-')}"
        if owners:
            raise ValueError(
                f"{option} is an option of --algo {' and '.join(owners)}: algo is {options.algo!r}"
            )
        if name in ELSEWHERE:
            raise ValueError(f"{option} is no option of --algo {options.algo}: {ELSEWHERE[name]}")


def _options_of(options: TrainFitted) -> set[str]:
    names = {option.name for option in fields(options)} - {*_SETTINGS} | {"config"}
    groups = [getattr(options, name) for name in _SETTINGS if hasattr(options, name)]
    return names.union(*(vars(group) for group in groups))


def resumed_defaults(folder: Path, algo: str | None, trust: bool | str) -> TrainFitted | None:
    """Return the options of the training that a folder has a checkpoint or the end of; or None."""
    path, ended = folder / CHECKPOINT_FILE, folder / CONFIG_FILE
    if not path.exists():
        return defaults_for(algo, str(ended), trust) if ended.is_file() else None
    saved, _ = load_archive(path)
    kind, training = str(saved.get("kind")), saved.get("training")
    if kind not in _ALGORITHMS or not isinstance(training, dict):
        raise ValueError(f"{str(path)!r} is not a checkpoint of a training")
    steps, seed, every = (training.get(name) for name in ("total", "seed", "every"))
    config = {**saved, "algorithm": kind, "total_timesteps": steps, "seed": seed or 0}
    return _options_in(config, f"{str(path)!r}", algo, trust, checkpoint_every=every)


def _options_in(
    config: Mapping[str, Any], source: str, algo: str | None, trust: bool | str, **options: Any
) -> TrainFitted:
    kind = _ALGORITHMS[config["algorithm"]]
    if algo not in (None, kind):
        raise ValueError(f"algo is {algo!r}: {source} has {kind!r}")
    try:
        return _configured(_KINDS[kind](**options), config, trust)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{source} is invalid: it cannot have {error}") from error


def options_of_run(run: Path) -> TrainFitted | None:
    """Return the options of the training that wrote a run folder; None if it cannot be repeated."""
    path = run / CONFIG_FILE
    if not path.is_file():
        return None
    try:
        options = defaults_for(None, str(path), trust=True)
        return options if "seed" in parsed(path.read_bytes()) else None
    except (OSError, ValueError):
        return None


def command_of(options: TrainFitted) -> str:
    """Return the command with these options, without the defaults."""
    always = ("algo", "env_id", "seed", "total_timesteps")
    defaults = defaults_for(options.algo, None)
    given = {name: getattr(options, name) for name in always}
    for option in fields(options):
        value, default = getattr(options, option.name), getattr(defaults, option.name)
        if option.name in _SETTINGS:
            usual = vars(default)
            given |= {name: one for name, one in vars(value).items() if one != usual[name]}
        elif option.name not in _MAY_CHANGE and value != default:
            given[option.name] = value
    words = ["oda-rl", "train"]
    for name, value in given.items():
        flag = f"--{'no_' if value is False else ''}{name}".replace("_", "-")
        parts = value if isinstance(value, list | tuple) else [value]
        words += [flag, *([] if isinstance(value, bool) else map(str, parts))]
    return shlex.join(words)


def _configured(defaults: TrainFitted, config: Mapping[str, Any], trust: bool | str) -> TrainFitted:
    """Replace defaults by the values of a configuration; ``trust`` may be a module:id."""
    settings, changes = dict(config["config"]), dict[str, Any]()
    for name in _SETTINGS:
        group: Any = getattr(defaults, name, None)
        if group is not None:
            names = {setting.name for setting in fields(group)} & settings.keys()
            changes[name] = replace(group, **{key: settings[key] for key in names})
            if name == "config":
                settings = {key: value for key, value in settings.items() if key not in names}
    if isinstance(defaults, TrainTwoTimescale):
        changes["partition"] = partition = config["partition"]
        if partition not in ("oda", *PARTITIONS):
            raise ValueError(f"partition is {partition!r:.80}: it must be oda or {[*PARTITIONS]}")
    changes["seed"] = config.get("seed", defaults.seed)
    steps = config["total_timesteps"]
    for name, value in (("seed", changes["seed"]), ("total_timesteps", steps)):
        if type(value) is not int or not 0 <= value < 2**63:
            raise ValueError(f"config has {name} {value!r:.80}: it must be an integer from 0")
    env_id, spec = config["env_id"], config.get("env_spec") or {}
    if spec.get("wrappers") or spec.get("fault") or env_id is None:
        raise ValueError(
            f"config is of an agent trained in {env_id or spec.get('name')} with wrappers or "
            "arguments that files cannot hold: the command cannot make that environment"
        )
    if env_id not in gym.registry and spec.get("module"):
        env_id = f"{spec['module']}:{env_id}"
    foreign = env_id.rpartition(":")[0]
    if spec and not foreign:
        foreign = from_json({**spec, "id": env_id}).untrusted_module()
    if foreign and trust is not True and (":" not in env_id or trust != env_id):
        raise ValueError(
            f"{str(defaults.config_file or CHECKPOINT_FILE)!r} names the environment {env_id!r}, "
            f"for which the module {foreign!r} would be imported: add --trust-env to allow that"
        )
    known = gym.registry.get(spec.get("id") or "")
    usual = {} if known is None else known.kwargs
    kwargs = dict(spec.get("kwargs", {})).items()
    given = {key: arg for key, arg in kwargs if key not in usual or usual[key] != arg}
    limit = spec.get("max_episode_steps")
    if spec and known is not None and limit != known.max_episode_steps:
        given["max_episode_steps"] = -1 if limit is None else limit
    return replace(
        defaults,
        env_id=env_id,
        env_kwargs=json.dumps(given) if given else None,
        total_timesteps=steps,
        **changes,
    )


def train(options: TrainFitted, console: Console) -> int:
    """Train, evaluate, save and draw; save also after Ctrl-C or an error."""
    options = replace(options, out=options.folder)
    folder, checkpoint = options.folder, options.folder / CHECKPOINT_FILE
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out is {str(folder)!r}, which is a file: it must be a folder")
    for name in ("total_timesteps", "n_eval_episodes"):
        checked_count(name, getattr(options, name))
    if options.actors is not None and options.algo == "two-timescale":
        raise ValueError(
            f"workers is {options.workers}, but algo is {options.algo!r}, which has no actors: "
            "leave --workers out, or use another --algo"
        )
    earlier = next((file for file in (checkpoint, folder / AGENT_FILE) if file.exists()), None)
    replaces = earlier is not None and not earlier.is_symlink()  # links are refused below
    if replaces and not options.resume and not options.overwrite:
        raise ValueError(
            f"out is {str(folder)!r}, which already has a run: add --overwrite to replace it, or "
            "--resume to continue it"
        )
    if not (folder / _LOCK).exists():  # a killed training left that
        refuse_foreign(folder, (*OF_AGENT[1:], _LOG), what="out")
    resumed = earlier if options.resume else None
    new = options.agent() if resumed is None else None  # its errors must leave no folder
    with ending_as_interrupts(), _in_use(folder):
        agent = new or _loaded(options, resumed or checkpoint)
        steps, left = agent.num_timesteps, agent._unused_steps
        if resumed == checkpoint:
            paused = load_archive(checkpoint)[0]["training"]
            left += paused["total"] - paused["steps"]
        further = max(options.total_timesteps - steps - left, 0)
        if resumed == folder / AGENT_FILE and not further:
            ended = f"the training in {folder} has ended after {steps:,} steps"
            console.print(f"{ended}: more --total-timesteps continue it")
            return 0
        if resumed is not None:
            console.print(f"resuming after {steps:,} steps")
        with _reserved(folder) as free:
            evaluation = _trained(agent, options, resumed == checkpoint, further, console, free)
            free()
            _save(agent, options)
        _report(agent, options, evaluation, console)
        if evaluation is not None:
            _remove(checkpoint)
        files = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        console.print(f"files in {folder}: {', '.join(files)}")
    return 0 if evaluation is not None else INTERRUPTED


def _loaded(options: TrainFitted, file: Path) -> Agent:
    """Load the agent to resume, and refuse options that differ from those of its training."""
    known = resumed_defaults(options.folder, options.algo, options.trust_env or options.env_id)
    assert known is not None
    for option in fields(known):
        given, saved = getattr(options, option.name), getattr(known, option.name)
        more = option.name == "total_timesteps" and given > saved
        if option.name not in _MAY_CHANGE and given != saved and not more:
            raise ValueError(
                f"{option.name} is {given!r}: the resumed training has {saved!r}; leave it out"
            )
    return load_agent(file, env=options.env())  # type: ignore[arg-type]


def _trained(
    agent: Agent, options: TrainFitted, resumes: bool, further: int, console: Console,
    free: Callable[[], None],
) -> Evaluation | None:  # fmt: skip
    """Resume, train for further steps and evaluate; return the evaluation, or None after Ctrl-C."""
    try:
        with _episode_log(options) as log:
            common = dict[str, Any](actors=options.actors, progress_bar=True, callback=log)
            if options.checkpoint_every is not None:
                common["checkpoint"] = options.folder / CHECKPOINT_FILE
                common["checkpoint_every"] = options.checkpoint_every
            if resumes:
                agent.resume(**common)
            if further:
                agent.learn(further, **common)
        return evaluated(agent, options.n_eval_episodes, options.seed)
    except Stopped:
        raise
    except KeyboardInterrupt:
        if agent.num_timesteps == 0:
            raise
        console.print(f"Interrupted after {agent.num_timesteps:,} steps; saving what was learned.")
        if options.checkpoint_every is not None:
            console.print("The same command with --resume continues.")
        return None
    except Exception:
        free()
        if agent.num_timesteps > 0:
            _save(agent, options)
            steps = f"{agent.num_timesteps:,} steps"
            console.print(f"the agent is saved in {options.folder} after {steps}")
        raise


def _save(agent: Agent, options: TrainFitted) -> None:
    """Write the agent, and remove the log and checkpoint of an earlier one."""
    save(agent, options.folder)
    if options.log is None:
        _remove(options.folder / _LOG)
    if options.checkpoint_every is None:
        _remove(options.folder / CHECKPOINT_FILE)


def _report(
    agent: Agent, options: TrainFitted, evaluation: Evaluation | None, console: Console
) -> None:
    returns, doubt = evaluation or (None, None)
    if returns is not None:
        write_figures(agent, options.folder, returns=returns)
    console.print(summary(agent, returns, options.seed))
    if doubt is not None:
        console.print(doubt)
    if isinstance(agent, agents.ModelAgent) and agent.scale_ is not None:
        hint = f"; 'oda-rl explain {options.folder}' prints it" if has_state_table(agent) else ""
        console.print(f"the rule: {agent.rules()}{hint}")
        if agent._real.reason is not None:
            said = f"learning continued without the model: {agent.distrust}"
            fewer = "; --algo fitted may need fewer steps" if agent.interface.box is None else ""
            console.print(f"{said}{fewer}")
        elif agent.models_laws:
            console.print(f"the model is {agent.world.trust}")


@contextmanager
def _in_use(folder: Path) -> Iterator[None]:
    """Make and lock a run folder, and remove temporary files of a killed process; or OSError."""
    written = (*OF_AGENT, CHECKPOINT_FILE, _LOG, _RESERVE, _LOCK)
    refuse_links(*(folder / name for name in written))
    is_new = not folder.exists()
    try:
        with ExitStack() as stack:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(folder / _LOCK, f"out {str(folder)!r}"))
            except LockedError:
                raise
            except OSError as error:
                raise OSError(
                    f"out is {str(folder)!r}, which cannot be written to: {error.strerror}"
                ) from error
            sweep(folder, [*OF_AGENT, CHECKPOINT_FILE])
            yield
    finally:
        if is_new:
            with suppress(OSError):
                folder.rmdir()  # if it is empty


@contextmanager
def _reserved(folder: Path) -> Iterator[Callable[[], None]]:
    """Reserve disk space, so that the agent can be saved; yields the function that frees it.

    Raises OSError if there is too little space.
    """
    path = folder / _RESERVE
    with ExitStack() as stack:
        stack.callback(_remove, path)
        try:
            with open(path, "wb", opener=open_unlinked) as file:
                file.write(bytes(_RESERVED))
        except OSError as error:
            raise OSError(
                f"out is {str(folder)!r}, where {_RESERVED / 1e6:,.0f} MB for the agent and its "
                f"checkpoint cannot be reserved: {error.strerror}"
            ) from error
        yield stack.close


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _episode_log(options: TrainFitted) -> Iterator[Callable[[Agent], None] | None]:
    """Yield a callback for ``learn`` that logs each episode for TensorBoard; None for no log."""
    if options.log is None:
        yield None
        return
    folder = options.folder / _LOG
    refuse_links(folder)
    shutil.rmtree(folder, ignore_errors=True)  # TensorBoard would append to it
    for name in ("torch.utils.tensorboard", "tensorboardX"):
        with suppress(ImportError):
            writer = import_module(name).SummaryWriter(str(folder))
            break
    else:
        raise ValueError("log='tensorboard' needs TensorBoard: pip install 'oda-rl[tensorboard]'")
    n_episodes = steps = 0

    def log(agent: Agent) -> None:
        nonlocal n_episodes, steps
        for total, length, seconds in agent.episodes.since(n_episodes).tolist():
            steps += int(length)
            n_episodes += 1
            values = {"return": total, "length": length, "seconds": seconds,
                      "cells": agent.n_cells, "epsilon": agent.epsilon}  # fmt: skip
            for name, value in values.items():
                writer.add_scalar(f"episode/{name}", value, steps)

    try:
        yield log
    finally:
        writer.close()
        if not n_episodes:
            _remove(folder)
