"""``oda-rl train``: its options, and what a training does beside learning."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from oda_rl._types import FloatArray
from oda_rl.agents import (
    Actors,
    Agent,
    CodevectorAgent,
    FittedQAgent,
    FittedQConfig,
    ModelAgent,
    ModelConfig,
    TwoTimescaleAgent,
    TwoTimescaleConfig,
    load_agent,
)
from oda_rl.agents.base.files import AGENT_FILE, CONFIG_FILE
from oda_rl.agents.base.progress import Stopped, ending_as_interrupts
from oda_rl.agents.environments.making import make_env, registered
from oda_rl.agents.environments.origins import from_json
from oda_rl.agents.environments.spaces import AnyEnv
from oda_rl.agents.partitions.gmm import GMMSettings
from oda_rl.agents.partitions.grid import GridSettings
from oda_rl.agents.partitions.infex import InfexSettings
from oda_rl.agents.partitions.oda import ODASettings
from oda_rl.agents.partitions.som import SOMSettings
from oda_rl.agents.videos import check_video, write_video
from oda_rl.command.folders import CHECKPOINT_FILE, forget_others, in_use, remove, reserved
from oda_rl.command.logs import episode_log
from oda_rl.command.report import metric_table, summary, write_figures
from oda_rl.files.archive import load_archive
from oda_rl.reporting.page import tells_states_apart

_GRID = 5  # values of a component of a continuous action
_FORESEEN = 1_000_000  # steps that there has to be space for
INTERRUPTED = 130  # what shells report for Ctrl-C


@dataclass(frozen=True)
class TrainFitted:
    """Train an agent; write it, its configuration, its episodes and its figures to a folder."""

    env_id: str = "CartPole-v1"
    """Gymnasium id of the environment; 'module:id' imports a module first."""

    algo: Literal["fitted", "two-timescale", "model"] = "fitted"
    """fitted: refits cells and values to all transitions. two-timescale: learns online, with a
    handful of cells, in microseconds a step. model: learns the world, and searches a rule in
    imagination, with the fewest steps. Each has settings of its own: ask 'oda-rl train --algo model
    --help'."""

    env_kwargs: str | None = None
    """Arguments of the environment as JSON, such as '{"is_slippery": false}'; max_episode_steps is
    among them."""

    config_file: Annotated[Path | None, tyro.conf.arg(name="config")] = None
    """File to take all options from that are not given: config.json of a run folder."""

    seed: int = 0
    """Of all randomness."""

    total_timesteps: int = 50_000
    """Environment steps to train for."""

    out: Path | None = None
    """Run folder to write; by default runs/ENV_ID-SEED. A run already there is replaced."""

    eval_episodes: int = 100
    """Greedy episodes to play after training."""

    video: Path | None = None
    """Folder for films of a few more greedy episodes."""

    log: Literal["csv", "tensorboard"] | None = None
    """Log each episode as it ends, in the run folder. csv: to episodes.csv. tensorboard: to
    tensorboard/."""

    checkpoint_every: int | None = None
    """Write all that it takes to go on to checkpoint.zip in the run folder, every so many steps."""

    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Go on with the training whose checkpoint is in the run folder, with its options; without one,
    from the beginning."""

    trust_env: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Import the module that the file of --config, or of the training to resume, names for its
    environment."""

    workers: int | None = None
    """For environments that take milliseconds a step: so many actors play whole episodes, each in a
    process of its own, and this one learns from them. Of --algo fitted."""

    backend: Literal["dask"] = "dask"
    """Who runs the actors' processes: Dask, which needs pip install 'oda-rl[cluster]'."""

    address: str | None = None
    """Of the scheduler of a Dask cluster for them, tcp://host:port; by default processes of this
    machine."""

    actions: Literal["grid", "codevectors"] = "grid"
    """Of continuous actions. grid: the values of a grid are offered. codevectors: joint codevectors
    of states and actions, which are drawn to the actions taken; for a Box only."""

    config: FittedQConfig = field(default_factory=FittedQConfig)
    """Settings of the agent."""

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.out or _default_folder(self.env_id, self.seed)

    @property
    def actors(self) -> Actors | None:
        """Who plays, if it is not the agent itself."""
        if self.workers is not None:
            return Actors(self.workers, self.address)
        if self.address is not None:
            raise ValueError(f"address is {self.address!r}: it needs --workers, too")
        return None

    def env(self) -> str | AnyEnv:
        """Return the environment's id, or, if it is given arguments, the environment."""
        if self.env_kwargs is None:
            return self.env_id
        return make_env(self.env_id, **parsed_kwargs(self.env_kwargs))

    def agent(self) -> Agent:
        """Make the agent."""
        kind = CodevectorAgent if self.actions == "codevectors" else FittedQAgent
        return kind(self.env(), seed=self.seed, **vars(self.config))


