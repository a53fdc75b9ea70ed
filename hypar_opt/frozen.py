"""Values that nobody can change in place: the mappings, arrays and rows of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, wraps
from typing import Any, NoReturn, TypeVar

_PLAIN = frozenset({int, str, bool, float, type(None)})
"""Types without entries, of which rows of results mostly consist."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class FrozenDict(dict[Key, Value]):
    """An immutable dict.

    Unlike `types.MappingProxyType` it can be pickled, copied, hashed and written as JSON.
    """

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("a result cannot be changed in place; dict(...) makes a copy that can be")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled as a whole: by default pickle sets a dict's entries one by one.
        return type(self), (dict(self),)


def frozen(value: Value) -> Value:
    """Return a value whose dicts, lists and arrays cannot be changed, at any depth.

    Arrays become read-only in place; containers are copied.
    """
    result: Any = value
    if type(result) in _PLAIN:
        return value
    if hasattr(result, "setflags"):  # an array; not every caller needs numpy
        result.setflags(write=False)
    elif isinstance(result, Mapping):
        result = FrozenDict({key: frozen(entry) for key, entry in result.items()})
    elif type(result) in (list, tuple) and not {*map(type, result)} - _PLAIN:
        result = tuple(result)
    elif type(result) in (list, tuple):
        # Each distinct entry once: repetitions of a block share entries.
        distinct = {id(entry): entry for entry in result}
        entries = {number: frozen(entry) for number, entry in distinct.items()}
        result = tuple([entries[id(entry)] for entry in result])
    elif hasattr(result, "_make"):  # a named tuple
        result = result._make(map(frozen, result))
    return result  # type: ignore[no-any-return]


def derived(compute: Callable[[Any], Value]) -> cached_property[Value]:
    """Return a property that is computed once, and whose value cannot be changed in place."""

    @wraps(compute)
    def computed(owner: Any) -> Value:
        return frozen(compute(owner))

    return cached_property(computed)


def derived_from(source: str) -> Callable[[Callable[[Any], Value]], cached_property[Value]]:
    """Return a `derived` that takes its value from the object in an attribute, if there is one."""

    def decorate(compute: Callable[[Any], Value]) -> cached_property[Value]:
        @wraps(compute)
        def computed(owner: Any) -> Value:
            member = getattr(owner, source)
            value: Value = (
                frozen(compute(owner)) if member is None else getattr(member, compute.__name__)
            )
            return value

        return cached_property(computed)

    return decorate


class Frozen:
    """A dataclass whose fields cannot be changed in place, nor those of its copies."""

    def __post_init__(self) -> None:
        self.__setstate__(vars(self))

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: frozen(value) for name, value in state.items()})
