"""The common parts of estimators: validated parameters, and files."""

import copy
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial, wraps
from inspect import get_annotations, getattr_static, isfunction
from numbers import Integral, Real
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast, dataclass_transform, get_origin

import numpy as np
import numpy.typing as npt
from sklearn.base import _fit_context
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions

from oda_rl._threads import one_thread, using
from oda_rl._types import Array
from oda_rl.files.archive import load_archive, save_archive
from oda_rl.files.schema import InvalidFileError, check_contents, generator_state, reading, require

_PACKAGE = __name__.partition(".")[0] + "."
_CLOSED = {"[]": "both", "[)": "left", "(]": "right", "()": "neither"}

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
K = TypeVar("K", bound=type)


def within(interval: str, kind: type = Real) -> Interval:
    """Return the interval of real numbers, or Integral ones, written as, for example, "(0, 1]"."""
    low, high = (int(end) if kind is Integral else float(end) for end in interval[1:-1].split(","))
    return Interval(kind, low, high, closed=_CLOSED[interval[0] + interval[-1]])


def one_of(*words: str) -> StrOptions:
    """Return the constraint that a parameter is one of these words."""
    return StrOptions(set(words))


COUNT = within("[1, 1_000_000]", Integral)
"""Numbers that size arrays or loops: of cells, components, passes, samples for each cell."""
SAMPLES = Interval(Integral, 1, None, closed="left")
POSITIVE = Interval(Real, 0, None, closed="neither")
NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
DENSITY = HasMethods(["fit", "score_samples"])  # a density estimator
FRACTION = within("(0, 1)")

RandomState = int | np.random.RandomState | None
Seed = Annotated[RandomState, "random_state"]
Flag = Annotated[bool, "boolean"]

# Decorates a method that first validates the estimator's parameters.
validated = cast(Callable[[F], F], _fit_context(prefer_skip_nested_validation=True))


@dataclass_transform()
def estimator(cls: K) -> K:
    """Make an estimator whose parameters are annotated fields, with scikit-learn's constraints.

    All public methods work in one thread (:func:`oda_rl._threads.one_thread`), and none while the
    estimator learns in another one, which waits for those that have begun.
    """
    made: Any = dataclass(cls, eq=False, repr=False)
    constraints: dict[str, list[Any]] = {}
    for field in fields(made):
        if field.init and get_origin(field.type) is Annotated:
            kind: Any = field.type
            constraints[field.name] = list(kind.__metadata__)
            made.__init__.__annotations__[field.name] = kind.__origin__  # for help()
    made._parameter_constraints = constraints
    for name in dir(cls):
        method = getattr_static(cls, name)
        if isfunction(method) and name[0] != "_" and method.__module__.startswith(_PACKAGE):
            guarded = _in_one_thread(method)
            docs = (vars(base)[name].__doc__ for base in cls.__mro__ if name in vars(base))
            guarded.__doc__ = next(filter(None, docs), None)  # help() does not look beyond wrappers
            setattr(cls, name, guarded)
    return cls


def _in_one_thread(method: F) -> F:
    learns = method.__name__ in ("fit", "partial_fit")

    @wraps(method)
    def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
        with one_thread(), using(self, learns):
            return method(self, *args, **kwargs)

    return cast(F, guarded)


Arrays = dict[str, Array]
Read = Mapping[str, Array]
Classes = Mapping[str, type]
_MAX_DEPTH = 50


def writable(value: T) -> T:
    """Return a value, or a deep copy if arrays in it are read-only, as those mapped by joblib."""
    return copy.deepcopy(value) if _is_frozen(value) else value


def _is_frozen(value: Any) -> bool:
    """Whether arrays in a value are read-only."""
    if isinstance(value, np.ndarray):
        return not value.flags.writeable
    if isinstance(value, dict):
        return any(map(_is_frozen, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_is_frozen, value))
    own = type(value).__module__.startswith(_PACKAGE)
    return own and any(map(_is_frozen, getattr(value, "__dict__", {}).values()))


