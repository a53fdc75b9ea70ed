"""Plan how the training of a neural network is split over accelerators, layer by layer.

    >>> import hypar_opt as ho
    >>> plan = ho.solve("vgg-a", batch=256, levels=4, solver="dp")
    >>> plan.parallelism[0][-1]
    'model'
    >>> plan.cost.total
    1408428544

The names below are the public ones. Each is imported on first use, so that the command
line answers ``--help`` without importing numpy.
"""

from __future__ import annotations

TYPE_CHECKING = False
"""As in `typing`, which is not imported for it: a Ctrl-C during this file prints a traceback."""

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.results import Views

_NAMES = {"arrays": "hardware.arrays", "networks": "models"}
"""Names at hand, by where a function ``names`` lists them."""


_HOMES: dict[str, str] = {}
"""The module of each public name, from when one is needed."""


def _homes() -> dict[str, str]:
    """Return the module of each public name: the stub's imports, which type checkers read."""
    if _HOMES:
        return _HOMES
    import os

    # By the loader, since a package may be in a zip file.
    stub = os.path.join(os.path.dirname(__file__), "__init__.pyi")  # noqa: PTH118, PTH120
    text = __spec__.loader.get_data(stub).decode()
    words = [line.split() for line in text.splitlines() if line.startswith("from .")]
    _HOMES.update((line[5], line[1][1:]) for line in words if line[4:5] == ["as"])
    return _HOMES


def __getattr__(name: str) -> object:
    import importlib
    from contextlib import suppress

    if name == "__all__":
        # Without ``list``, which would hide Python's from ``import *``.
        return sorted({*_homes(), *_NAMES} - {"list"})
    if name in _NAMES or name in _homes():
        home = importlib.import_module(f"{__name__}.{_NAMES.get(name) or _homes()[name]}")
        value = home.names() if name in _NAMES else getattr(home, name)
        # Stored, so that the next access does not come here.
        globals()[name] = value
        return value
    # A room, such as `models`, which anything else may have imported already, or not.
    with suppress(ModuleNotFoundError):
        if not name.startswith("_"):
            return importlib.import_module(f"{__name__}.{name}")
    import sys

    # With the module, Python's traceback suggests the nearest name.
    problem = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(problem, name=name, obj=sys.modules[__name__])


def __dir__() -> Sequence[str]:
    return [*_homes(), *_NAMES]


def _views() -> Views:
    # Here, where all rooms may be named: what shows a result is above what makes it.
    import hypar_opt.display.terminal.views as views

    return views
