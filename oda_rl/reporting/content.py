"""The content of a report, and its verification by evaluating the policy in it again."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from html import escape, unescape
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path
from string import Template
from typing import Any, cast

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents import Agent
from oda_rl.agents.base.files import present_versions
from oda_rl.agents.base.player import Limits, Player
from oda_rl.agents.environments.adaptation import observed
from oda_rl.agents.environments.origins import Origin, from_json, to_json
from oda_rl.agents.environments.spaces import AnyEnv, Interface
from oda_rl.agents.policies.cells import CellPolicy, CodevectorPolicy, MixturePolicy, TablePolicy
from oda_rl.agents.policies.contract import Policy
from oda_rl.agents.policies.export import json_document
from oda_rl.agents.policies.export_tables import export_of
from oda_rl.agents.policies.joint import JointPolicy
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.policies.rules import number as short
from oda_rl.agents.rules.editing import Clauses
from oda_rl.envs.dynamics import known_dynamics
from oda_rl.files.archive import parsed
from oda_rl.files.schema import InvalidFileError, number, printable, reading, require
from oda_rl.runs.statistics import mean_interval

FORMAT, VERSION = "oda_rl report", 1
_POLICY_FORMAT = "oda_rl policy"
_MAX_EPISODES = 1_000_000
_MAX_BYTES = 1 << 26
_TOLERANCE = 1e-9  # relative: the order in which rewards are summed may differ
_DATA = '<script type="application/json" id="report">'
_OF_FIGURES = re.compile(r' style="((fill|stroke|opacity|font|text-anchor)[^;":]*:[^;":]*;? ?)*"')
_OWN = re.compile(r"<(script|style|link|iframe|dialog)|<[^>]*\bstyle\s*=", re.IGNORECASE)


@dataclass(frozen=True)
class Report:
    """The data of a report; the rest of its page is drawn from the agent."""

    policy: str  # JSON export, as ``oda-rl export --format json`` writes it
    interface: Mapping[str, Any]  # interface of the environment, as in agents' files
    env_id: str | None
    env_spec: Mapping[str, Any] | None  # specification of the environment, as in agents' files
    returns: tuple[float, ...]  # returns of fresh greedy episodes
    seed: int  # seed of the first reset of these episodes
    versions: Mapping[str, str]
    """Versions of oda_rl, Python and libraries that played these episodes."""
    scale: tuple[float, ...] = ()
    """Inverse standard deviations of the observation's components: the unit of distances."""
    value_name: str = "value"  # name of the numbers by which actions are compared
    world: Mapping[str, Any] | None = None  # dynamics for the page (:meth:`ReportPlayer.world`)
    training: Mapping[str, str] = field(default_factory=dict)
    """Rows of the card about the training; nothing can verify it."""

    @property
    def digest(self) -> str:
        """SHA-256 of the policy's export."""
        return hashlib.sha256(self.policy.encode("utf-8")).hexdigest()

    @property
    def score(self) -> str:
        """Summary of the returns on the card."""
        returns = np.array(self.returns)
        if len(returns) == 1:
            return f"{short(self.returns[0])} in one fresh episode"
        low, high = mean_interval(returns)
        return (
            f"mean {short(float(returns.mean()))}, 95 % interval {short(low)} to {short(high)}, "
            f"minimum {short(float(returns.min()))}, of {len(returns)} fresh episodes"
        )

    @property
    def environment(self) -> str:
        """The environment that the policy is verified in: its id, arguments, limit and wrappers."""
        spec = self.env_spec or {}
        parts = [self.env_id or "without a name"]
        parts += [f"{key}={value!r}" for key, value in (spec.get("kwargs") or {}).items()]
        if spec.get("max_episode_steps") is not None:
            parts.append(f"at most {spec['max_episode_steps']} steps")
        for layer in spec.get("wrappers") or ():
            kwargs = (f"{key}={value!r}" for key, value in layer["kwargs"].items())
            parts.append(f"wrapped by {layer['name']}({', '.join(kwargs)})")
        return ", ".join(parts)

    @property
    def card(self) -> dict[str, str]:
        """The card: text by row, from this data alone. Rows with an asterisk cannot be verified."""
        return {
            "environment": self.environment,
            "return": self.score,
            "seed of the first reset": f"{self.seed}",
            "played with*": versions_text(self.versions),
            "digest of the policy": self.digest,
            **{f"{name}*": text for name, text in self.training.items()},
        }

    def to_json(self) -> dict[str, Any]:
        """Return all fields, for :meth:`from_json`."""
        return {"format": FORMAT, "version": VERSION, **vars(self)}

    @classmethod
    def from_json(cls, given: Any) -> "Report":
        """Check and read the output of :meth:`to_json`, except what only the page uses."""
        require(isinstance(given, dict) and given.get("format") == FORMAT, f"it is not an {FORMAT}")
        require(
            given["version"] == VERSION, f"version is {given['version']!r}: it must be {VERSION}"
        )
        for name in ("policy", "interface", "returns", "versions", "training"):
            kind = {"policy": str, "returns": list}.get(name, dict)
            require(isinstance(given[name], kind), f"{name} must be a {kind.__name__}")
        n, env_id, seed = len(given["returns"]), given["env_id"], given["seed"]
        require(
            1 <= n <= _MAX_EPISODES, f"returns has {n} numbers: it must have 1 to {_MAX_EPISODES:,}"
        )
        require(type(seed) is int and seed >= 0, f"seed is {seed!r}: it must be an integer from 0")
        require(env_id is None or isinstance(env_id, str), "env_id must be a string")
        returns = [number(value, "returns") for value in given["returns"]]
        versions, training = (
            {str(row): str(text) for row, text in given[name].items()}
            for name in ("versions", "training")
        )
        if given["env_spec"] is not None:
            named = from_json(given["env_spec"]).id
            require(named == env_id, f"env_id is {env_id!r}, but env_spec.id is {named!r}")
        return cls(
            given["policy"], given["interface"], env_id, given["env_spec"], tuple(returns), seed,
            versions, training=training,
        )  # fmt: skip

    def player(self, trusting: bool = False) -> "ReportPlayer":
        """Return a player of the policy; modules are imported only if ``trusting``."""
        policy = policy_of(parsed(self.policy))
        origin = None if self.env_spec is None else from_json(self.env_spec)
        interface = Interface.from_json(dict(self.interface))
        return ReportPlayer(policy, interface, self.env_id, origin, trusting)


