"""What a report says of a policy, and its verification by playing that policy again."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents import Agent
from oda_rl.agents.base.agent import Player
from oda_rl.agents.base.files import present_versions
from oda_rl.agents.environments.adaptation import observed
from oda_rl.agents.environments.origins import Origin, from_json, to_json
from oda_rl.agents.environments.spaces import AnyEnv, Interface
from oda_rl.agents.policies.cells import CellPolicy, CodevectorPolicy
from oda_rl.agents.policies.contract import Policy
from oda_rl.agents.policies.export import json_document
from oda_rl.agents.policies.export_tables import export_of
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.policies.rules import number as short
from oda_rl.agents.policies.table import TablePolicy
from oda_rl.agents.rules.editing import Clauses
from oda_rl.envs.dynamics import known_dynamics
from oda_rl.files.archive import MAX_JSON, parsed
from oda_rl.files.schema import InvalidFileError, number, reading, require
from oda_rl.runs.statistics import mean_interval

FORMAT, VERSION = "oda_rl report", 1
_POLICY_FORMAT = "oda_rl policy"
_MAX_EPISODES = 1_000_000
_MAX_BYTES = 1 << 26
_TOLERANCE = 1e-9  # relative: sums of rewards that were added in another order


@dataclass(frozen=True)
class Report:
    """All that a report says of a policy in numbers; the rest of a page is drawn from the agent."""

    policy: str
    """Its JSON export, as ``oda-rl export --format json`` writes it."""
    interface: Mapping[str, Any]
    """Of the environment, as agents' files have it."""
    env_id: str | None
    env_spec: Mapping[str, Any] | None
    """What the environment is made of, as agents' files have it."""
    returns: tuple[float, ...]
    """Of fresh greedy episodes, one after the other."""
    seed: int
    """Of the environment's first reset in these."""
    versions: Mapping[str, str]
    """Of oda_rl, Python and libraries, with which the episodes were played."""
    scale: tuple[float, ...] = ()
    """Inverse standard deviations of the observation's components, in which distances are."""
    value_name: str = "value"
    """What actions are compared by."""
    parts: tuple[str, ...] = ()
    """Names of the components of continuous actions."""
    world: Mapping[str, Any] | None = None
    """What the page needs to step the environment (:meth:`ReportPlayer.world`)."""

    @property
    def digest(self) -> str:
        """SHA-256 of the policy's export."""
        return hashlib.sha256(self.policy.encode("utf-8")).hexdigest()

    @property
    def score(self) -> str:
        """What the card says about the returns."""
        returns = np.array(self.returns)
        low, high = mean_interval(returns)
        return (
            f"mean {short(float(returns.mean()))}, 95 % interval {short(low)} to {short(high)}, "
            f"least {short(float(returns.min()))}, of {len(returns)} fresh episodes"
        )

    def to_json(self) -> dict[str, Any]:
        """Return all fields, for :meth:`from_json`."""
        return {"format": FORMAT, "version": VERSION, **vars(self)}

    @classmethod
    def from_json(cls, given: Any) -> "Report":
        """Take over what :meth:`to_json` returned, or raise InvalidFileError.

        What only the page shows by is not looked at, and not believed: it is left out.
        """
        require(isinstance(given, dict) and given.get("format") == FORMAT, f"it is no {FORMAT}")
        require(given["version"] == VERSION, f"version is {given['version']!r}: not {VERSION}")
        for name in ("policy", "interface", "returns", "versions"):
            kind = {"policy": str, "returns": list}.get(name, dict)
            require(isinstance(given[name], kind), f"{name} is no {kind.__name__}")
        n, env_id, seed = len(given["returns"]), given["env_id"], given["seed"]
        require(1 <= n <= _MAX_EPISODES, f"returns has {n} numbers")
        require(type(seed) is int and seed >= 0, f"seed is {seed!r}")
        require(env_id is None or isinstance(env_id, str), "env_id is no text")
        returns = [number(value, "returns") for value in given["returns"]]
        return cls(
            given["policy"], given["interface"], env_id, given["env_spec"], tuple(returns), seed,
            {str(name): str(one) for name, one in given["versions"].items()},
        )  # fmt: skip

    def player(self, trusting: bool = False) -> "ReportPlayer":
        """Return a player that knows of the policy only what this report says.

        Modules that the report names are imported only if ``trusting``. Raises InvalidFileError.
        """
        policy = policy_of(parsed(self.policy, MAX_JSON))
        origin = None if self.env_spec is None else from_json(self.env_spec)
        interface = Interface.from_json(dict(self.interface))
        return ReportPlayer(policy, interface, self.env_id, origin, trusting)


