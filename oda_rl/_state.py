"""Named state for Python and compiled code, declared once.

A declaration is a class whose fields are an int, a float or a bool:

>>> class Counters(State):
...     steps: int
...     scale: float

The range of a field in a file is beside its type: ``steps: Annotated[int, Span("[0, inf)")]``.
Values are in an array of bytes, eight for each field. In Python an object reads and writes them:

>>> raw = np.zeros(Counters.size, dtype=np.uint8)
>>> counters = Counters(raw)
>>> counters.steps = 3
>>> counters.steps, counters.scale
(3, 0.0)

In compiled code a reader does; ``counters(raw, i)`` is the i-th of several states in a row:

>>> counters = reader(Counters)
>>> from numba import njit
>>> @njit
... def count(raw):
...     named = counters(raw, 0)
...     named.steps += 1
>>> count(raw)
>>> Counters(raw).steps
4

A structured array instead of bytes would make each call from Python 130 ns slower.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, TypeVar, cast, get_type_hints

import numpy as np
import numpy.typing as npt
from numba import config, from_dtype, types
from numba.extending import intrinsic

from oda_rl.files.schema import InvalidFileError, Span

Raw = npt.NDArray[np.uint8]
S = TypeVar("S", bound="State")

_config: Any = config  # which has no types
_STORED = {int: np.int64, float: np.float64, bool: np.int64}


class State:
    """Fields in an array of bytes, from ``begin`` on; see the module."""

    dtype: ClassVar[np.dtype[np.void]]
    size: ClassVar[int]
    kinds: ClassVar[dict[str, type]]  # type of each field
    spans: ClassVar[dict[str, Span]]  # range of each field in a file

    def __init_subclass__(cls) -> None:
        declared = get_type_hints(cls, include_extras=True)  # those of the base first
        hints = {name: kind for name, kind in get_type_hints(cls).items() if kind in _STORED}
        cls.kinds = hints
        cls.spans = {
            name: span
            for name in hints
            for span in getattr(declared[name], "__metadata__", ())
            if isinstance(span, Span)
        }
        cls.spans |= {name: Span("[0, 1]") for name, kind in hints.items() if kind is bool}
        cls.dtype = np.dtype([(name, _STORED[kind]) for name, kind in hints.items()])
        cls.size = cls.dtype.itemsize
        for number, (name, kind) in enumerate(hints.items()):
            setattr(cls, name, _field(number, kind))

    def __init__(self, raw: Raw, begin: int = 0) -> None:
        fields = raw[begin : begin + self.size]
        self.record = fields.view(self.dtype)
        """All fields, a structured array of shape (1,)."""
        self._integers = fields.view(np.int64).data
        self._numbers = fields.view(np.float64).data

    @classmethod
    def each(cls, raw: Raw, begin: int = 0) -> list[Self]:
        """Return all states in a row."""
        return [cls(raw, i) for i in range(begin, len(raw), cls.size)]

    def restore(self, record: npt.NDArray[np.void]) -> None:
        """Set all fields from a former :attr:`record`."""
        self.record[:] = record

    @classmethod
    def check_records(
        cls, name: str, records: npt.NDArray[np.void], sizes: Mapping[str, int]
    ) -> None:
        """Raise InvalidFileError if a field of a file's records, shape (n,), is out of range."""
        for field, span in cls.spans.items():
            values = records[field]
            wrong = span.wrong(values, sizes)
            if wrong.any():
                raise InvalidFileError(
                    f"{name}.{field} is {values[wrong][0].item()!r}: "
                    f"it must be in {span.described(sizes)}"
                )

    def assign(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            setattr(self, name, value)


def _field(number: int, kind: type) -> property:
    if kind is float:
        return property(
            lambda self: self._numbers[number],
            lambda self, value: self._numbers.__setitem__(number, float(value)),
        )
    return property(
        lambda self: kind(self._integers[number]),
        lambda self, value: self._integers.__setitem__(number, int(value)),
    )


def reader(declaration: type[S], begin: int = 0) -> Callable[[Raw, int], S]:
    """Return a function for compiled code: (bytes, i) to the i-th state after ``begin``."""
    record = from_dtype(declaration.dtype)
    size = declaration.size
    if _config.DISABLE_JIT:
        return lambda raw, index: declaration(raw, begin + size * index)

    @intrinsic
    def named(typing_context: Any, raw: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            word = context.get_value_type(types.intp)
            place = builder.add(builder.mul(arguments[1], word(size)), word(begin))
            address = builder.gep(array.data, [place], inbounds=True)
            return builder.bitcast(address, context.get_value_type(record))

        return record(raw, types.intp), generate

    return cast(Callable[[Raw, int], S], named)
