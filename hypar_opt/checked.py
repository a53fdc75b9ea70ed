"""Checks of public arguments against their annotations, with one-line errors."""

from __future__ import annotations

import builtins
import collections.abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, wraps
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from hypar_opt.errors import HyparError, UnknownNameError, argument, excerpt
from hypar_opt.garbage import seldom_collected

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Item = TypeVar("Item")

MAX_BITS = 3320
"""The most bits of a whole number, 1,000 digits: Python refuses to print very long ones."""

_WORDS = {
    bool: "True or False",
    float: "a number",
    int: "a whole number",
    str: "a string",
    tuple: "a list",
    Callable: "a function",
    Mapping: "a mapping",
    Path: "a path",
    Sequence: "a list",
}


def checked(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Refuse arguments of a public function that do not have their annotated types.

    Annotations are all that is needed: a new function or argument takes no further line. Arguments
    unpacked from a TypedDict are checked by the function that receives them.
    """
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    in_order = names[: code.co_argcount]

    @wraps(function)
    def call(*args: Parameters.args, **named: Parameters.kwargs) -> Result:
        arguments = dict(zip(in_order, args, strict=False)) | named
        for name, value in arguments.items():
            if not _takes_arrays(function, name):
                arguments[name] = _in_python(value)
        positional: Any = [*map(arguments.get, in_order[: len(args)]), *args[len(in_order) :]]
        keyed: Any = {name: arguments[name] for name in named}
        for name, value in arguments.items():
            if type(value) is int and value.bit_length() > MAX_BITS:
                raise HyparError(f"{argument(name)} should have at most 1,000 digits")
        check(function, {name: value for name, value in arguments.items() if name in names})
        try:
            with seldom_collected():
                return function(*positional, **keyed)
        except UnknownNameError as error:
            # The function that took the others does not know this one's parameters.
            if error.kind != "argument" or error.name not in named:
                raise
            candidates = list(dict.fromkeys((*names, *error.known)))
            raise UnknownNameError("argument", error.name, candidates) from None

    return call


def check(annotated: Any, values: Mapping[str, object]) -> None:
    """Refuse the first value that does not have the type that its name is annotated with.

    Parameters
    ----------
    annotated
        A function, or the class of a dataclass.

    Raises
    ------
    HyparError
        Naming the argument, its expected type, and its value.
    """
    kinds = _kinds(annotated)
    for name, value in values.items():
        # By name: looking up the annotation itself is slower.
        value_type: Any = type(value)
        if value_type in _PLAIN and name in kinds and _plain_fits(annotated, name, value_type):
            continue
        if name in kinds and not _has_kind(value, kinds[name]):
            wanted = _in_words(kinds[name])
            raise HyparError(f"{argument(name)} should be {wanted}, got {excerpt(value)}")


class _Named(type):
    """The type of a name that is imported only for type checkers: any class of that name."""

    def __instancecheck__(cls, value: object) -> bool:
        return any(base.__name__ == cls.__name__ for base in type(value).__mro__)


class _Names(dict[str, Any]):
    def __missing__(self, name: str) -> type:
        return _Named(name, (), {})


@cache
def _kinds(annotated: Any) -> dict[str, Any]:
    """Return the types of a function's arguments, or of a class's fields, by name."""
    module = __import__(annotated.__module__, fromlist=["_"])
    names = _Names(vars(collections.abc) | vars(builtins) | vars(module))
    parameters = {
        name: kind for name, kind in annotated.__annotations__.items() if name != "return"
    }
    return get_type_hints(SimpleNamespace(__annotations__=parameters), {}, names)


@cache
def _parsed(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return a type without its parameters, and these."""
    origin = get_origin(kind) or kind
    # A name from a `type` statement, as in numpy 2.5, is not a class: use its value.
    return _parsed(origin.__value__) if hasattr(origin, "__value__") else (origin, get_args(kind))


_PLAIN = {NoneType, bool, int, float, str}
"""Types whose values all fit what one of them fits."""


@cache
def _plain_fits(annotated: Any, name: str, plain: Any) -> bool:
    return _has_kind(plain(), _kinds(annotated)[name])


def _has_kind(value: object, kind: Any) -> bool:
    origin, parts = _parsed(kind)
    if origin is Any:
        return True
    if origin in (Union, UnionType):
        return any(_has_kind(value, part) for part in parts)
    if origin is Literal:  # the function checks which words are allowed
        return isinstance(value, str)
    if isinstance(value, bool) and origin is not object:
        return origin is bool
    if origin in (int, float):
        return isinstance(value, Integral if origin is int else Real)
    if origin in (Sequence, tuple):
        # Also an array of numpy; a string is one name, and not several letters.
        several = isinstance(value, Sequence) or getattr(value, "ndim", 0) > 0
        return several and not isinstance(value, str) and _all_fit(value, parts[:1])
    if origin is Mapping:
        return isinstance(value, Mapping) and _all_fit(value.values(), parts[1:])
    if is_typeddict(origin):
        return isinstance(value, Mapping) and _all_fit(value, (str,))
    return isinstance(value, origin)


def _all_fit(values: Any, kinds: Sequence[Any]) -> bool:
    """Whether all entries fit; one of each type is checked, since there may be a million."""
    examples: Iterable[object] = {type(value): value for value in values}.values()
    return all(_has_kind(value, kind) for value in examples for kind in kinds)


def _in_words(kind: Any) -> str:
    origin, parts = _parsed(kind)
    if origin in (Union, UnionType):
        # None is no useful correction of a wrong value.
        *others, last = dict.fromkeys(_in_words(part) for part in parts if part is not NoneType)
        return f"{', '.join(others)} or {last}" if others else last
    if origin in (Sequence, tuple) and parts[:1] == (str,):
        return "a list of strings"
    same = str if origin is Literal else Mapping if is_typeddict(origin) else origin
    return _WORDS.get(same) or f"{'an' if same.__name__[0] in 'AEIOU' else 'a'} {same.__name__}"


@cache
def _takes_arrays(function: Callable[..., object], name: str) -> bool:
    """Whether an argument is annotated as an array of numpy, with which it computes."""
    origin, parts = _parsed(_kinds(function).get(name, object))
    kinds = [_parsed(part)[0] for part in parts] if origin in (Union, UnionType) else [origin]
    return any(getattr(kind, "__name__", "") in ("ndarray", "NDArray") for kind in kinds)


def _in_python(value: Any) -> Any:
    """Return a number or an array of numpy as a number or a list, anything else as it is."""
    return value.tolist() if hasattr(type(value), "tolist") else value


def plain(value: Any) -> Any:
    """Return a value in Python's types, and what is in its lists and mappings, too."""
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    # A named tuple has fields of its own.
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    return _in_python(value)


def several(values: Item | Sequence[Item]) -> Sequence[Item]:
    """Return a sequence of one or several values; a string is one."""
    return values if isinstance(values, Sequence) and not isinstance(values, str) else (values,)
