"""Options of numba's compiler, which are compared for less.

What numba finds out about a call it keeps by the options of the compilation, and compares those one
by one whenever it looks. While a compilation is under way they stay what they are.
"""

from typing import Any, cast

from numba.core.compiler import Flags as _Flags

_Base = cast(Any, _Flags)  # of which numba does not tell the types


class Changing(_Base):  # type: ignore[misc,valid-type]
    """Options; numba goes by a copy."""

    __slots__ = ()

    def copy(self) -> Any:
        """Return the copy."""
        return _Settled(self)


class _Settled(_Base):  # type: ignore[misc,valid-type]
    """Options that stay what they are."""

    __slots__ = ("_found",)

    def __init__(self, flags: Any) -> None:
        super().__init__(flags)
        self._found = super().values()

    def values(self) -> dict[str, Any]:
        """Return the options by their names."""
        return cast(dict[str, Any], self._found)

    def copy(self) -> Any:
        """Return options that may change."""
        return Changing(self)

    __hash__ = _Base.__hash__


Changing.__name__ = _Settled.__name__ = _Flags.__name__  # which goes into those of machine code
