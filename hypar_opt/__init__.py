"""Plan data and model parallelism, layer by layer, for training on accelerators.

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

from hypar_opt.version import __version__

TYPE_CHECKING = False
"""As in `typing`, which is not imported for it: a Ctrl-C during this file prints a traceback."""

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.display.page.write import report as report
    from hypar_opt.errors import HyparError as HyparError
    from hypar_opt.hardware.array import Array as Array
    from hypar_opt.hardware.arrays import read_array as read_array
    from hypar_opt.models import load as load
    from hypar_opt.models import names as names
    from hypar_opt.models import read_network as read_network
    from hypar_opt.models.gpt import gpt as gpt
    from hypar_opt.models.imported import import_ as import_
    from hypar_opt.models.program import from_torch as from_torch
    from hypar_opt.paper import reproduce as reproduce
    from hypar_opt.pipeline import solve as solve
    from hypar_opt.pipeline import write_model as write_model
    from hypar_opt.plan.constraints import Constraints as Constraints
    from hypar_opt.plan.plan import Plan as Plan
    from hypar_opt.plan.plan import write_plan as write_plan
    from hypar_opt.plan.problem import Problem as Problem
    from hypar_opt.proofs.certificate import certify as certify
    from hypar_opt.proofs.certificate import check_certificate as check_certificate
    from hypar_opt.results import Views
    from hypar_opt.search.plan_file import read_plan as read_plan
    from hypar_opt.search.plan_file import repriced as repriced
    from hypar_opt.solvers.base import SolverOptions as SolverOptions
    from hypar_opt.studies.advice import better_reading as better_reading
    from hypar_opt.studies.alternatives import best_plans as best_plans
    from hypar_opt.studies.alternatives import regrets as regrets
    from hypar_opt.studies.batches import solve_all_batches as solve_all_batches
    from hypar_opt.studies.calibration import calibrate as calibrate
    from hypar_opt.studies.comparison import compare as compare
    from hypar_opt.studies.comparison import geometric_means as geometric_means
    from hypar_opt.studies.configurations import configure as configure
    from hypar_opt.studies.exploration import explore as explore
    from hypar_opt.studies.export import export as export
    from hypar_opt.studies.installation import doctor as doctor
    from hypar_opt.studies.lists import list as list  # noqa: A004
    from hypar_opt.studies.live_model import model as model
    from hypar_opt.studies.many import solve_many as solve_many
    from hypar_opt.studies.memory import memory as memory
    from hypar_opt.studies.pareto import pareto as pareto
    from hypar_opt.studies.shown import show as show
    from hypar_opt.studies.simulation import simulate as simulate
    from hypar_opt.studies.sweep import sweep as sweep
    from hypar_opt.studies.validation import validate as validate
    from hypar_opt.studies.verification import verify as verify
    from hypar_opt.studies.virtual_run import run as run
    from hypar_opt.workload.graph import layer_graph as layer_graph
    from hypar_opt.workload.network import Network as Network
    from hypar_opt.workload.tensors import Workload as Workload

    arrays: tuple[str, ...]
    networks: tuple[str, ...]

# Type checkers see the imports above; at run time `__getattr__` looks names up here.
_HOME = {
    "Array": "hardware.array",
    "Constraints": "plan.constraints",
    "HyparError": "errors",
    "Network": "workload.network",
    "Plan": "plan.plan",
    "Problem": "plan.problem",
    "SolverOptions": "solvers.base",
    "Workload": "workload.tensors",
    "best_plans": "studies.alternatives",
    "better_reading": "studies.advice",
    "calibrate": "studies.calibration",
    "certify": "proofs.certificate",
    "check_certificate": "proofs.certificate",
    "compare": "studies.comparison",
    "configure": "studies.configurations",
    "doctor": "studies.installation",
    "explore": "studies.exploration",
    "export": "studies.export",
    "geometric_means": "studies.comparison",
    "from_torch": "models.program",
    "gpt": "models.gpt",
    "import_": "models.imported",
    "layer_graph": "workload.graph",
    "list": "studies.lists",
    "load": "models",
    "memory": "studies.memory",
    "model": "studies.live_model",
    "names": "models",
    "pareto": "studies.pareto",
    "read_array": "hardware.arrays",
    "read_network": "models",
    "read_plan": "search.plan_file",
    "regrets": "studies.alternatives",
    "repriced": "search.plan_file",
    "report": "display.page.write",
    "reproduce": "paper",
    "run": "studies.virtual_run",
    "show": "studies.shown",
    "simulate": "studies.simulation",
    "solve": "pipeline",
    "solve_all_batches": "studies.batches",
    "solve_many": "studies.many",
    "sweep": "studies.sweep",
    "validate": "studies.validation",
    "verify": "studies.verification",
    "write_model": "pipeline",
    "write_plan": "plan.plan",
}
_NAMES = {"arrays": "hardware.arrays", "networks": "models"}
"""Names at hand, by where a function ``names`` lists them."""

__all__ = [
    "Array",
    "Constraints",
    "HyparError",
    "Network",
    "Plan",
    "Problem",
    "SolverOptions",
    "Workload",
    "__version__",
    "arrays",
    "best_plans",
    "better_reading",
    "calibrate",
    "certify",
    "check_certificate",
    "compare",
    "configure",
    "doctor",
    "explore",
    "export",
    "from_torch",
    "geometric_means",
    "gpt",
    "import_",
    "layer_graph",
    "load",
    "memory",
    "model",
    "names",
    "networks",
    "pareto",
    "read_array",
    "read_network",
    "read_plan",
    "regrets",
    "report",
    "repriced",
    "reproduce",
    "run",
    "show",
    "simulate",
    "solve",
    "solve_all_batches",
    "solve_many",
    "sweep",
    "validate",
    "verify",
    "write_model",
    "write_plan",
]


def __getattr__(name: str) -> object:
    import importlib
    from contextlib import suppress

    if name in _HOME or name in _NAMES:
        home = importlib.import_module(f"{__name__}.{_HOME.get(name) or _NAMES[name]}")
        value = getattr(home, name) if name in _HOME else home.names()
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
    return [*__all__, "list"]


def _views() -> Views:
    # Here, where all rooms may be named: what shows a result is above what makes it.
    import hypar_opt.display.terminal.views as views

    return views