@dataclass(frozen=True)
class TrainModel(TrainFitted):
    """Train an agent; write it, its configuration, its episodes and its figures to a folder."""

    algo: Literal["fitted", "two-timescale", "model"] = "model"
    """See 'oda-rl train --help'."""

    total_timesteps: int = 5_000
    """Environment steps to train for."""

    actions: Literal["grid", "affine"] = "affine"  # type: ignore[assignment]
    """Of continuous actions. affine: each cell's is an affine function of the observation. grid:
    the values of a grid are offered."""

    config: ModelConfig = field(default_factory=ModelConfig)  # type: ignore[assignment]
    """Settings of the agent."""

    def agent(self) -> Agent:
        """Make the agent."""
        settings = dict(vars(self.config))
        if self.actions == "grid":
            settings["action_bins"] = settings["action_bins"] or _GRID
        return ModelAgent(self.env(), seed=self.seed, **settings)


@dataclass(frozen=True)
class TrainTwoTimescale(TrainFitted):
    """Train an agent; write it, its configuration, its episodes and its figures to a folder."""

    algo: Literal["fitted", "two-timescale", "model"] = "two-timescale"
    """See 'oda-rl train --help'."""

    actions: Literal["grid"] = "grid"
    """Of continuous actions the values of a grid are offered."""

    partition: str = "oda"
    """How observations are aggregated: oda (annealed cells), gmm (nearest mean of a
    Gaussian mixture), grid (uniform cells), infex (exemplars of a mixture density) or som (a
    self-organising map)."""

    config: TwoTimescaleConfig = field(default_factory=TwoTimescaleConfig)  # type: ignore[assignment]
    """Settings of the agent."""

    oda: ODASettings = field(default_factory=ODASettings)
    """Settings of annealed cells."""

    gmm: GMMSettings = field(default_factory=GMMSettings)
    """Settings of the Gaussian mixture."""

    grid: GridSettings = field(default_factory=GridSettings)
    """Settings of uniform cells."""

    infex: InfexSettings = field(default_factory=InfexSettings)
    """Settings of the exemplars of a mixture density."""

    som: SOMSettings = field(default_factory=SOMSettings)
    """Settings of a self-organising map."""

    def agent(self) -> Agent:
        """Make the agent; a setting of a partition that is not the agent's is refused."""
        cells = (self.oda, self.gmm, self.grid, self.infex, self.som)
        given = {
            setting.name: value
            for settings in cells
            for setting in fields(settings)
            if (value := getattr(settings, setting.name)) != setting.default
        }
        return TwoTimescaleAgent(
            self.env(), partition=self.partition, seed=self.seed, **vars(self.config), **given
        )


_KINDS: dict[str, type[TrainFitted]] = {
    "fitted": TrainFitted, "two-timescale": TrainTwoTimescale, "model": TrainModel
}  # fmt: skip
_ALGORITHMS = {"FittedQAgent": "fitted", "CodevectorAgent": "fitted", "ModelAgent": "model",
               "TwoTimescaleAgent": "two-timescale"}  # fmt: skip
FREE = {"out", "config_file", "eval_episodes", "video", "log", "checkpoint_every", "resume",
        "trust_env", "workers", "backend", "address"}  # fmt: skip
"""Options that need not be those of the training that is resumed."""
GROUPS = ("config", "oda", "gmm", "grid", "infex", "som")  # fields that hold settings


def defaults_for(algo: str | None, config_file: str | None, trust_env: bool = False) -> TrainFitted:
    """Return the options of an algorithm, those of a configuration file if there is one.

    Raises
    ------
    ValueError
        If the file cannot be read, or is none, or names a module to import and is not trusted.
    """
    if config_file is None:
        return _KINDS.get(algo or "", TrainFitted)()
    try:
        found = json.loads(Path(config_file).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"config is {config_file!r}, which is no JSON: {error}") from error
    if not isinstance(found, dict) or found.get("algorithm") not in _ALGORITHMS:
        raise ValueError(f"config is {config_file!r}: it must be {CONFIG_FILE} of a run folder")
    own = _ALGORITHMS[found["algorithm"]]
    if algo not in (None, own):
        raise ValueError(f"algo is {algo!r}: config {config_file!r} is of {own!r}")
    try:
        return _configured(_KINDS[own](config_file=Path(config_file)), found, trust_env)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"config is {config_file!r}: it cannot have {error}") from error


