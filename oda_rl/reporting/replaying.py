"""A policy out of its JSON export, and whoever plays by it."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from oda_rl._types import FloatArray
from oda_rl.agents.base.agent import Player
from oda_rl.agents.environments.adaptation import observed
from oda_rl.agents.environments.origins import Origin
from oda_rl.agents.environments.spaces import AnyEnv, Interface
from oda_rl.agents.policies.cells import CellPolicy, CodevectorPolicy
from oda_rl.agents.policies.contract import Policy
from oda_rl.agents.policies.rules import RulePolicy
from oda_rl.agents.policies.table import TablePolicy
from oda_rl.agents.rules.editing import Clauses
from oda_rl.envs.dynamics import known_dynamics
from oda_rl.files.schema import require

FORMAT = "oda_rl policy"


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
    require(document.get("format") == FORMAT, f"the policy is not of the format {FORMAT!r}")
    arrays = {name: _array(document, name) for name in ("origin", "diagram", "codevectors")}
    if "affine_actions" in document:
        return _rule(document, arrays, _units(document, _array(document, "affine_actions")))
    values = _array(document, "values")
    if "clauses" in document:
        ones = np.eye(values.shape[1])[values.argmax(axis=1)]
        return _rule(document, arrays, ones[:, :, None])
    if "common" not in document:
        return TablePolicy.from_arrays({**arrays, "q_values": values})
    arrays["models"] = np.column_stack([_array(document, "common"), values])
    arrays["width"] = _array(document, "width")
    if "action_codevectors" not in document:
        return CellPolicy.from_arrays(arrays)
    low, high = _bounds(document)
    width = np.where(high > low, high - low, 1.0)
    parts = (2.0 * _array(document, "action_codevectors") - low - high) / width
    return CodevectorPolicy.from_arrays({**arrays, "parts": parts})


class Replaying(Player):
    """Plays by a policy, of which nothing else is known than what a report says.

    Parameters
    ----------
    policy : Policy
        What it plays by.
    interface : Interface
        Of its environment.
    env_id : str, optional
        Of its environment.
    origin : Origin, optional
        What its environment is made of.
    trusting : bool
        Whether modules are imported that these name.
    """

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
        """What it plays by."""
        return self._policy

    @property
    def epsilon(self) -> float:
        """It never explores."""
        return 0.0

    def world(self) -> dict[str, Any] | None:
        """Return what a page needs to step the environment itself; None if no page knows how to.

        That is the name of its class, its constants, and its actions where these are offered ones
        of others.
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


def _array(document: Mapping[str, Any], name: str) -> FloatArray:
    return np.array(document[name], dtype=np.float64)


def _bounds(document: Mapping[str, Any]) -> tuple[FloatArray, FloatArray]:
    box = document["actions"]
    return _array(box, "low"), _array(box, "high")


def _units(document: Mapping[str, Any], own: FloatArray) -> FloatArray:
    """Return affine actions, shape (K, p, 1 + d), in units of the box."""
    low, high = _bounds(document)
    own = own.copy()
    own[:, :, 0] -= 0.5 * (low + high)
    return np.asarray(own / np.where(high > low, 0.5 * (high - low), 1.0)[:, None])


def _rule(
    document: Mapping[str, Any], arrays: Mapping[str, FloatArray], outputs: FloatArray
) -> RulePolicy:
    """Return a rule of some cells, of which the last say what clauses do."""
    scores, n = 0.0 - arrays["diagram"], len(arrays["diagram"])
    own = {"scores": scores, "outputs": outputs[:n], "codevectors": arrays["codevectors"]}
    told = document.get("clauses", [])
    if told:
        width = scores.shape[1]
        rows = [np.array(one["where"], dtype=np.float64).reshape(-1, width) for one in told]
        both = list(zip(told, rows, strict=True))
        clauses = Clauses.of(
            [(where, one["forbids"]) for one, where in both if "forbids" in one],
            [(where, outputs[one["cell"]], one["locked"]) for one, where in both if "cell" in one],
            own["outputs"],
        )
        own |= {f"clauses_{name}": array for name, array in clauses.arrays.items()}
    return RulePolicy.from_arrays(own)
