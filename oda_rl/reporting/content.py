"""What a report says: a policy, where and how it was learned, and what it returns."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents import Agent
from oda_rl.agents.base.files import present_versions
from oda_rl.agents.environments.origins import from_json, to_json
from oda_rl.agents.environments.spaces import Interface
from oda_rl.agents.policies.export import json_document
from oda_rl.agents.policies.export_tables import export_of
from oda_rl.agents.policies.rules import number as short
from oda_rl.files.archive import MOST_JSON, parsed
from oda_rl.files.schema import number, require
from oda_rl.reporting.replaying import Replaying, policy_of
from oda_rl.runs.statistics import mean_interval

FORMAT, VERSION = "oda_rl report", 1
_MOST_EPISODES = 1_000_000


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
    """What the page needs to step the environment (:meth:`Replaying.world`)."""

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
    def from_json(cls, told: Any) -> "Report":
        """Take over what :meth:`to_json` returned, or raise InvalidFileError.

        What only the page shows by is not looked at, and not believed: it is left out.
        """
        require(isinstance(told, dict) and told.get("format") == FORMAT, f"it is no {FORMAT}")
        require(told["version"] == VERSION, f"version is {told['version']!r}: not {VERSION}")
        for name in ("policy", "interface", "returns", "versions"):
            kind = {"policy": str, "returns": list}.get(name, dict)
            require(isinstance(told[name], kind), f"{name} is no {kind.__name__}")
        n, env_id, seed = len(told["returns"]), told["env_id"], told["seed"]
        require(1 <= n <= _MOST_EPISODES, f"returns has {n} numbers")
        require(type(seed) is int and seed >= 0, f"seed is {seed!r}")
        require(env_id is None or isinstance(env_id, str), "env_id is no text")
        returns = [number(value, "returns") for value in told["returns"]]
        return cls(
            told["policy"], told["interface"], env_id, told["env_spec"], tuple(returns), seed,
            {str(name): str(one) for name, one in told["versions"].items()},
        )  # fmt: skip

    def replaying(self, trusting: bool = False) -> Replaying:
        """Return who plays by the policy of this report, or raise InvalidFileError."""
        policy = policy_of(parsed(self.policy, MOST_JSON))
        origin = None if self.env_spec is None else from_json(self.env_spec)
        interface = Interface.from_json(dict(self.interface))
        return Replaying(policy, interface, self.env_id, origin, trusting)

    def play(self, n_episodes: int, trusting: bool = False) -> FloatArray:
        """Play so many episodes by this report alone; returns the returns."""
        return self.replaying(trusting).evaluate(n_episodes, seed=self.seed)


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
    returns = tuple(said.play(episodes, trusting).tolist())
    return replace(said, returns=returns, world=said.replaying(trusting).world())
