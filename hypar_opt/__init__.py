"""Which layers to train in data and which in model parallelism, on 2^H accelerators.

    >>> import hypar_opt as ho
    >>> plan = ho.solve("vgg-a", batch=256, levels=4, solver="dp")
    >>> plan.parallelism[0][-1]
    <Parallelism.MODEL: 'model'>
    >>> plan.cost.total
    1408428544

The names below are the public ones. They are imported when first used, so that
the command line answers ``--help`` without numpy or networkx.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from hypar_opt.version import __version__

if TYPE_CHECKING:
    from hypar_opt.advice import better_reading as better_reading
    from hypar_opt.alternatives import best_plans as best_plans
    from hypar_opt.alternatives import regrets as regrets
    from hypar_opt.certificate import certify as certify
    from hypar_opt.certificate import check_certificate as check_certificate
    from hypar_opt.comparison import compare as compare
    from hypar_opt.comparison import geometric_means as geometric_means
    from hypar_opt.errors import HyparError as HyparError
    from hypar_opt.evaluation import simulate as simulate
    from hypar_opt.exploration import explore as explore
    from hypar_opt.graph import layer_graph as layer_graph
    from hypar_opt.hardware.array import Array as Array
    from hypar_opt.hardware.array import read_array as read_array
    from hypar_opt.models import load as load
    from hypar_opt.models import names as names
    from hypar_opt.network import Network as Network
    from hypar_opt.network import read_network as read_network
    from hypar_opt.parallelism import Parallelism as Parallelism
    from hypar_opt.pipeline import read_plan as read_plan
    from hypar_opt.pipeline import repriced as repriced
    from hypar_opt.pipeline import solve as solve
    from hypar_opt.plan import Constraints as Constraints
    from hypar_opt.plan import Plan as Plan
    from hypar_opt.plan import Problem as Problem
    from hypar_opt.plan import write_plan as write_plan
    from hypar_opt.shapes import Shapes as Shapes
    from hypar_opt.solvers.base import SolverOptions as SolverOptions

_HOME = {
    "Array": "hardware.array",
    "Constraints": "plan",
    "HyparError": "errors",
    "Network": "network",
    "Parallelism": "parallelism",
    "Plan": "plan",
    "Problem": "plan",
    "Shapes": "shapes",
    "SolverOptions": "solvers.base",
    "best_plans": "alternatives",
    "better_reading": "advice",
    "certify": "certificate",
    "check_certificate": "certificate",
    "compare": "comparison",
    "explore": "exploration",
    "geometric_means": "comparison",
    "layer_graph": "graph",
    "load": "models",
    "names": "models",
    "read_array": "hardware.array",
    "read_network": "network",
    "read_plan": "pipeline",
    "regrets": "alternatives",
    "repriced": "pipeline",
    "simulate": "evaluation",
    "solve": "pipeline",
    "write_plan": "plan",
}

__all__ = [
    "Array",
    "Constraints",
    "HyparError",
    "Network",
    "Parallelism",
    "Plan",
    "Problem",
    "Shapes",
    "SolverOptions",
    "__version__",
    "best_plans",
    "better_reading",
    "certify",
    "check_certificate",
    "compare",
    "explore",
    "geometric_means",
    "layer_graph",
    "load",
    "names",
    "read_array",
    "read_network",
    "read_plan",
    "regrets",
    "repriced",
    "simulate",
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
