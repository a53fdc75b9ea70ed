"""Constraint programming with OR-Tools' CP-SAT: exact in whole numbers, on any graph."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from math import gcd
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hypar_opt.deadline import NEVER, TIME_LIMIT, Deadline
from hypar_opt.documents import check_writable, write_whole
from hypar_opt.errors import HyparError, InputError, NoAnswerError, RefusedError, argument, worded
from hypar_opt.solvers.base import Solver, SolveResult, SolverOptions, Status, too_large
from hypar_opt.solvers.dynamic_programming import DynamicProgramming

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from ortools.sat.python.cp_model import CpSolver

    from hypar_opt.costs.table import CostTable

LARGEST_SUM = 2**56
"""What an objective's, or a capacity's, terms may add up to.

CP-SAT takes up to 2^62, but its presolve moves costs from literal to literal, and so can
make of such a model one that it then finds invalid.
"""

MOST_COLUMNS = 250_000
"""More take long just to build, whatever the time limit."""

GRACE = 0.3
"""Seconds past its time limit after which a search is told to stop."""

_RESERVED = {
    "num_workers": "the option threads",
    "num_search_workers": "the option threads",
    "random_seed": "the option seed",
    "max_time_in_seconds": "the time limit",
    "relative_gap_limit": "the option gap",
    "presolve_inclusion_work_limit": "0: with more, it proves wrong optima (or-tools issue 5293)",
    "fix_variables_to_their_hinted_value": "false: a hint is no constraint",
    "catch_sigint_signal": "false: Python has the signal",
    "log_search_progress": f"the option {worded('log', 'solver-log')}",
    "log_to_stdout": f"false: {argument('log', example='FILE')} has the log",
    "log_to_response": f"false: {argument('log', example='FILE')} has the log",
}
"""CP-SAT's parameters that are not to be set by name."""


class ConstraintProgram(Solver):
    """Hand a table to CP-SAT as clauses; settle ties with further objectives."""

    summary: ClassVar[str] = "constraint programming (OR-Tools CP-SAT); exact on any graph"
    searches: ClassVar[bool] = True
    supported_options: ClassVar[frozenset[str]] = frozenset(
        {"time_limit", "gap", "threads", "seed", "parameters"}
        | {"warm_start", "hint", "log", "export"}
    )
    most_columns: ClassVar[int | None] = MOST_COLUMNS

    def accepts(self, table: CostTable) -> str | None:
        refusal = too_large(self.most_columns, table.layers, len(table.ends), table.choices)
        if refusal:
            return refusal
        program = Program(table)
        # With room for one layer's ties beneath the costs.
        if (sum(map(abs, program.weights)) + table.choices) * table.choices > LARGEST_SUM:
            return "counts in 64 bits, and these costs could add up to more; try dp"
        if sum(map(abs, program.loads)) > LARGEST_SUM:
            return "counts in 64 bits, and these loads could add up to more; try dp"
        return None

    def solve(self, table: CostTable, options: SolverOptions) -> SolveResult:
        import ortools

        try:
            search = _Search(table, options)
        except NoAnswerError:
            return SolveResult(None, None, Status.NO_ANSWER, stopped_by=TIME_LIMIT)
        log: list[str] = []
        if options.log is not None:
            check_writable(options.log)
            search.solver.log_callback = log.append
        try:
            result = search.cheapest()
            if result.status is Status.OPTIMAL:
                result = search.canonical(result)
        finally:
            if options.log is not None:
                write_whole(options.log, "".join(f"{line}\n" for line in log))
        versions = {"ortools": ortools.__version__}  # type: ignore[attr-defined]
        return replace(result, statistics=search.program.statistics(), versions=versions)


