"""Which types operations have: found out once for a function, for less.

numba asks anew for each sum and each element of an array, and once more when it makes machine code:
nine times in ten of types that it has asked about before.
"""

import operator
from contextlib import AbstractContextManager
from typing import Any

from numba.core.targetconfig import ConfigStack
from numba.core.types import functions

from oda_rl._numba.replacing import replaced

_Function: Any = functions.BaseFunction  # of which numba does not tell the types
_options: Any = ConfigStack.top_or_none
_OPERATORS = frozenset(one for one in vars(operator).values() if callable(one))


def remembered() -> AbstractContextManager[None]:
    """Keep what has been found out of operations meanwhile; under numba's lock."""
    return replaced(_Function, "get_call_type", _remembering)


def _remembering(resolve: Any) -> Any:
    known: dict[Any, Any] = {}

    def remembering(self: Any, context: Any, args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
        if kws or self.typing_key not in _OPERATORS:
            return resolve(self, context, args, kws)
        options = _options()
        key = id(options), id(self), args
        if key not in known:  # which keeps what it goes by, so that nothing else has its number
            known[key] = resolve(self, context, args, kws), options, self
        return known[key][0]

    return remembering
