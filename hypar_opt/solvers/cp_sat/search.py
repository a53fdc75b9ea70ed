"""The search of one table with CP-SAT: an optimum, then the canonical one of its ties."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from hypar_opt.deadline import TIME_LIMIT, Deadline, with_grace
from hypar_opt.errors import HyparError, RefusedError
from hypar_opt.solvers.base import SolveResult, SolverOptions, Status
from hypar_opt.solvers.cp_sat.clauses import MAX_SUM, clause_model
from hypar_opt.solvers.cp_sat.parameters import configured, demand_optimum
from hypar_opt.solvers.cp_sat.proto import (
    export_model,
    set_hint,
    set_objective,
    to_cp_model,
)
from hypar_opt.solvers.dynamic_programming import DynamicProgramming
from hypar_opt.solvers.feasibility import allowed_choices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ortools.sat.python.cp_model import CpSolver

    from hypar_opt.costs.table import CostTable
    from hypar_opt.solvers.cp_sat.clauses import ClauseModel


class CpSatSearch:
    """The model of one table, solved several times within one time limit.

    Attributes
    ----------
    clauses
        The table as clauses.
    model, solver
        CP-SAT's; the model's objective, hint and fixed choices change between runs.

    Raises
    ------
    NoAnswerError
        If the time limit passes while the model is made.
    HyparError
        If a parameter or the warm start is wrong.
    """

    def __init__(self, table: CostTable, options: SolverOptions) -> None:
        self._table, self._options = table, options
        self._deadline = Deadline.after(options.time_limit)
        self.solver = configured(options)
        self.clauses = clause_model(table, self._deadline)
        self._deadline.check()
        self.model = to_cp_model(self.clauses)
        if options.export is not None:
            export_model(self.clauses, self.model, options.labels, options.export)
        initial = _values(self.clauses, _start(table, options, self._deadline))
        set_hint(self.model, list(initial), list(initial.values()))

    def optimum(self) -> SolveResult:
        """Return any optimum, or the best assignment and bound known at the limit."""
        from ortools.sat.python import cp_model

        response = None if self._deadline.passed() else self._run()
        if response is None or response.status == cp_model.UNKNOWN:
            return SolveResult(None, None, Status.NO_ANSWER, stopped_by=self._stopped_by())
        if response.status == cp_model.INFEASIBLE:
            return SolveResult(None, None, Status.INFEASIBLE)
        assignment = _assignment(self.clauses, response)
        objective = self._table.price(assignment)
        # In integers: the response's other bound, `best_objective_bound`, is a double.
        bound = self.clauses.program.bound(response.inner_objective_lower_bound)
        # CP-SAT's claim of an optimum counts only if its bound equals the exact price.
        if response.status == cp_model.OPTIMAL and bound == objective:
            return SolveResult(assignment, objective, Status.OPTIMAL, bound)
        # CP-SAT reports "optimal" also where only the gap is reached.
        stopped_by = "gap" if response.status == cp_model.OPTIMAL else self._stopped_by()
        return SolveResult(assignment, objective, Status.FEASIBLE, bound, stopped_by)

    def break_ties(self, optimum: SolveResult) -> SolveResult:
        """Return the canonical one of the assignments that tie with an optimum.

        The objective becomes lexicographic: the cost first, then the choices as the digits of
        a number, the last layer's the highest. Blocks of as many layers as fit into 64 bits are
        minimised from the last layer back, each then fixed. A limit that comes first leaves an
        optimum that may not be the canonical one: ``stopped_by`` says so.
        """
        from ortools.sat.python import cp_model

        assert optimum.assignment is not None
        assignment = optimum.assignment
        block_size = self._block_size()
        demand_optimum(self.solver)
        for block_end in range(self._table.layers, 0, -block_size):
            block = range(max(0, block_end - block_size), block_end)
            # Skipping a block that is at its first choices already saves a run.
            if self._may_be_earlier(block, assignment):
                set_objective(self.model, self._weights_with_digits(block))
                response = self._run()
                if response.status != cp_model.OPTIMAL:
                    return replace(optimum, assignment=assignment, stopped_by=self._stopped_by())
                assignment = _assignment(self.clauses, response)
            # The digits of the layers before are worth less than these, so these are final.
            for layer in block:
                literal = self.clauses.choice_literals[layer][assignment[layer]]
                self.model.proto.constraints.add().bool_or.literals.append(literal)
        return replace(optimum, assignment=assignment)

    def _block_size(self) -> int:
        """Return how many layers' choices fit into 64 bits as digits below the cost."""
        choices = self._table.choices
        # The cost is weighted by choices ** digits, more than all digits together amount to.
        largest_number = MAX_SUM // (choices + sum(map(abs, self.clauses.weights)))
        digits = 1
        while digits < self._table.layers and choices ** (digits + 1) <= largest_number:
            digits += 1
        return digits

    def _may_be_earlier(self, block: range, assignment: Sequence[int]) -> bool:
        """Whether a layer of the block is allowed a choice before the one that it has."""
        allowed = allowed_choices(self._table)
        return any(allowed[layer, : assignment[layer]].any() for layer in block)

    def _weights_with_digits(self, block: range) -> list[int]:
        """Return the weights of the cost as high digits and of the block's choices as low ones."""
        choices = self._table.choices
        weights = [weight * choices ** len(block) for weight in self.clauses.weights]
        for digit, layer in enumerate(block):
            for choice, x in enumerate(self.clauses.choice_literals[layer]):
                # The first choice adds 0; of two, it is the only one whose literal is negated.
                if choice:
                    weights[x] += choice * choices**digit
        return weights

    def _run(self) -> Any:
        """Return CP-SAT's response, which becomes the hint of the next run."""
        from ortools.sat.python import cp_model

        solve_interruptibly(self.solver, self.model, self._deadline.left())
        response = self.solver.response_proto
        if response.status == cp_model.MODEL_INVALID:
            raise HyparError(f"CP-SAT: {response.solution_info or self.model.validate()}")
        # The next objective agrees with this one on all but ties, so its optimum is near.
        if response.status != cp_model.INFEASIBLE and response.solution:
            set_hint(self.model, range(len(response.solution)), list(response.solution))
        return response

    def _stopped_by(self) -> str | None:
        """Return which limit came before a proof: that of time, or one among the parameters."""
        remaining, limit = self._deadline.left(), self._options.time_limit
        # CP-SAT stops a little early rather than late.
        if self._options.parameters and (
            remaining is None or limit is None or remaining > 0.05 * limit
        ):
            return "solver option"
        return None if remaining is None else TIME_LIMIT