class Program:
    """A table in 0-1 variables, so tight that on a tree the linear relaxation is exact.

    A literal is a variable's index, or ``~index`` for its opposite, as in CP-SAT's own files.

    Attributes
    ----------
    weights, unit, constant
        An assignment costs ``constant + unit * sum(weights * variables)``.
    choice : (layers, choices)
        The literal that says that the layer takes the choice; None where it may not.
    loads, room
        ``sum(loads * variables) <= room``; no loads where nothing is limited.
    any_of, one_of
        Sets of literals of which at least, or exactly, one is true.
    """

    def __init__(self, table: CostTable, deadline: Deadline = NEVER) -> None:
        self._deadline = deadline
        self.weights: list[int] = []
        self.constant = self.room = 0
        self.choice: list[list[int | None]] = []
        self.loads: list[int] = []
        self.any_of: list[list[int]] = []
        self.one_of: list[list[int]] = []
        may = np.ones(table.node.shape, bool) if table.allowed is None else table.allowed
        if may.any(axis=1).all():
            (self._two_choices if table.choices == 2 else self._any_choices)(table, may)
            self._limit(table)
        else:
            self._allow_nothing()
        self.unit = gcd(*self.weights) or 1
        self.weights = [weight // self.unit for weight in self.weights]

    def _variable(self, weight: int) -> int:
        self.weights.append(weight)
        return len(self.weights) - 1

    def _allow_nothing(self) -> None:
        x = self._variable(0)
        self.any_of += [[x], [~x]]

    def _two_choices(self, table: CostTable, may: NDArray[np.bool_]) -> None:
        """One variable a layer, and one for each edge on which the choices interact.

        An edge costs ``dd + (md - dd) u + (dm - dd) v + q u v``, q = dd + mm - dm - md, where
        u and v say that its ends take the second choice. For q < 0, u v is u + v - z with a
        threshold z above u and v, held down by its weight; for q > 0, z is above u + v - 1.
        """
        for first, second in table.node.tolist():
            self.constant += first
            x = self._variable(second - first)
            self.choice.append([~x, x])
        for (u, v), edge in zip(table.ends.tolist(), table.edge.tolist(), strict=True):
            self._deadline.check()
            (dd, dm), (md, mm) = edge
            q = dd + mm - dm - md
            self.constant += dd
            self.weights[u] += md - dd + min(q, 0)
            self.weights[v] += dm - dd + min(q, 0)
            if q:
                z = self._variable(abs(q))
                self.any_of += [[~u, z], [~v, z]] if q < 0 else [[~u, ~v, z]]
        for layer, column in np.argwhere(~may).tolist():
            self.any_of.append([layer if column == 0 else ~layer])
            self.choice[layer][column] = None

    def _any_choices(self, table: CostTable, may: NDArray[np.bool_]) -> None:
        """One variable a layer and choice, and one for each transition on an edge.

        Exactly one transition leaves the choice of an edge's source and enters that of its
        target. What all transitions of a choice have in common is charged to the choice.
        """
        node = table.node.copy()
        columns = [np.flatnonzero(row) for row in may]
        interactions = []
        for (u, v), edge in zip(table.ends.tolist(), table.edge, strict=True):
            rest = edge[np.ix_(columns[u], columns[v])]
            for end, axis in ((u, 1), (v, 0)):
                common = rest.min(axis=axis, keepdims=True)
                node[end, columns[end]] += common.ravel()
                rest = rest - common
            if rest.any():
                interactions.append((u, v, rest.tolist()))
        for costs, allowed in zip(node, columns, strict=True):
            least = int(costs[allowed].min())
            self.constant += least
            self.choice.append([None] * table.choices)
            for column in allowed.tolist():
                self.choice[-1][column] = self._variable(int(costs[column]) - least)
            self.one_of.append([x for x in self.choice[-1] if x is not None])
        taken = list(self.one_of)
        for u, v, rest in interactions:
            self._deadline.check()
            leaving = [[self._variable(cost) for cost in row] for row in rest]
            for end, transitions in ((u, leaving), (v, zip(*leaving, strict=True))):
                pairs = zip(taken[end], transitions, strict=True)
                self.one_of += [[~choice, *some] for choice, some in pairs]

    def _limit(self, table: CostTable) -> None:
        if table.load is None or table.capacity is None:
            return
        self.room, loads = table.capacity, [0] * len(self.weights)
        for row, amounts in zip(self.choice, table.load.tolist(), strict=True):
            for x, amount in zip(row, amounts, strict=True):
                if x is not None and x >= 0:
                    loads[x] += amount
                elif x is not None:
                    loads[~x] -= amount
                    self.room -= amount
        if self.room < sum(load for load in loads if load < 0):
            self._allow_nothing()
        elif self.room < sum(load for load in loads if load > 0):
            self.loads = loads

    def model(self) -> Any:
        """Make CP-SAT's model; its objective counts as the table does."""
        from ortools.sat.python import cp_model

        model = cp_model.CpModel()
        proto = model.proto
        for _ in self.weights:
            proto.variables.add().domain.extend([0, 1])
        for literals in self.any_of:
            proto.constraints.add().bool_or.literals.extend(literals)
        for literals in self.one_of:
            proto.constraints.add().exactly_one.literals.extend(literals)
        if self.loads:
            linear = proto.constraints.add().linear
            linear.vars.extend(range(len(self.loads)))
            linear.coeffs.extend(self.loads)
            linear.domain.extend([-(2**63), self.room])
        _minimise(model, self.weights)
        proto.objective.scaling_factor = self.unit
        proto.objective.offset = self.constant / self.unit
        return model

    def statistics(self) -> dict[str, float]:
        sets = self.any_of + self.one_of
        nonzeros = sum(map(len, sets)) + sum(load != 0 for load in self.loads)
        rows = len(sets) + bool(self.loads)
        return {"rows": rows, "columns": len(self.weights), "nonzeros": nonzeros}


def _minimise(model: Any, weights: Sequence[int]) -> None:
    model.clear_objective()
    used = [x for x, weight in enumerate(weights) if weight]
    model.proto.objective.vars.extend(used)
    model.proto.objective.coeffs.extend([weights[x] for x in used])


class _Search:
    """One table's model, and what is asked of it within one time limit."""

    def __init__(self, table: CostTable, options: SolverOptions) -> None:
        self._table, self._options = table, options
        self._deadline = Deadline.after(options.time_limit)
        self.solver = configured(options)
        self.program = Program(table, self._deadline)
        self._deadline.check()
        self.model = self.program.model()
        if options.export is not None:
            _export(self.model, options.export)
        start = {
            x: column == choice
            for row, choice in zip(self.program.choice, self._start(), strict=False)
            for column, x in enumerate(row)
            if x is not None and x >= 0
        }
        self._hint(list(start), list(start.values()))

    def _start(self) -> Sequence[int]:
        """Return the assignment to start from, empty for none."""
        start, dp = self._options.warm_start, DynamicProgramming()
        if start is not None:
            if len(start) != self._table.layers or not set(start) <= {*range(self._table.choices)}:
                raise HyparError("a warm start should have one of the choices for each layer")
            return start
        if self._options.hint and dp.accepts(self._table) is None:
            with suppress(RefusedError):  # too many partial plans: no hint
                found = dp.solve(self._table, SolverOptions(time_limit=self._deadline.left()))
                return found.assignment or ()
        return ()

    def _hint(self, variables: Sequence[int], values: Sequence[int]) -> None:
        self.model.clear_hints()
        self.model.proto.solution_hint.vars.extend(variables)
        self.model.proto.solution_hint.values.extend(values)

    def cheapest(self) -> SolveResult:
        """Minimise the cost; what is claimed is counted in whole numbers."""
        from ortools.sat.python import cp_model

        response = None if self._deadline.passed() else self._run()
        if response is None or response.status == cp_model.UNKNOWN:
            return SolveResult(None, None, Status.NO_ANSWER, stopped_by=self._stopped_by())
        if response.status == cp_model.INFEASIBLE:
            return SolveResult(None, None, Status.INFEASIBLE)
        assignment = self._assignment(response)
        objective = self._price(assignment)
        # The response's other bound is a double.
        bound = self.program.constant + self.program.unit * response.inner_objective_lower_bound
        if response.status == cp_model.OPTIMAL and bound == objective:
            return SolveResult(assignment, objective, Status.OPTIMAL, bound)
        # CP-SAT says optimal also where only the gap is reached.
        stopped_by = "gap" if response.status == cp_model.OPTIMAL else self._stopped_by()
        return SolveResult(assignment, objective, Status.FEASIBLE, bound, stopped_by)

    def canonical(self, found: SolveResult) -> SolveResult:
        """Among the assignments that cost as little, find the one that all solvers return.

        Choices, the last layer's as the highest digit, make a number to minimise below the
        cost; as many layers at a time as fit, those behind fixed. A limit that comes first
        leaves an optimum that may not be the canonical one: the result says so.
        """
        from ortools.sat.python import cp_model

        program, choices = self.program, self._table.choices
        assert found.assignment is not None
        assignment = found.assignment
        most = LARGEST_SUM // (choices + sum(map(abs, program.weights)))
        digits = 1
        while digits < self._table.layers and choices ** (digits + 1) <= most:
            digits += 1
        for limit in ("relative_gap_limit", "absolute_gap_limit"):
            setattr(self.solver.parameters, limit, 0.0)
        for last in range(self._table.layers, 0, -digits):
            block = range(max(0, last - digits), last)
            earlier = (program.choice[layer][: assignment[layer]] for layer in block)
            if any(x is not None for row in earlier for x in row):
                weights = [weight * choices ** len(block) for weight in program.weights]
                for place, layer in enumerate(block):
                    for column, x in enumerate(program.choice[layer]):
                        if column and x is not None:
                            weights[x] += column * choices**place
                _minimise(self.model, weights)
                response = self._run()
                if response.status != cp_model.OPTIMAL:
                    return replace(found, assignment=assignment, stopped_by=self._stopped_by())
                assignment = self._assignment(response)
            for layer in block:
                literal = program.choice[layer][assignment[layer]]
                self.model.proto.constraints.add().bool_or.literals.append(literal)
        return replace(found, assignment=assignment)

    def _run(self) -> Any:
        """Return CP-SAT's response, or end with KeyboardInterrupt.

        Python hears a signal only in its main thread and between its own instructions, so
        the search has a thread to itself.
        """
        from ortools.sat.python import cp_model

        left = self._deadline.left()
        if left is not None:
            self.solver.parameters.max_time_in_seconds = left
        begun, ended = Event(), Event()

        def search() -> None:
            begun.set()
            try:
                self.solver.solve(self.model)
            finally:
                ended.set()

        try:
            Thread(target=search, daemon=True).start()
            ended.wait(None if left is None else left + GRACE)
        finally:
            # A signal may come while the thread starts. It is never left behind: a process that
            # ends under it is aborted.
            if begun.wait(1.0):
                while not ended.wait(0.01):
                    self.solver.stop_search()
        response = self.solver.response_proto
        if response.status == cp_model.MODEL_INVALID:
            raise HyparError(f"CP-SAT: {response.solution_info or self.model.validate()}")
        if response.status != cp_model.INFEASIBLE and response.solution:
            self._hint(range(len(response.solution)), list(response.solution))
        return response

    def _assignment(self, response: Any) -> tuple[int, ...]:
        values = list(response.solution)
        return tuple(
            next(
                column
                for column, x in enumerate(row)
                if x is not None and (values[x] if x >= 0 else not values[~x])
            )
            for row in self.program.choice
        )

    def _price(self, assignment: Sequence[int]) -> int:
        table, taken = self._table, np.array(assignment)
        node = table.node[np.arange(table.layers), taken]
        edge = table.edge[np.arange(len(table.ends)), *taken[table.ends.T]]
        return sum(map(int, node)) + sum(map(int, edge))

    def _stopped_by(self) -> str | None:
        """Name the limit that came before a proof: of time, or one among the parameters."""
        left, limit = self._deadline.left(), self._options.time_limit
        # CP-SAT stops a little early rather than late.
        if self._options.parameters and (left is None or limit is None or left > 0.05 * limit):
            return "solver option"
        return None if left is None else TIME_LIMIT


def configured(options: SolverOptions) -> CpSolver:
    """Return CP-SAT's solver with the parameters that the options ask for."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.catch_sigint_signal = False
    # Clauses join the linear relaxation: without it a graph of 30 layers takes minutes.
    parameters.linearization_level = 2
    # By default CP-SAT stops at a gap of 1e-4, in doubles.
    parameters.absolute_gap_limit = 0.0
    parameters.relative_gap_limit = options.gap
    # Under a capacity, this part of presolve proves wrong optima: or-tools issue 5293.
    parameters.presolve_inclusion_work_limit = 0
    parameters.log_search_progress = options.log is not None
    parameters.log_to_stdout = False
    _set(parameters, "num_workers", str(options.threads or 1))
    if options.seed is not None:
        _set(parameters, "random_seed", str(options.seed))
    for name, text in options.parameters.items():
        if name in _RESERVED:
            raise HyparError(f"CP-SAT's {name} is here {_RESERVED[name]}")
        _set(parameters, name, text)
    return solver


def _set(parameters: Any, name: str, text: str) -> None:
    """Set a field of SatParameters from its text, or say what would be right."""
    kind = type(getattr(parameters, name, None))
    words: dict[str, Any] = dict(getattr(kind, "__members__", {}))
    if kind is bool:
        words = {"true": True, "false": False}
    # Text could name what is read or written, and debug_ parameters can end the process.
    read: dict[type, Any] = {int: int, float: float}
    if name.startswith("debug_") or (not words and kind not in read):
        near = get_close_matches(name, dir(parameters), n=1)
        hint = f": did you mean {near[0]}?" if near else ""
        raise HyparError(f"CP-SAT has no parameter {name!r} that takes one value{hint}")
    try:
        setattr(parameters, name, words[text] if words else read[kind](text))
    except (KeyError, TypeError, ValueError):
        known = ", ".join(words) or ("a whole number" if kind is int else "a number")
        raise HyparError(f"CP-SAT's {name} should be {known}, got {text!r}") from None


def _export(model: Any, path: Path) -> None:
    """Write the model whole or not at all: binary, or text for ``.pbtxt``."""
    if path.suffix not in (".pb", ".pbtxt"):
        raise InputError("cpsat writes a model as .pb, or as .pbtxt for text", file=str(path))
    with tempfile.TemporaryDirectory() as place:
        draft = Path(place, "model").with_suffix(path.suffix)
        if not model.export_to_file(str(draft)):
            raise InputError("CP-SAT could not write its model", file=str(path))
        write_whole(path, draft.read_bytes())