def versions_text(versions: Mapping[str, str]) -> str:
    """Return versions as they stand on the card."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def report_of(
    agent: Agent, episodes: int = 100, seed: int = 0, command: str | None = None
) -> Report:
    """Report on a trained agent, with fresh episodes of the policy in the report."""
    export, origin, scale = export_of(agent), agent.origin, agent.scale_
    assert scale is not None  # export_of refuses untrained agents
    n = agent.policy.n_cells
    training = {
        "agent": f"{type(agent).__name__}, {n} cell{'s' * (n != 1)}",
        "learned from": f"{agent.num_timesteps:,} steps",
        "learned with": versions_text(agent.versions),
    }
    if agent.solved_return is not None:
        training["solved at"] = f"{agent.solved_return:g}"
    if command is not None:
        training["made by"] = command
    report = Report(
        policy=json_document(export),
        interface=agent.interface.to_json(),
        env_id=agent.env_id,
        env_spec=None if origin is None else to_json(origin),
        returns=(),
        seed=seed,
        versions=present_versions(),
        scale=tuple(scale.tolist()),
        value_name=agent.policy.value_name,
        training=training,
    )
    player = report.player(trusting=not agent.named_by_file)
    returns = player.evaluate(episodes, seed=seed)
    if (doubt := agent.doubt(returns, seed)) is not None:
        training["warning"] = doubt
    return replace(report, returns=tuple(returns.tolist()), world=player.world())


class ReportPlayer(Player):
    """Plays the policy of a report."""

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
            f"the policy has {d} components and {policy.n_actions} actions: the environment has "
            f"{interface.n_features} and {n}",
        )
        self._policy, self.interface, self.env_id = policy, interface, env_id
        self._origin, self.named_by_file, self.limits = origin, not trusting, Limits()

    @property
    def policy(self) -> Policy:
        return self._policy

    @property
    def epsilon(self) -> float:
        return 0.0

    def world(self) -> dict[str, Any] | None:
        """Return ``kind``, ``parameters`` and ``choices`` of known dynamics for a page, or None."""
        if self._origin is not None and self._origin.wrappers:
            return None
        with closing(self.make_separate_env()) as env:
            dynamics = known_dynamics(cast(Any, env))
            kind = type(env.unwrapped).__name__
        if dynamics is None:
            return None
        world: dict[str, Any] = {"kind": kind, "parameters": dynamics.parameters.tolist()}
        if (choices := self.interface.combinations) is not None:
            world["choices"] = self.interface.performed(np.arange(len(choices))).tolist()
        return world

    @property
    def _bins(self) -> int:
        native = self.interface.native
        return 2 if native is None or native.bins is None else native.bins

    def _adapted(self, env: AnyEnv) -> AnyEnv:
        return super()._adapted(env) if self.interface.box is None else observed(cast(Any, env))

    def _interface_of(self, env: AnyEnv) -> Interface:
        n = self.interface.n_components
        found = Interface.of(env, 1 if n else None)
        return replace(found, n_actions=self.interface.n_actions) if n else found


def policy_of(document: Mapping[str, Any]) -> Policy:
    """Make a policy from the JSON of :func:`oda_rl.agents.export_policy`, or InvalidFileError."""
    require(isinstance(document, Mapping), "the policy is not a JSON object")
    found = document.get("format")
    require(found == _POLICY_FORMAT, f"the policy's format is {found!r}: not {_POLICY_FORMAT!r}")
    arrays = {name: _array(document, name) for name in ("origin", "diagram", "codevectors")}
    if "affine_actions" in document:
        outputs, (middle, half) = _array(document, "affine_actions"), _box(document)
        outputs[:, :, 0] -= middle
        return _rule(document, arrays, outputs / half[:, None])
    if "worth" in document:
        joint = {name: _array(document, name) for name in JointPolicy.SCHEMA}
        joint["n_nearest"] = np.array(document["n_nearest"])
        return JointPolicy.from_arrays(joint)
    values = _array(document, "values")
    if "clauses" in document:
        one_hot = np.eye(values.shape[1])[values.argmax(axis=1)]
        return _rule(document, arrays, one_hot[:, :, None])
    if "common" not in document:
        return TablePolicy.from_arrays({**arrays, "q_values": values})
    arrays["models"] = np.column_stack([_array(document, "common"), values])
    arrays["width"] = _array(document, "width")
    arrays["n_nearest"] = np.array(document["n_nearest"])
    if "action_codevectors" not in document:
        curved = arrays["diagram"].shape[-1] > 1 + arrays["origin"].size
        return (MixturePolicy if curved else CellPolicy).from_arrays(arrays)
    middle, half = _box(document)
    parts = (_array(document, "action_codevectors") - middle) / half
    return CodevectorPolicy.from_arrays({**arrays, "parts": parts})


def _array(document: Mapping[str, Any], name: str) -> FloatArray:
    return np.array(document[name], dtype=np.float64)


def _box(document: Mapping[str, Any]) -> tuple[FloatArray, FloatArray]:
    """Return the middle of the actions' box, and half its width (1 where the width is 0)."""
    low, high = (_array(document["actions"], name) for name in ("low", "high"))
    return 0.5 * (low + high), np.where(high > low, 0.5 * (high - low), 1.0)