def report_of(agent: Agent, episodes: int = 100, seed: int = 0) -> Report:
    """Say what an agent delivers, and play it by what is said: what is verified later is the same.

    Parameters
    ----------
    agent : Agent
        A trained one, whose environment can be made anew.
    episodes : int
        To play.
    seed : int
        Of the environment's first reset.

    Raises
    ------
    ValueError
        If it has learned nothing, or its environment cannot be made.

    Examples
    --------
    >>> from oda_rl.agents import TwoTimescaleAgent
    >>> agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(20_000)
    >>> report = report_of(agent, episodes=5)
    >>> np.array_equal(report.returns, agent.evaluate(5, seed=0))
    True
    """
    export, origin, scale = export_of(agent), agent.origin, agent.scale_
    assert scale is not None  # of what could be exported
    said = Report(
        policy=json_document(export),
        interface=agent.interface.to_json(),
        env_id=agent.env_id,
        env_spec=None if origin is None else to_json(origin),
        returns=(),
        seed=seed,
        versions=present_versions(),
        scale=tuple(scale.tolist()),
        value_name=agent.policy.value_name,
        parts=tuple(export.parts),
    )
    trusting = not agent.named_by_file
    player = said.player(trusting)
    returns = tuple(player.evaluate(episodes, seed=seed).tolist())
    return replace(said, returns=returns, world=player.world())