def _start(table: CostTable, options: SolverOptions, deadline: Deadline) -> Sequence[int]:
    """Return the assignment to start from, empty for none: the user's, or the hint's."""
    initial = options.warm_start
    if initial is not None:
        if len(initial) != table.layers or not set(initial) <= {*range(table.choices)}:
            raise HyparError("a warm start should have one of the choices for each layer")
        return initial
    dynamic_programming = DynamicProgramming()
    if options.hint and dynamic_programming.accepts(table) is None:
        with suppress(RefusedError):  # too many labels under a capacity: no hint
            limited = SolverOptions(time_limit=deadline.left())
            return dynamic_programming.solve(table, limited).assignment or ()
    return ()


def _values(clauses: ClauseModel, assignment: Sequence[int]) -> dict[int, int]:
    """Return the values of the choices' variables for an assignment; empty for an empty one."""
    # With two choices one variable serves both; the literal that is not negated names it.
    return {
        x: choice == chosen
        for literals, chosen in zip(clauses.choice_literals, assignment, strict=False)
        for choice, x in enumerate(literals)
        if x >= 0
    }


def _assignment(clauses: ClauseModel, response: Any) -> tuple[int, ...]:
    """Return the choices whose literals are true in a response."""
    values = list(response.solution)
    return tuple(
        next(
            choice for choice, x in enumerate(literals) if (values[x] if x >= 0 else not values[~x])
        )
        for literals in clauses.choice_literals
    )


def solve_interruptibly(solver: CpSolver, model: Any, seconds: float | None) -> None:
    """Solve a model; the response is in the solver.

    Python handles a signal only in its main thread and between its own instructions, so the
    search runs in a thread of its own.

    Parameters
    ----------
    seconds
        The time limit; None for none.

    Raises
    ------
    KeyboardInterrupt
        If Ctrl-C came during the search, which has ended by then.
    """
    if seconds is not None:
        solver.parameters.max_time_in_seconds = seconds
    begun, ended = Event(), Event()

    def search() -> None:
        begun.set()
        try:
            solver.solve(model)
        finally:
            ended.set()

    try:
        # A daemon, so that a search that does not stop cannot keep the process from ending.
        Thread(target=search, daemon=True).start()
        ended.wait(with_grace(seconds))
    finally:
        # A signal may come while the thread starts. The thread is always awaited: a process
        # that ends while CP-SAT still runs is aborted.
        if begun.wait(1.0):
            # Repeated, since a stop that comes before CP-SAT itself has started is lost.
            while not ended.wait(0.01):
                solver.stop_search()
