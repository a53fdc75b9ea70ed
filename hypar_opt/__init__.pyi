# The public names, each once: `__init__.py` finds at run time here, too, where each of them is.

from collections.abc import Sequence

from .display.page.write import report as report
from .errors import HyparError as HyparError
from .hardware.array import Array as Array
from .hardware.arrays import read_array as read_array
from .models import load as load
from .models import names as names
from .models import read_network as read_network
from .models.gpt import gpt as gpt
from .models.imported import import_ as import_
from .models.program import from_torch as from_torch
from .paper import reproduce as reproduce
from .plan.constraints import Constraints as Constraints
from .plan.plan import Plan as Plan
from .plan.plan import write_plan as write_plan
from .plan.problem import Problem as Problem
from .planning.solve import solve as solve
from .planning.solve import write_model as write_model
from .proofs.certificate import certify as certify
from .proofs.certificate import check_certificate as check_certificate
from .results import Views
from .search.plan_file import read_plan as read_plan
from .search.plan_file import repriced as repriced
from .solvers.base import SolverOptions as SolverOptions
from .studies.advice import better_reading as better_reading
from .studies.alternatives import best_plans as best_plans
from .studies.alternatives import regrets as regrets
from .studies.batches import solve_all_batches as solve_all_batches
from .studies.calibration import calibrate as calibrate
from .studies.comparison import compare as compare
from .studies.comparison import geometric_means as geometric_means
from .studies.configurations import configure as configure
from .studies.exploration import explore as explore
from .studies.export import export as export
from .studies.installation import doctor as doctor
from .studies.lists import list as list  # noqa: A004
from .studies.live_model import model as model
from .studies.many import solve_many as solve_many
from .studies.memory import memory as memory
from .studies.pareto import pareto as pareto
from .studies.shown import show as show
from .studies.simulation import simulate as simulate
from .studies.sweep import sweep as sweep
from .studies.validation import validate as validate
from .studies.verification import verify as verify
from .studies.virtual_run import run as run
from .version import __version__ as __version__
from .workload.graph import layer_graph as layer_graph
from .workload.network import Network as Network
from .workload.tensors import Workload as Workload

__all__: Sequence[str]  # noqa: PYI035 -- read of the imports above
arrays: tuple[str, ...]
networks: tuple[str, ...]

def _views() -> Views: ...
