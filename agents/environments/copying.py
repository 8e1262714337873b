"""Copies of environments in memory and in pickles, where copies share no pipes or files."""

import copy
import pickle
import warnings
from collections.abc import Callable
from io import BytesIO
from types import FunctionType
from typing import Any, NamedTuple
from weakref import ref

import cloudpickle
import gymnasium as gym
from gymnasium.vector import VectorEnv

from oda_rl.agents.environments.spaces import AnyEnv


class EnvCopy(NamedTuple):
    """The environment in a copy of its agent: None, with a warning, if it cannot be copied."""

    env: AnyEnv | None

    def __reduce__(self) -> tuple[Any, ...]:
        return pickle.loads, (self._copied_by(cloudpickle.dumps),)  # with its functions

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._copied_by(lambda env: copy.deepcopy(env, memo))

    def _copied_by(self, copy_env: Callable[[AnyEnv | None], Any]) -> Any:
        try:
            return copy_env(checked_copyable(self.env))
        except Exception as error:  # of whatever kind an environment may hold
            warnings.warn(
                f"the agent is copied without its environment {self.env}, which cannot be copied "
                f"({type(error).__name__}: {error}): set env of the copy to train or evaluate it",
                stacklevel=3,
            )
            return copy_env(None)


def checked_copyable(env: Any) -> Any:
    """Return the environment; raise an exception, of any kind, if it cannot be copied."""
    _CopyCheck(BytesIO()).dump(env)
    return env


class _CopyCheck(pickle.Pickler):
    """Visit what a deep copy would copy; raise an exception if that cannot be copied."""

    def persistent_id(self, part: Any) -> Any:
        kind = type(part)
        if hasattr(kind, "__del__") and not isinstance(part, gym.Env | VectorEnv):
            raise TypeError(f"a {kind.__name__} frees what a copy would share")  # such as a pipe
        own = isinstance(part, type | FunctionType | ref) or hasattr(kind, "__deepcopy__")
        return own or None  # None: go on to its parts
