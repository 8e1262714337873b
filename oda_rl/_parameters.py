"""Parameters of estimators: type, range and default of each in one line."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from inspect import getattr_static, isfunction
from numbers import Integral, Real
from typing import Annotated, Any, TypeVar, cast, dataclass_transform, get_origin

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils._param_validation import Interval

from oda_rl._threads import one_thread

_PACKAGE = __name__.partition(".")[0] + "."
_CLOSED = {"[]": "both", "[)": "left", "(]": "right", "()": "neither"}

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T", bound=type)


def within(interval: str) -> Interval:
    """Return the range of the real numbers in an interval such as "(0, 1]"."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    return Interval(Real, low, high, closed=_CLOSED[interval[0] + interval[-1]])


COUNT = Interval(Integral, 1, None, closed="left")
POSITIVE = Interval(Real, 0, None, closed="neither")
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
FRACTION = within("(0, 1)")

RandomState = int | np.random.RandomState | None
Seed = Annotated[RandomState, "random_state"]
Flag = Annotated[bool, "boolean"]

# Parameters are checked against their ranges before the method runs.
validated = cast(Callable[[F], F], _fit_context(prefer_skip_nested_validation=True))


@dataclass_transform()
def estimator(cls: T) -> T:
    """Make an estimator whose parameters are annotated fields, each with its type and default.

    What scikit-learn checks a parameter against stands beside its type, as ``Annotated``; its
    description, in the docstring of the class. Subclasses have the parameters of their bases. All
    public methods work in one thread (:func:`oda_rl._threads.one_thread`).
    """
    made: Any = dataclass(cls, eq=False, repr=False)
    constraints: dict[str, list[Any]] = {}
    for field in fields(made):
        if field.init and get_origin(field.type) is Annotated:
            kind: Any = field.type
            constraints[field.name] = list(kind.__metadata__)
            made.__init__.__annotations__[field.name] = kind.__origin__  # as help shows it
    made._parameter_constraints = constraints
    for name in dir(cls):
        method = getattr_static(cls, name)
        if isfunction(method) and name[0] != "_" and method.__module__.startswith(_PACKAGE):
            setattr(cls, name, one_thread()(method))
    return cls