def resumed_defaults(folder: Path, algo: str | None, trust_env: bool) -> TrainFitted | None:
    """Return the options of the training whose checkpoint is in a folder; None if there is none.

    Raises
    ------
    ValueError
        If there is something else, it is of another algorithm, or it names a module to import and
        is not trusted.
    """
    path = folder / CHECKPOINT_FILE
    if not path.exists():
        return None
    found, _ = load_archive(path)
    own = _ALGORITHMS.get(str(found.get("kind")))
    training = found.get("training")
    if own is None or not isinstance(training, dict):
        raise ValueError(f"{str(path)!r} is no checkpoint of a training")
    if algo not in (None, own):
        raise ValueError(f"algo is {algo!r}: the training that is resumed has {own!r}")
    known = {
        **found, "algorithm": found["kind"], "num_timesteps": training.get("total"),
        "seed": training.get("seed") or 0,
    }  # fmt: skip
    try:
        defaults = _KINDS[own](checkpoint_every=training.get("every"))
        return _configured(defaults, known, trust_env)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{str(path)!r} is damaged: it cannot have {error}") from error


def _default_folder(env_id: str, seed: int | str) -> Path:
    return Path("runs") / f"{re.sub(r'[/:]', '-', env_id)}-{seed}"


def _configured(defaults: TrainFitted, found: Mapping[str, Any], trust_env: bool) -> TrainFitted:
    """Put what a configuration says in the place of defaults."""
    settings, more = dict(found["config"]), dict[str, Any]()
    for name in GROUPS:
        group: Any = getattr(defaults, name, None)
        if group is not None:
            own = {one.name for one in fields(group)} & settings.keys()
            more[name] = replace(group, **{key: settings[key] for key in own})
            if name == "config":
                settings = {key: value for key, value in settings.items() if key not in own}
    if found["algorithm"] == "CodevectorAgent":
        more["actions"] = "codevectors"
    if isinstance(defaults, TrainTwoTimescale):
        more["partition"] = found["partition"]
    spec = found.get("env_spec") or {}
    if spec.get("wrappers") or spec.get("fault") or found["env_id"] is None:
        raise ValueError(
            f"config is of an agent trained in {found['env_id'] or spec.get('name')} with wrappers "
            "or what no file holds: the command cannot make that environment"
        )
    module = None if registered(found["env_id"]) else spec.get("module")
    env_id = f"{module}:{found['env_id']}" if module else found["env_id"]
    foreign = env_id.rpartition(":")[0]
    if spec and not foreign:
        foreign = from_json({**spec, "id": env_id}).foreign()
    if foreign and not trust_env:
        raise ValueError(
            f"{str(defaults.config_file or CHECKPOINT_FILE)!r} names the environment {env_id!r}, "
            f"for which the module {foreign!r} would be imported: give --trust-env, too, if that "
            "is what you want"
        )
    more |= {"env_id": env_id, "env_kwargs": _env_kwargs(spec)}
    more |= {name: found[name] for name in ("seed",) if name in found}
    return replace(defaults, total_timesteps=found["num_timesteps"], **more)


def _env_kwargs(spec: Mapping[str, Any]) -> str | None:
    """Return the arguments that an environment has beside those that belong to its id, as JSON."""
    known = registered(spec.get("id") or "")
    kwargs, usual = dict(spec.get("kwargs", {})), {} if known is None else known.kwargs
    given = {key: one for key, one in kwargs.items() if key not in usual or usual[key] != one}
    limit = spec.get("max_episode_steps")
    if spec and known is not None and limit != known.max_episode_steps:
        given["max_episode_steps"] = -1 if limit is None else limit
    return json.dumps(given) if given else None


def parsed_kwargs(text: str) -> dict[str, Any]:
    """Return arguments from JSON.

    >>> parsed_kwargs('{"is_slippery": false}')
    {'is_slippery': False}
    """
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"env_kwargs is {text!r}, which is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f'env_kwargs is {text!r}: it must be an object such as {{"g": 9.81}}')
    return found


