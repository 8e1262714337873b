"""What fitted estimators say of Dask's arrays and frames: answers that nobody has computed yet."""

import copy
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from oda_rl.distributed.collections import as_array, mapped

_OF_ALL = ("feature_names_in_", "history_", "labels_", "_sklearn_output_config")


class Lazy(BaseEstimator):
    """An estimator that is asked of rows where they lie."""

    def _lazily(self, name: str, X: Any, width: Any = None, dtype: Any = np.float64) -> Any:
        """Ask a method of all blocks; ``width`` tells how many columns the answer has."""
        check_is_fitted(self)
        shape = (0,) if width is None else (0, width())
        return mapped(self._bare(), name, as_array(self, X, reset=False), np.empty(shape, dtype))

    def _bare(self) -> Self:
        """Return a copy that answers with arrays and knows no names, to be sent to the blocks."""
        check_is_fitted(self)
        own = copy.copy(self)
        for attribute in _OF_ALL:
            own.__dict__.pop(attribute, None)
        return own
