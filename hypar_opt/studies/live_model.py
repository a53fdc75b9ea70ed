"""The model of a problem as a live program, to which users add their own constraints."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from hypar_opt.checked import checked
from hypar_opt.errors import HyparError, RefusedError, UnknownNameError
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.stated import stated_problem
from hypar_opt.planning.solve import solve
from hypar_opt.search.model_file import cutoff_of, table_to_state
from hypar_opt.solvers.ilp.formulate import formulate
from hypar_opt.solvers.ilp.model_file import CONSTANT, MAX_COEFFICIENT
from hypar_opt.solvers.model_names import column_namer, fields_of, lp_name

if TYPE_CHECKING:
    from pathlib import Path

    from hypar_opt.plan.arguments import ProblemArguments
    from hypar_opt.plan.plan import Plan
    from hypar_opt.solvers.ilp.zero_one import ZeroOneProgram
    from hypar_opt.workload.network import Network

Name = Callable[[str], str]
"""From a program's internal name to one of an LP file."""

Values = Callable[[Mapping[str, Any], Any], Mapping[str, float] | None]
"""From the columns and the result of a solver, if it returns one, to their values."""


@dataclass(eq=False, repr=False)  # ``model.problem += ...`` assigns the attribute
class Model:
    """A 0-1 program over all levels, whose optimum is the joint search's in the cost's integers.

    Parameters
    ----------
    problem : pulp.LpProblem or ortools.math_opt.python.mathopt.Model
    columns : str -> pulp.LpVariable or mathopt.Variable
        By the names that `hypar_opt.write_model` gives them in an LP file.
    rows
        The number of its constraints, without one's own.
    cutoff
        As of a `ModelSize`: where the model does not have all plans, a solution that costs at most
        so much, in the unit of plans' costs, is the best of all plans under one's own constraints.
    """

    problem: Any
    columns: Mapping[str, Any]
    rows: int
    cutoff: int | None
    _instance: Instance
    _solve: Callable[..., Plan]
    _values: Values

    def __repr__(self) -> str:
        name = self._instance.network.name
        return f"<Model of {name}: {len(self.columns):,} columns, {self.rows:,} rows>"

    def takes(self, layer: str, level: int | str, word: str) -> Any:
        """Return an expression that is 1 where a layer has a choice at a level, else 0.

        Parameters
        ----------
        level
            ``"H1"`` or below, or its number.

        Raises
        ------
        HyparError
            If the model has no such layer, level or choice.
        """
        level_name, columns = level if isinstance(level, str) else f"H{level}", []
        for name, column in self.columns.items():
            kind, *fields = fields_of(name)
            if kind == "x" and fields[0] == layer:
                levels, words = (part.split(".") for part in fields[1:])
                if level_name in levels:
                    columns.append((column, words[levels.index(level_name)]))
        of_word = [column for column, other in columns if other == word]
        if of_word:
            return sum(of_word)
        # With two choices, the column stands for the second.
        first = self._first_word(layer) if len(columns) == 1 else None
        if word != first:
            raise HyparError(f"the model has no choice {word!r} of {layer!r} at {level_name}")
        return 1 - columns[0][0]

    def _first_word(self, layer: str) -> str | None:
        names, words = self._instance.workload.layers, self._instance.workload.words
        position = [node.name for node in names].index(layer)
        return words[self._instance.workload.shared + position][0]

    def plan(self, result: Any = None) -> Plan:
        """Return the plan of a solution of the model, priced again.

        It is feasible, not optimal: added constraints may exclude better plans.

        Parameters
        ----------
        result
            What MathOpt's ``solve`` returned; PuLP keeps a solution in its problem.

        Raises
        ------
        HyparError
            If there is no solution, or it is none of the model.
        """
        from hypar_opt.solvers.solution.formats import Solution
        from hypar_opt.solvers.solution.solver import SolutionFile

        values = self._values(self.columns, result or self.problem)
        if values is None:
            raise HyparError("the model has no solution: solve it first; there may be none")
        values_of_model = Solution("the live model", {**values, CONSTANT: 1.0})
        return self._solve(solution=SolutionFile(values_of_model, "the model"))


