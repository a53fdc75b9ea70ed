"""Exported models, solved again."""

from __future__ import annotations

from pathlib import Path


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