class Unsupervised:
    """An estimator whose ``fit`` has these parameters; the class says how it learns."""

    def fit(self, X: npt.ArrayLike, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn anew from all samples.

        Parameters
        ----------
        X : array-like, shape (n, d)
            At least as many samples as clusters or components; in the domain of the divergence.
            NaN, a missing value, is taken where the tag ``allow_nan`` is set: by the squared
            Euclidean divergence of annealing, by maps and by Gaussian mixtures.
        y : ignored
        sample_weight : array-like, shape (n,), optional
            At least 0, relative to one another: a common factor makes no difference.

        Raises
        ------
        ValueError
            If X is not that, or ``init`` or another parameter does not fit the data.
        """
        raise NotImplementedError


class Supervised:
    """An estimator with targets, whose ``fit`` has these parameters."""

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike, sample_weight: Any = None) -> Self:
        """Learn anew from all samples.

        Parameters
        ----------
        X : array-like, shape (n, d)
            In the domain of the estimator's divergence. NaN, a missing value, is taken where the
            tag ``allow_nan`` is set: by the squared Euclidean divergence of annealing, and by
            densities that are Gaussian mixtures.
        y : array-like, shape (n,) or, for regression on several targets, (n, q)
            Class labels, numbers or strings; or finite targets.
        sample_weight : array-like, shape (n,), optional
            At least 0, relative to one another: a common factor makes no difference.

        Raises
        ------
        ValueError
            If X and y are not that, or ``init`` or another parameter does not fit the data.
        """
        raise NotImplementedError


class Filed:
    """An estimator that can be saved to a file."""

    _stored: ClassVar[Classes] = {}  # classes, by name, that its attributes may have
    _LEARNED: ClassVar[dict[str, Any]] = {}
    """Schema of the learned attributes: of those annotated with one, and of more that are given."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        learned: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            learned |= vars(base).get("_LEARNED", {})
        cls._LEARNED = learned | {
            name: hint.__metadata__[0]
            for name, hint in get_annotations(cls).items()
            if "_" in (name[0], name[-1]) and hasattr(hint, "__metadata__")
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a file of arrays and JSON; nothing is pickled.

        Raises
        ------
        TypeError
            If a parameter is code, such as a custom Bregman divergence or a resolution function.
        ValueError
            If :meth:`load` would refuse the file, for example because a number is not finite.
        """
        arrays: Arrays = {}
        name = type(self).__name__
        content = _encode(self._attributes(), arrays, self._stored, name)
        load = partial(self._made, path)
        save_archive(path, {"estimator": name, "content": content}, arrays, load)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that :meth:`save` wrote; it continues to learn as the original would.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        InvalidFileError
            If the file is damaged, or of another kind.
        """
        return cls._made(path, *load_archive(path))

    @classmethod
    def _made(cls, path: str | os.PathLike[str], metadata: dict[str, Any], arrays: Read) -> Self:
        """Make the model in a file, or raise InvalidFileError."""
        if metadata.get("estimator") != cls.__name__:
            raise InvalidFileError(
                f"{os.fspath(path)!r} holds {metadata.get('estimator', 'no estimator')}, "
                f"not {cls.__name__}"
            )
        with reading(path):
            require(metadata.keys() <= {"estimator", "content"}, "its metadata has unknown keys")
            model = cls()
            content = _decode(metadata["content"], arrays, cls._stored)
            require(isinstance(content, dict), "content must be a dictionary")
            model._restore(content)
            if hasattr(model, "_validate_params"):
                model._validate_params()
            check_contents(model, {"d": getattr(model, "n_features_in_", 0)}, cls.__name__)
        return model

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over what pickle or joblib read; learning goes on in arrays that may be changed."""
        super().__setstate__(writable(state))  # type: ignore[misc]

    def _attributes(self) -> dict[str, Any]:
        """Return the attributes to write: all but the routing of metadata."""
        attributes = dict(vars(self._closed()))
        attributes.pop("_metadata_request", None)
        return attributes

    def _restore(self, content: dict[str, Any]) -> None:
        """Take over the output of :meth:`_attributes`."""
        vars(self).update(content)
        self._reopen()

    def _closed(self) -> Self:
        """Return the estimator in the form that is written."""
        return self

    def _reopen(self) -> None:
        """Prepare to continue learning after loading."""


def _encode(value: Any, arrays: Arrays, classes: Classes, where: str) -> Any:
    """Return a value as JSON, with its arrays apart."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype != object:
        arrays[str(len(arrays))] = value
        return {"array": str(len(arrays) - 1)}
    if isinstance(value, np.ndarray | list | tuple):
        items = [_encode(item, arrays, classes, where) for item in value]
        if isinstance(value, np.ndarray):
            return {"objects": items, "shape": list(value.shape)}
        if hasattr(value, "_fields"):
            return {"named": type(value).__name__, "items": items}
        return {type(value).__name__: items}
    if isinstance(value, dict):
        pairs = [
            (key, _encode(item, arrays, classes, f"{where}.{key}")) for key, item in value.items()
        ]
        return {"dict": pairs}
    if isinstance(value, np.random.Generator):
        return {"generator": _encode(value.bit_generator.state, arrays, classes, where)}
    name = type(value).__name__
    if classes.get(name) is type(value):
        content = value._attributes() if isinstance(value, Filed) else vars(value)
        return {"object": name, "content": _encode(content, arrays, classes, f"{where}.{name}")}
    raise TypeError(f"{where} can't be saved: it holds {value!r}, which is code or unknown")


def _decode(value: Any, arrays: Read, classes: Classes, depth: int = 0) -> Any:
    require(depth <= _MAX_DEPTH, f"content is nested more than {_MAX_DEPTH} deep")
    depth += 1
    if not isinstance(value, dict):
        require(not isinstance(value, list), "content has a list without a type")
        return value
    if "array" in value:
        return arrays[value["array"]]
    if "objects" in value:
        require(all(isinstance(item, str | int | float) for item in value["objects"]), "objects")
        return np.array(value["objects"], dtype=object).reshape(value["shape"])
    if "list" in value:
        return [_decode(item, arrays, classes, depth) for item in value["list"]]
    if "tuple" in value:
        return tuple(_decode(item, arrays, classes, depth) for item in value["tuple"])
    if "named" in value:
        named = classes[value["named"]]
        require(hasattr(named, "_fields"), f"{value['named']} is not a named tuple")
        return named(*(_decode(item, arrays, classes, depth) for item in value["items"]))
    if "dict" in value:
        return {key: _decode(item, arrays, classes, depth) for key, item in value["dict"]}
    if "generator" in value:
        generator = np.random.default_rng()
        state = _decode(value["generator"], arrays, classes, depth)
        generator.bit_generator.state = generator_state(state, "generator")
        return generator
    cls = classes[value["object"]]
    require(not hasattr(cls, "_fields"), f"{value['object']} is a tuple")
    decoded: Any = object.__new__(cls)
    content = _decode(value["content"], arrays, classes, depth)
    if isinstance(decoded, Filed):
        decoded._restore(content)
    else:
        vars(decoded).update(content)
    return decoded