def _rule(
    document: Mapping[str, Any], arrays: Mapping[str, FloatArray], outputs: FloatArray
) -> RulePolicy:
    """Return a rule; the outputs beyond its cells are those of its clauses."""
    scores, n = 0.0 - arrays["diagram"], len(arrays["diagram"])
    rule = {"scores": scores, "outputs": outputs[:n], "codevectors": arrays["codevectors"]}
    forbidding, deciding = [], []
    for clause in document.get("clauses", []):
        where = np.array(clause["where"], dtype=np.float64).reshape(-1, scores.shape[1])
        if "forbids" in clause:
            forbidding.append((where, clause["forbids"]))
        if "cell" in clause:
            deciding.append((where, outputs[clause["cell"]], clause["locked"]))
    if forbidding or deciding:
        clauses = Clauses.of(forbidding, deciding, rule["outputs"])
        rule |= {f"clauses_{name}": array for name, array in clauses.arrays.items()}
    return RulePolicy.from_arrays(rule)


@dataclass(frozen=True)
class Verdict:
    """The result of verifying a report."""

    card: Mapping[str, str]  # the card that the data in the file makes
    faults: tuple[str, ...]  # false statements in the report
    remarks: tuple[str, ...]  # possible explanations

    @property
    def true(self) -> bool:
        """Whether everything on the card that can be verified is true."""
        return not self.faults

    def __str__(self) -> str:
        rows = [printable(f"{name}: {text}") for name, text in self.card.items()]
        return "\n".join([
            *rows, *self.faults, *self.remarks,
            "* and all that is shown beside the card are not verified",
            f"the card is {'' if self.true else 'not '}true",
        ])  # fmt: skip


