"""``oda-rl train``: its options, and what a training does beside learning."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from oda_rl import persistence
from oda_rl.agents import (
    Agent,
    CodevectorAgent,
    FittedQAgent,
    FittedQConfig,
    ModelAgent,
    ModelConfig,
    TwoTimescaleAgent,
    TwoTimescaleConfig,
)
from oda_rl.agents.engine.files import CONFIG_FILE
from oda_rl.agents.environments.making import make_env, registered
from oda_rl.agents.environments.spaces import AnyEnv
from oda_rl.agents.partitions.gmm import GMMSettings
from oda_rl.agents.partitions.grid import GridSettings
from oda_rl.agents.partitions.infex import InfexSettings
from oda_rl.agents.partitions.oda import ODASettings
from oda_rl.agents.partitions.som import SOMSettings
from oda_rl.agents.videos import check_video, write_video
from oda_rl.command.logs import episode_log
from oda_rl.command.report import metric_table, summary, tells_states_apart, write_figures

_GRID = 5  # values of a component of a continuous action
_INTERRUPTED = 130  # what shells report for Ctrl-C


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

    actions: Literal["grid", "codevectors"] = "grid"
    """Of continuous actions. grid: the values of a grid are offered. codevectors: joint codevectors
    of states and actions, which are drawn to the actions taken; for a Box only."""

    config: FittedQConfig = field(default_factory=FittedQConfig)
    """Settings of the agent."""

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
    """How observations are aggregated: oda (annealed cells), gmm (components of a Gaussian
    mixture), grid (uniform cells), infex (exemplars of a mixture density) or som (a self-organising
    map)."""

    config: TwoTimescaleConfig = field(default_factory=TwoTimescaleConfig)  # type: ignore[assignment]
    """Settings of the agent."""

    oda: ODASettings = field(default_factory=ODASettings)
    """Settings of annealed cells."""

    gmm: GMMSettings = field(default_factory=GMMSettings)
    """Settings of the components of a Gaussian mixture."""

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
_GROUPS = ("config", "oda", "gmm", "grid", "infex", "som")  # fields that hold settings


def defaults_for(algo: str | None, config_file: str | None) -> TrainFitted:
    """Return the options of an algorithm, those of a configuration file if there is one.

    Raises
    ------
    ValueError
        If the file cannot be read, or is none.
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
        return _configured(_KINDS[own](config_file=Path(config_file)), found)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"config is {config_file!r}: it cannot have {error}") from error


def _configured(defaults: TrainFitted, found: Mapping[str, Any]) -> TrainFitted:
    """Put what a configuration says in the place of defaults."""
    settings, more = dict(found["config"]), dict[str, Any]()
    for name in _GROUPS:
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
    module = spec.get("module")
    env_id = f"{module}:{found['env_id']}" if module else found["env_id"]
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
    """Train, evaluate, save, draw; after Ctrl-C, save what was learned."""
    name = re.sub(r"[/:]", "-", options.env_id)
    folder = options.out or Path("runs") / f"{name}-{options.seed}"
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out is {str(folder)!r}, which is a file: it must be a folder")
    if options.eval_episodes < 1:
        raise ValueError(f"eval_episodes is {options.eval_episodes}: it must be at least 1")
    agent = options.agent()
    if options.video is not None:
        check_video(agent)
    returns = None
    try:
        with episode_log(options.log, folder) as log:
            agent.learn(options.total_timesteps, callback=log, progress_bar=True)
        returns = agent.evaluate(options.eval_episodes, seed=options.seed + 1, progress_bar=True)
    except KeyboardInterrupt:
        console.print(f"Interrupted after {agent.num_timesteps:,} steps; saving what was learned.")
    agent.save(folder)
    _note_seed(folder / CONFIG_FILE, options.seed)
    if returns is not None:
        write_figures(agent, folder, returns=returns)
    console.print(summary(agent, returns))
    if (table := metric_table(agent)) is not None:
        console.print(table)
    if isinstance(agent, ModelAgent):
        _say_rule(agent, folder, console)
    if options.video is not None and returns is not None:
        films = write_video(agent, options.video, options.seed + 1)
        console.print(f"films in {options.video}: {', '.join(path.name for path in films)}")
    console.print(f"files in {folder}: {', '.join(sorted(path.name for path in folder.iterdir()))}")
    return 0 if returns is not None else _INTERRUPTED


def _note_seed(path: Path, seed: int) -> None:
    """Add to a configuration what the agent does not know of itself."""
    config = {**json.loads(path.read_text(encoding="utf-8")), "seed": seed}
    persistence.write_text(path, json.dumps(config, indent=2) + "\n")


def _say_rule(agent: ModelAgent, folder: Path, console: Console) -> None:
    told = f"; 'oda-rl explain {folder}' prints it" if tells_states_apart(agent) else ""
    console.print(f"the rule: {agent.rules()}{told}")
    if agent.models_laws:
        console.print(f"the model is {agent.world.trust}")
    if agent.distrust is not None:
        console.print("so learning went on in the real environment alone")