class ReportPlayer(Player):
    """Plays by a policy of which nothing else is known than what a report says."""

    def __init__(
        self,
        policy: Policy,
        interface: Interface,
        env_id: str | None,
        origin: Origin | None,
        trusting: bool,
    ) -> None:
        n = interface.n_actions if interface.box is None else policy.n_actions
        d = policy.codevectors.shape[1]
        require(
            (n, d) == (policy.n_actions, interface.n_features),
            f"the policy is of {d} components and {policy.n_actions} actions: the environment has "
            f"{interface.n_features} and {n}",
        )
        self._policy, self.interface, self.env_id = policy, interface, env_id
        self._origin, self.named_by_file = origin, not trusting

    @property
    def policy(self) -> Policy:
        """The policy it plays by."""
        return self._policy

    @property
    def epsilon(self) -> float:
        """0: it never explores."""
        return 0.0

    def world(self) -> dict[str, Any] | None:
        """Return what a page needs to step the environment; None if no page knows how to.

        That is the name of its class, its constants, and its actions if the agent chose among
        combinations of others.
        """
        if self._origin is not None and self._origin.wrappers:
            return None
        env = self._other_env()
        try:
            dynamics = known_dynamics(cast(Any, env))
            kind = type(env.unwrapped).__name__
        finally:
            env.close()
        if dynamics is None:
            return None
        found: dict[str, Any] = {"kind": kind, "parameters": dynamics.parameters.tolist()}
        native = self.interface.native
        if native is not None and native.offers_combinations and self.interface.box is None:
            found["choices"] = native.actions(np.arange(self.interface.n_actions)).tolist()
        return found

    @property
    def _bins(self) -> int:
        native = self.interface.native
        return 2 if native is None or native.bins is None else native.bins

    def _adapted(self, env: AnyEnv) -> AnyEnv:
        return super()._adapted(env) if self.interface.box is None else observed(cast(Any, env))

    def _interface_of(self, env: AnyEnv) -> Interface:
        n = self.interface.n_components
        return Interface.of(env, self.interface.n_actions // n if n else None)


def policy_of(document: Mapping[str, Any]) -> Policy:
    """Make a policy of what :func:`oda_rl.agents.export_policy` wrote as JSON.

    Parameters
    ----------
    document : Mapping
        The JSON, parsed.

    Raises
    ------
    InvalidFileError
        If it is something else.

    Examples
    --------
    >>> import json
    >>> from oda_rl.agents import TwoTimescaleAgent
    >>> from oda_rl.agents.policies.export import json_document
    >>> from oda_rl.agents.policies.export_tables import export_of
    >>> agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(2_000)
    >>> policy = policy_of(json.loads(json_document(export_of(agent))))
    >>> np.array_equal(policy.q_values, agent.q_values)
    True
    """
    require(isinstance(document, Mapping), "the policy is no JSON object")
    require(
        document.get("format") == _POLICY_FORMAT,
        f"the policy is not of the format {_POLICY_FORMAT!r}",
    )
    arrays = {name: _array(document, name) for name in ("origin", "diagram", "codevectors")}
    if "affine_actions" in document:
        outputs, (middle, half) = _array(document, "affine_actions"), _box(document)
        outputs[:, :, 0] -= middle
        return _rule(document, arrays, outputs / half[:, None])
    values = _array(document, "values")
    if "clauses" in document:
        ones = np.eye(values.shape[1])[values.argmax(axis=1)]
        return _rule(document, arrays, ones[:, :, None])
    if "common" not in document:
        return TablePolicy.from_arrays({**arrays, "q_values": values})
    arrays["models"] = np.column_stack([_array(document, "common"), values])
    arrays["width"] = _array(document, "width")
    arrays["n_nearest"] = np.array(document["n_nearest"])
    if "action_codevectors" not in document:
        return CellPolicy.from_arrays(arrays)
    middle, half = _box(document)
    parts = (_array(document, "action_codevectors") - middle) / half
    return CodevectorPolicy.from_arrays({**arrays, "parts": parts})


def _array(document: Mapping[str, Any], name: str) -> FloatArray:
    return np.array(document[name], dtype=np.float64)


def _box(document: Mapping[str, Any]) -> tuple[FloatArray, FloatArray]:
    """Return the middle of the actions' box, and half its width; 1 of a component without any."""
    low, high = (_array(document["actions"], name) for name in ("low", "high"))
    return 0.5 * (low + high), np.where(high > low, 0.5 * (high - low), 1.0)


def _rule(
    document: Mapping[str, Any], arrays: Mapping[str, FloatArray], outputs: FloatArray
) -> RulePolicy:
    """Return a rule of some cells, of which the last say what clauses do."""
    scores, n = 0.0 - arrays["diagram"], len(arrays["diagram"])
    own = {"scores": scores, "outputs": outputs[:n], "codevectors": arrays["codevectors"]}
    given = document.get("clauses", [])
    if given:
        width = scores.shape[1]
        rows = [np.array(one["where"], dtype=np.float64).reshape(-1, width) for one in given]
        both = list(zip(given, rows, strict=True))
        clauses = Clauses.of(
            [(where, one["forbids"]) for one, where in both if "forbids" in one],
            [(where, outputs[one["cell"]], one["locked"]) for one, where in both if "cell" in one],
            own["outputs"],
        )
        own |= {f"clauses_{name}": array for name, array in clauses.arrays.items()}
    return RulePolicy.from_arrays(own)


@dataclass(frozen=True)
class Verdict:
    """What has been found of a report."""

    claimed: str
    """The score on the card."""
    faults: tuple[str, ...]
    """What is not true; none if all is."""
    remarks: tuple[str, ...]
    """What may explain that, or is to be known beside it."""

    @property
    def true(self) -> bool:
        """Whether the score on the card is true."""
        return not self.faults

    def __str__(self) -> str:
        found = "true" if self.true else "not true"
        lines = [f"the card says: {self.claimed}", *self.faults, *self.remarks]
        return "\n".join([*lines, f"the score on the card is {found}"])


def verify(path: Path, trusting: bool = False) -> Verdict:
    """Play the policy in a report again, and compare.

    What the page shows has to follow from its numbers, these from the policy. How the policy was
    learned cannot be seen from it, and is not verified.

    Parameters
    ----------
    path : Path
        A file that ``oda-rl report`` wrote.
    trusting : bool
        Whether modules are imported that the file names.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    InvalidFileError
        If it is no report, or a damaged one.
    ValueError
        If its environment cannot be made.

    Examples
    --------
    >>> import tempfile
    >>> from oda_rl.agents import TwoTimescaleAgent
    >>> from oda_rl.reporting.page import write_page
    >>> agent = TwoTimescaleAgent("CartPole-v1", seed=0).learn(2_000)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_page(agent, report_of(agent, episodes=3), Path(folder) / "report.html")
    ...     verify(page).true
    True
    """
    if path.is_dir():
        raise ValueError(f"run is {str(path)!r}, which is a folder: --verify takes a report")
    with reading(path):
        parts = _parts_of(path)
        report = Report.from_json(parsed(parts["report"], MAX_JSON))
        player = report.player(trusting)
    claimed = parts.get("score", "nothing").strip()
    faults = []
    if claimed != report.score:
        faults.append(f"the returns in the file say: {report.score}")
    if parts.get("digest", "").strip() != report.digest:
        faults.append(f"the policy in the file has the digest {report.digest}: the card another")
    played = player.evaluate(len(report.returns), seed=report.seed)
    differ = ~np.isclose(played, report.returns, rtol=_TOLERANCE, atol=0.0)
    if differ.any():
        faults.append(
            f"played again, {differ.sum()} of {len(played)} episodes return something else: mean "
            f"{played.mean():.4g}, not {np.mean(report.returns):.4g}"
        )
    return Verdict(claimed, tuple(faults), tuple(_remarks(report, bool(differ.any()))))


def _remarks(report: Report, differs: bool) -> list[str]:
    now = present_versions()
    others = [f"{name} {one}" for name, one in report.versions.items() if now.get(name) != one]
    if not others:
        return []
    why = ", which may be why" if differs else ""
    return [f"it was made with {', '.join(others)}: here are others{why}"]


class _Parts(HTMLParser):
    """Collects the text of elements with an id that are of interest, of each the only one."""

    _WANTED = ("report", "score", "digest")

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self._open: tuple[str, str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        name = dict(attrs).get("id") or ""
        if name in self._WANTED:
            require(name not in self.found, f"{name} stands in it twice")
            self.found[name] = ""
            self._open = tag, name

    def handle_endtag(self, tag: str) -> None:
        if self._open is not None and self._open[0] == tag:
            self._open = None

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self.found[self._open[1]] += data


def _parts_of(path: Path) -> dict[str, str]:
    """Return texts of a report's elements by their ids, or raise InvalidFileError."""
    size = path.stat().st_size
    require(size <= _MAX_BYTES, f"it has {size:,} bytes: no report has more than {_MAX_BYTES:,}")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidFileError("it is no text, and so no report") from None
    parser = _Parts()
    parser.feed(text)
    parser.close()
    require("report" in parser.found, "it is no report of oda-rl report")
    return parser.found