def verify(path: Path, trusting: bool = False, limits: Limits | None = None) -> Verdict:
    """Evaluate the policy in a report again, and compare.

    The heading and the card must be those that the data in the file makes, and the returns those of
    its policy in its environment. How it was learned is not verified. Modules that the file names
    are imported only if ``trusting``.
    """
    if path.is_dir():
        raise ValueError(f"run is {str(path)!r}, which is a folder: --verify takes a report")
    with reading(path):
        size = path.stat().st_size
        require(size <= _MAX_BYTES, f"it has {size:,} bytes: a report has at most {_MAX_BYTES:,}")
        text = path.read_text(encoding="utf-8")
        require(_DATA in text, "it was not written by oda-rl report")
        once = len(re.findall(r"\bid\s*=\W?report\b", text)) == 1
        require(once, "its element 'report' is repeated")
        data, *after = text.partition(_DATA)[2].partition("</script>")
        report = Report.from_json(parsed(data))
        player = report.player(trusting)
    player.limits = limits or Limits()
    faults = _false_parts(text, "".join(after), report)
    try:
        played = player.evaluate(len(report.returns), seed=report.seed)
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        reason = f"{str(path)!r} is damaged: its policy does not act ({error})"
        raise InvalidFileError(reason) from error
    differ = ~np.isclose(played, report.returns, rtol=_TOLERANCE, atol=0.0)
    if differ.any():
        faults.append(
            f"played again, {differ.sum()} of {len(played)} episodes have another return: mean "
            f"{played.mean():.4g}, not {np.mean(report.returns):.4g}"
        )
    installed, remarks = present_versions(), []
    others = [f"{name} {v}" for name, v in report.versions.items() if installed.get(name) != v]
    if others:
        reason = ", which may be the reason" if faults else ""
        remarks.append(f"made with {', '.join(others)}: other versions are installed{reason}")
    return Verdict(report.card, tuple(faults), tuple(remarks))


def frame_of(report: Report) -> tuple[str, str]:
    """Return the page up to the end of its card, which its data makes, and after its data."""
    script, template = page_part("script.js"), page_part("page.html")
    digest = b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    keys = {"return": " id=score", "digest of the policy": " id=digest", "made by*": " id=command"}
    rows = (
        f"<div><dt>{escape(name)}</dt><dd{keys.get(name, '')}>{escape(text)}</dd></div>"
        for name, text in report.card.items()
    )
    head = Template(template.partition("$rule")[0]).substitute(
        title=escape(f"A policy for {report.env_id or 'an environment without a name'}"),
        policy=f"sha256-{digest}",
        style=page_part("style.css"),
        card="\n".join(rows),
    )
    return head, template.partition("$report")[2].replace("$script", script)


def page_part(name: str) -> str:
    """Read a file of this folder."""
    return files("oda_rl.reporting").joinpath(name).read_text(encoding="utf-8")


def _false_parts(text: str, after: str, report: Report) -> list[str]:
    """Return what is false of a page: its first line that its data does not make, or styles."""
    head, tail = frame_of(report)
    if not text.startswith(head):
        pairs = zip_longest(text.split("\n"), head.split("\n"), fillvalue="")
        differing = (one.replace("</dt>", ": ") for one in next(p for p in pairs if p[0] != p[1]))
        shown, right = (unescape(re.sub(r"<[^>]*>", "", one)) for one in differing)
        return [f"the page says {shown!r:.200}: its data makes {right!r:.200}"]
    said = _OF_FIGURES.sub("", text[len(head) : text.index(_DATA)])
    return ["the page has scripts or styles of its own"] * bool(after != tail or _OWN.search(said))
