"""Which layers to train in data and which in model parallelism, on 2^H accelerators.

    >>> import hypar_opt as ho
    >>> plan = ho.solve("vgg-a", batch=256, levels=4, solver="dp")
    >>> plan.parallelism[0][-1]
    <Parallelism.MODEL: 'model'>
    >>> plan.cost.total
    1587544064

The names below are the public ones. They are imported when first used, so that
the command line answers ``--help`` without numpy or networkx.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypar_opt.errors import HyparError as HyparError
    from hypar_opt.graph import layer_graph as layer_graph
    from hypar_opt.models import load as load
    from hypar_opt.models import names as names
    from hypar_opt.network import Network as Network
    from hypar_opt.network import read_network as read_network
    from hypar_opt.parallelism import Parallelism as Parallelism
    from hypar_opt.pipeline import better_reading as better_reading
    from hypar_opt.pipeline import read_plan as read_plan
    from hypar_opt.pipeline import solve as solve
    from hypar_opt.plan import Plan as Plan
    from hypar_opt.plan import write_plan as write_plan
    from hypar_opt.shapes import Shapes as Shapes

__version__ = "0.1.0"

_HOME = {
    "HyparError": "errors",
    "Network": "network",
    "Parallelism": "parallelism",
    "Plan": "plan",
    "Shapes": "shapes",
    "better_reading": "pipeline",
    "layer_graph": "graph",
    "load": "models",
    "names": "models",
    "read_network": "network",
    "read_plan": "pipeline",
    "solve": "pipeline",
    "write_plan": "plan",
}

__all__ = [
    "HyparError",
    "Network",
    "Parallelism",
    "Plan",
    "Shapes",
    "__version__",
    "better_reading",
    "layer_graph",
    "load",
    "names",
    "read_network",
    "read_plan",
    "solve",
    "write_plan",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
