"""What fitted estimators say of Dask's arrays and frames: answers that nobody has computed yet."""

import copy
from collections.abc import Callable
from functools import wraps
from typing import Any, Self, TypeVar, cast

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from oda_rl._types import Array
from oda_rl.distributed.collections import as_array, is_lazy, mapped

_OF_ALL = ("feature_names_in_", "history_", "labels_", "_sklearn_output_config")

F = TypeVar("F", bound=Callable[..., Any])


class Lazy(BaseEstimator):
    """An estimator that is asked of rows where they lie."""

    def _bare(self) -> Self:
        """Return a copy that answers with arrays and knows no names, to be sent to the blocks."""
        check_is_fitted(self)
        own = copy.copy(self)
        for attribute in _OF_ALL:
            own.__dict__.pop(attribute, None)
        return own


def by_blocks(like: Callable[[Any], Array]) -> Callable[[F], F]:
    """Let a method of a :class:`Lazy` estimator be asked of all blocks if X is a Dask collection.

    ``like`` makes an answer of no rows, of the right width and type, of a fitted estimator.
    """

    def changed(method: F) -> F:
        @wraps(method)
        def answer(self: Any, X: Any) -> Any:
            if not is_lazy(X):
                return method(self, X)
            bare = self._bare()
            array = as_array(self, X, reset=False)
            return mapped(bare, method.__name__, array, like(self))

        return cast(F, answer)

    return changed
