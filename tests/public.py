"""One of each result, and what can be reached from it, for tests of all of them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import hypar_opt as ho
from hypar_opt.simulator.options import RunOptions
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of

FEW = 12
"""Entries of a list that are looked at."""

SWEEP = """
schema = "hypar-opt/sweep/1"
networks = ["lenet-c"]
batches = [16]
levels = [2]
simulate = false
"""


STEPS = """
schema = "hypar-opt/measured/1"
columns = ["id", "machine", "gpus", "layers", "hidden", "heads", "seq", "vocab", "tp", "pp", "dp",
           "mbs", "gbs", "recompute", "sp", "zero", "attention", "precision", "seconds"]
[[set]]
name = "tiny"
source = "made up"
rows = [
  ["one", "selene", 2, 1, 32, 2, 16, 50, 1, 1, 2, 1, 2, "none", false, 0, "flash", "bf16", 0.01],
]
"""


def steps_file(folder: Path) -> Path:
    """Write a file of one measured step."""
    path = folder / "steps.toml"
    path.write_text(STEPS)
    return path


def sweep_file(folder: Path) -> Path:
    """Write a sweep file of one case."""
    path = folder / "sweep.toml"
    path.write_text(SWEEP)
    return path


def results(folder: Path) -> list[Any]:
    """Return what the public functions return, one of each kind."""
    options = ho.SolverOptions(parameters={"threads": "1"}, log=folder / "log")
    constraints = ho.Constraints(fix=("conv1=data",), memory="1GB")
    network = ho.load("lenet-c")
    plan = ho.solve(network, levels=2, constraints=constraints)
    placed = ho.solve("lenet-c", array="hmc-htree-2", search="joint")
    return [
        options,
        network,
        plan,
        placed,
        plan.problem,
        ho.load("resnet-18"),
        ho.read_array(_array(folder)),
        ho.solve("lenet-c", array=_with_adapters(folder), batch=32),
        ho.best_plans(placed, 3),
        ho.regrets(placed),
        ho.certify(placed),
        ho.verify(placed, certificate=ho.certify(placed)),
        ho.verify("sfc", levels=1, solvers=["dp", "brute"]),
        ho.doctor(["numpy"]),
        ho.compare("sfc", "hmc-htree-2", batches=16),
        ho.simulate(placed, trace=True),
        ho.simulate("lenet-c", "rtx4090x4", stages=2, micro_batches=2, batch=16, trace=True),
        ho.memory(placed, recompute="full"),
        ho.validate(steps_file(folder)),
        ho.calibrate("a100-8", steps_file(folder)),
        RunOptions(input_sizes={"conv1": (8, 8)}),
        ho.explore(placed, "H1"),
        ho.explore(placed, "H1", objective="time", array="hmc-htree-2").grid("conv*", "fc*"),
        ho.pareto("lenet-c", array="hmc-htree-2", points=2),
        ho.configure("gpt:layers=1,hidden=32,heads=2,tokens=16,vocabulary=50", "a100-8", batch=8),
        ho.solve_all_batches("lenet-c", levels=2),
        ho.solve_many("lenet-c", batch=[1, 16], element_bytes=[1, 4]),
        ho.run(ho.solve("lenet-c", levels=1, reading="executed"), scale_down=True),
        workload_of(ho.load("gpt2"), 2, CHOICES, shared_tensors=True),
        ho.sweep(sweep_file(folder), folder / "table.csv"),
    ]


def _array(folder: Path) -> Path:
    from hypar_opt.documents.document import preset_text

    path = folder / "array.toml"
    path.write_text(preset_text("hypar_opt.hardware.arrays", "hmc-torus-4"))
    return path


def _with_adapters(folder: Path) -> ho.Array:
    from hypar_opt.documents.document import preset_text

    text = preset_text("hypar_opt.hardware.arrays", "a100-4x8")
    path = folder / "adapters.toml"
    path.write_text(text.replace("per_node = 8", "per_node = 8\nadapters = 4"))
    return ho.read_array(path)


def subclasses(base: type) -> set[type]:
    """Return the package's classes below one, wherever they are defined."""
    for module in pkgutil.walk_packages(ho.__path__, "hypar_opt."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found, todo = set(), [base]
    while todo:
        todo += (own := todo.pop()).__subclasses__()
        if own.__module__.startswith("hypar_opt."):
            found.add(own)
    return found


def reached(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield all that a result holds, and where; of what is alike and long, the first few."""
    seen: dict[int, Any] = {}
    todo = [(type(value).__name__, value)]
    while todo:
        where, here = todo.pop()
        if id(here) in seen:
            continue
        seen[id(here)] = here  # kept, or another could have its id
        yield where, here
        if isinstance(here, Mapping):
            todo += islice(((f"{where}[{key!r}]", part) for key, part in here.items()), FEW)
        elif isinstance(here, tuple | list):
            todo += islice(((f"{where}[{n}]", part) for n, part in enumerate(here)), FEW)
        elif type(here).__module__.startswith("hypar_opt."):
            todo += [(f"{where}.{name}", part) for name, part in _held(here)]


def _held(owner: Any) -> Iterator[tuple[str, Any]]:
    """Yield the public attributes that are the same object at each access."""
    for name in dir(owner):
        if name.startswith(("_", "model_")):
            continue
        try:
            value = getattr(owner, name)
            again = getattr(owner, name)
        except ho.HyparError:  # as the energies of an array without any
            continue
        if value is again and not callable(value):
            yield name, value