@checked
def model(
    network: str | Path | Network,
    *,
    interface: str = "pulp",
    **problem: Unpack[ProblemArguments],
) -> Model:
    """Return the model of all levels together as a live program of PuLP or of MathOpt.

    Parameters
    ----------
    network, **problem
        As for `hypar_opt.solve`.
    interface
        ``pulp``, or ``mathopt`` for OR-Tools' MathOpt.

    Raises
    ------
    HyparError
        As `hypar_opt.write_model`; or if MathOpt cannot be loaded.

    Examples
    --------
    The best of the plans in which model parallelism is at most one of the choices:

    >>> import hypar_opt as ho
    >>> model = ho.model("lenet-c", levels=2)
    >>> layers = [layer.name for layer in ho.load("lenet-c").layers]
    >>> split = sum(model.takes(layer, level, "model") for layer in layers for level in (1, 2))
    >>> model.problem += split <= 1
    >>> model.problem.solve()  # doctest: +SKIP
    1
    >>> model.plan().parallelism  # doctest: +SKIP
    (('data', 'data', 'model', 'data'), ('data', 'data', 'data', 'data'))
    """
    if interface not in _INTERFACES:
        raise UnknownNameError("interface", interface, list(_INTERFACES))
    state, values = _INTERFACES[interface]
    instance = Instance.to_search(*stated_problem(network, problem))
    again = partial(solve, network, **problem)
    table, labels = table_to_state(instance, "ilp")
    program, named = formulate(table), column_namer(table, labels)
    if program.largest_cost >= MAX_COEFFICIENT:
        raise RefusedError(f"a model has costs below 2^53, not {program.largest_cost:,}")
    live, columns = state(program, lambda name: lp_name(named(name)))
    rows, cutoff = len(program.constraints), cutoff_of(table)
    return Model(live, columns, rows, cutoff, instance, again, values)


def _in_pulp(program: ZeroOneProgram, name: Name) -> tuple[Any, dict[str, Any]]:
    import pulp  # with HiGHS, where that is installed and OR-Tools not loaded already

    live = pulp.LpProblem("hypar_opt", pulp.LpMinimize)
    # From version 4 on variables are a problem's.
    variable = getattr(live, "add_variable", pulp.LpVariable)
    binary, columns = program.binary, {}
    for column in program.costs:
        low, high, is_integer = program.domain(column, binary)
        kind = pulp.LpInteger if is_integer else pulp.LpContinuous
        columns[column] = variable(name(column), low, high, kind)
    live += _weighted(program.costs, columns, pulp.lpSum) + program.constant
    for row in program.constraints:
        terms = _weighted(row.terms, columns, pulp.lpSum)
        live += _COMPARE[row.sense](terms, row.bound), name(row.name)
    return live, {column.name: column for column in columns.values()}


def _values_in_pulp(columns: Mapping[str, Any], problem: Any) -> Mapping[str, float] | None:
    import pulp

    if problem.sol_status not in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible):
        return None
    values = {name: column.value() for name, column in columns.items()}
    return None if None in values.values() else values


def _in_mathopt(program: ZeroOneProgram, name: Name) -> tuple[Any, dict[str, Any]]:
    try:
        from ortools.math_opt.python import mathopt
    except ImportError as error:  # as beside highspy: see `hypar_opt.solvers.subprocess_solver`
        raise HyparError(
            f"MathOpt cannot be loaded, as in a process that has loaded highspy: {error}"
        ) from None
    live = mathopt.Model(name="hypar_opt")
    binary, columns = program.binary, {}
    for column in program.costs:
        low, high, is_integer = program.domain(column, binary)
        columns[column] = live.add_variable(
            lb=low, ub=float("inf") if high is None else high, is_integer=is_integer,
            name=name(column),
        )  # fmt: skip
    live.minimize(_weighted(program.costs, columns, mathopt.fast_sum) + program.constant)
    for row in program.constraints:
        terms = _weighted(row.terms, columns, mathopt.fast_sum)
        live.add_linear_constraint(_COMPARE[row.sense](terms, row.bound), name=name(row.name))
    return live, {column.name: column for column in columns.values()}


def _values_in_mathopt(columns: Mapping[str, Any], result: Any) -> Mapping[str, float] | None:
    if not hasattr(result, "has_primal_feasible_solution"):
        raise HyparError("of a model of MathOpt: plan(result), with what its solve returned")
    if not result.has_primal_feasible_solution():
        return None
    values = result.variable_values()
    return {name: values[column] for name, column in columns.items()}


def _weighted(
    terms: Mapping[str, int], columns: Mapping[str, Any], add: Callable[[Any], Any]
) -> Any:
    return add([weight * columns[name] for name, weight in terms.items()])


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    "=": operator.eq,
    ">=": operator.ge,
}
_INTERFACES: dict[
    str, tuple[Callable[[ZeroOneProgram, Name], tuple[Any, dict[str, Any]]], Values]
] = {
    "pulp": (_in_pulp, _values_in_pulp),
    "mathopt": (_in_mathopt, _values_in_mathopt),
}
