"""CP-SAT on VGG-E jointly at four levels: its solve alone, against that of an empty model."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from google.protobuf import text_format
from ortools.sat import cp_model_pb2
from ortools.sat.python import cp_model

import hypar_opt as ho
from benchmarks.measure import judged, size
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import SolverOptions

ROUNDS = size(51, 1)
TARGET = 15


def vgg_e() -> tuple[cp_model.CpModel, int]:
    """Return the model that the solver makes, as it exports it, and its optimum."""
    workload = ho.Workload.of(ho.layer_graph(ho.load("vgg-e")), 256)
    thresholds = CommunicationCost().thresholds(workload, 4)
    assert thresholds is not None
    table = thresholds.as_one_table()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.pb")
        result = SOLVERS["cpsat"]().solve(table, SolverOptions(export=file))
        written = cp_model_pb2.CpModelProto.FromString(file.read_bytes())
    model = cp_model.CpModel()
    model.proto.parse_text_format(text_format.MessageToString(written))
    assert result.objective is not None
    return model, result.objective


def seconds(model: cp_model.CpModel) -> float:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    started = time.perf_counter()
    status = solver.solve(model)
    taken = time.perf_counter() - started
    assert status == cp_model.OPTIMAL
    return taken


def main() -> None:
    model, objective = vgg_e()
    solver = cp_model.CpSolver()
    solver.solve(model)
    assert round(solver.objective_value) == objective
    empty = cp_model.CpModel()
    pairs = [(seconds(model), seconds(empty)) for _ in range(ROUNDS)]
    ratio = median(a / b for a, b in pairs)
    print(f"VGG-E, four levels jointly: {median(a for a, _ in pairs) * 1e3:.2f} ms")
    print(f"an empty model: {median(b for _, b in pairs) * 1e3:.2f} ms")
    sys.exit(judged("CP-SAT on VGG-E against an empty model", ratio, TARGET))


if __name__ == "__main__":
    main()