def train(options: TrainFitted, console: Console) -> int:
    """Train, evaluate, save, draw; after Ctrl-C, or an error, save what was learned."""
    folder, checkpoint = options.folder, options.folder / CHECKPOINT_FILE
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out is {str(folder)!r}, which is a file: it must be a folder")
    if options.eval_episodes < 1:
        raise ValueError(f"eval_episodes is {options.eval_episodes}: it must be at least 1")
    if options.actors is not None and options.algo != "fitted":
        raise ValueError(
            f"workers is {options.workers}, and algo is {options.algo!r}, which plays itself: "
            "leave --workers out, or give --algo fitted"
        )
    goes_on = options.resume and checkpoint.exists()
    if options.resume and not goes_on and (folder / AGENT_FILE).exists():
        console.print(f"the training in {folder} has ended: there is nothing to resume")
        return 0
    made = None if goes_on else options.agent()  # before there is a folder
    with ending_as_interrupts(), in_use(folder):
        agent = _loaded(options, checkpoint) if made is None else made
        if options.video is not None:
            check_video(agent, options.video)
        if goes_on:
            console.print(f"going on after {agent.num_timesteps:,} steps")
        elif checkpoint.exists():
            console.print(f"{checkpoint} is of another training, and is replaced: stop it, and")
            console.print("give --resume, to go on with that")
        copies = 1 if options.checkpoint_every is None else 2
        size = copies * agent.most_bytes(min(options.total_timesteps, _FORESEEN))
        with reserved(folder, size) as free:
            returns = _learned(agent, options, goes_on, console, free)
            free()
            _save(agent, options)
        _report(agent, options, returns, console)
        if returns is not None:
            remove(checkpoint)
        files = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        console.print(f"files in {folder}: {', '.join(files)}")
    return 0 if returns is not None else INTERRUPTED


def _learned(
    agent: Agent, options: TrainFitted, goes_on: bool, console: Console, free: Callable[[], None]
) -> FloatArray | None:
    """Train and evaluate; returns None after Ctrl-C. What fails is told when the agent is saved."""
    try:
        return _trained(agent, options, goes_on)
    except Stopped:
        raise
    except KeyboardInterrupt:
        if agent.num_timesteps == 0:
            raise
        console.print(f"Interrupted after {agent.num_timesteps:,} steps; saving what was learned.")
        if options.checkpoint_every is not None:
            console.print("The same command with --resume goes on.")
        return None
    except Exception:
        free()
        if agent.num_timesteps > 0:
            _save(agent, options)
            steps = f"{agent.num_timesteps:,} steps"
            console.print(f"what was learned in {steps} is saved in {options.folder}")
        raise


def _loaded(options: TrainFitted, checkpoint: Path) -> Agent:
    """Load the agent of a checkpoint, and refuse options that are not those of its training."""
    known = resumed_defaults(options.folder, options.algo, options.trust_env)
    assert known is not None
    for one in fields(known):
        mine, own = getattr(options, one.name), getattr(known, one.name)
        if one.name not in FREE and mine != own:
            raise ValueError(
                f"{one.name} is {mine!r}: the training that is resumed has {own!r}; leave it out"
            )
    return load_agent(checkpoint, env=options.env())  # type: ignore[arg-type]


def _trained(agent: Agent, options: TrainFitted, goes_on: bool) -> FloatArray:
    """Train, or go on, and evaluate; returns the returns."""
    kept: dict[str, Any] = {"actors": options.actors}
    if options.checkpoint_every is not None:
        kept["checkpoint"] = options.folder / CHECKPOINT_FILE
        kept["checkpoint_every"] = options.checkpoint_every
    with episode_log(options.log, options.folder) as log:
        if goes_on:
            agent.resume(callback=log, progress_bar=True, **kept)
        else:
            agent.learn(options.total_timesteps, callback=log, progress_bar=True, **kept)
    return agent.evaluate(options.eval_episodes, seed=options.seed + 1, progress_bar=True)


def _save(agent: Agent, options: TrainFitted) -> None:
    """Write the agent; nothing of an earlier one is left in the folder."""
    agent.save(options.folder)
    forget_others(options.folder, options.log, options.checkpoint_every is not None)


def _report(
    agent: Agent, options: TrainFitted, returns: FloatArray | None, console: Console
) -> None:
    """Draw and print, now that the agent has been saved."""
    if returns is not None:
        write_figures(agent, options.folder, returns=returns)
    console.print(summary(agent, returns))
    if (table := metric_table(agent)) is not None:
        console.print(table)
    if isinstance(agent, ModelAgent):
        _say_rule(agent, options.folder, console)
    if options.video is not None and returns is not None:
        films = write_video(agent, options.video, options.seed + 1)
        console.print(f"films in {options.video}: {', '.join(path.name for path in films)}")


def _say_rule(agent: ModelAgent, folder: Path, console: Console) -> None:
    told = f"; 'oda-rl explain {folder}' prints it" if tells_states_apart(agent) else ""
    console.print(f"the rule: {agent.rules()}{told}")
    if agent.models_laws:
        console.print(f"the model is {agent.world.trust}")
    if agent.distrust is not None:
        console.print("so learning went on in the real environment alone")
