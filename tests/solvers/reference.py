"""What the solvers are compared with: enumeration, and exported models solved again."""

from __future__ import annotations

import itertools
from pathlib import Path

from hypar_opt.costs.table import CostTable

PricedAssignment = tuple[int, tuple[int, ...]]
"""An assignment and, before it, its cost."""


def assignments_by_cost(table: CostTable) -> list[PricedAssignment]:
    """Price all that are allowed and fit, in canonical order: by cost, then last layer back.

    The costs are added up here once more: the table's own `price` is what solvers use.
    """
    priced = []
    layers = range(table.layers)
    for assignment in itertools.product(range(table.choices), repeat=table.layers):
        if table.allowed is not None and not table.allowed[layers, assignment].all():
            continue
        if table.load is not None and table.load[layers, assignment].sum() > table.capacity:
            continue
        cost = sum(int(table.node[layer, choice]) for layer, choice in enumerate(assignment))
        for (u, v), edge in zip(table.ends.tolist(), table.edge.tolist(), strict=True):
            cost += edge[assignment[u]][assignment[v]]
        priced.append((cost, assignment))
    return sorted(priced, key=lambda row: (row[0], row[1][::-1]))


def exported_optimum(file: Path) -> tuple[int, int]:
    """Return the optimum and the number of variables of a model that CP-SAT exported."""
    from google.protobuf import text_format
    from ortools.sat import cp_model_pb2
    from ortools.sat.python import cp_model

    if file.suffix == ".pbtxt":
        text = file.read_text()
    else:
        message = cp_model_pb2.CpModelProto.FromString(file.read_bytes())
        text = text_format.MessageToString(message)
    model = cp_model.CpModel()
    assert model.proto.parse_text_format(text)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    return round(solver.objective_value), len(model.proto.variables)
