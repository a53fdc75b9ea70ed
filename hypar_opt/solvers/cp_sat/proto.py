"""A clause model as a model of CP-SAT's, in memory and in a file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypar_opt.documents.files import write_whole
from hypar_opt.errors import InputError
from hypar_opt.solvers.model_names import plain_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.costs.row_names import RowNames
    from hypar_opt.solvers.cp_sat.clauses import ClauseModel


def to_cp_model(clauses: ClauseModel) -> Any:
    """Return CP-SAT's model, whose reported objective is in the table's units."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    # Protobuf fields, since a Python object for each of 250,000 variables would take long to make.
    proto = model.proto
    program, binary = clauses.program, clauses.program.binary
    for column in program.costs:
        low, high, _ = program.domain(column, binary)
        # A threshold or a flow is at most 1 at any optimum.
        proto.variables.add().domain.extend([low, 1 if high is None else high])
    for row in program.constraints:
        constraint, literals = proto.constraints.add(), clauses.literals(row)
        if literals is None:
            constraint.linear.vars.extend([clauses.numbers[column] for column in row.terms])
            constraint.linear.coeffs.extend(row.terms.values())
            constraint.linear.domain.extend([-(2**63), row.bound])
        elif row.sense == "=":
            constraint.exactly_one.literals.extend(literals)
        else:
            constraint.bool_or.literals.extend(literals)
    # Scale and offset are doubles, for the log and the exported file alone.
    set_objective(model, clauses.weights)
    proto.objective.scaling_factor = program.factor
    proto.objective.offset = program.constant / program.factor
    return model


def set_objective(model: Any, weights: Sequence[int]) -> None:
    """Replace the model's objective: minimise the weighted sum of its variables."""
    model.clear_objective()
    weighted = [x for x, weight in enumerate(weights) if weight]
    model.proto.objective.vars.extend(weighted)
    model.proto.objective.coeffs.extend([weights[x] for x in weighted])


def set_hint(model: Any, variables: Sequence[int], values: Sequence[int]) -> None:
    """Replace the model's hint: the values from which the search starts."""
    model.clear_hints()
    model.proto.solution_hint.vars.extend(variables)
    model.proto.solution_hint.values.extend(values)


def export_model(
    clauses: ClauseModel, model: Any, labels: RowNames | None, path: Path, scope: str = ""
) -> None:
    """Write the model completely or not at all: binary as ``.pb``, text as ``.pbtxt``.

    Labels name the variables of the choices, as ``x[conv1,H2,model]``; the others have numbers.
    The model's name says which plans it has, if not all.

    Raises
    ------
    InputError
        If the file has another suffix, or cannot be written.
    """
    if path.suffix not in (".pb", ".pbtxt"):
        raise InputError("cpsat writes a model as .pb, or as .pbtxt for text", file=str(path))
    model.proto.name = scope
    for row, literals in enumerate(clauses.choice_literals):
        for column, x in enumerate(literals):
            # With two choices one variable serves both, and is true for the second.
            if labels is not None and x >= 0:
                fields = labels.layer(row), labels.level(row), labels.choice(row, column)
                model.proto.variables[x].name = plain_name("x", *fields)
    # CP-SAT writes to a path only, and would leave half a file where the disk is full.
    with tempfile.TemporaryDirectory() as directory:
        draft = Path(directory, "model").with_suffix(path.suffix)
        if not model.export_to_file(str(draft)):
            raise InputError("CP-SAT could not write its model", file=str(path))
        write_whole(path, draft.read_bytes())
