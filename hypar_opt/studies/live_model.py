"""The model of a problem as a live program of PuLP, to which one adds constraints of one's own."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from hypar_opt.checked import checked
from hypar_opt.errors import HyparError, RefusedError
from hypar_opt.instance.instance import Instance
from hypar_opt.models import find_network
from hypar_opt.pipeline import solve
from hypar_opt.plan.arguments import problem_of
from hypar_opt.search.model_file import table_to_state
from hypar_opt.solvers.backends.base import load_pulp
from hypar_opt.solvers.ilp.formulate import formulate
from hypar_opt.solvers.ilp.model_file import CONSTANT, MAX_COEFFICIENT
from hypar_opt.solvers.model_names import column_namer, fields_of, lp_name

if TYPE_CHECKING:
    from pathlib import Path

    from hypar_opt.plan.arguments import ProblemArguments
    from hypar_opt.plan.plan import Plan
    from hypar_opt.workload.network import Network


@dataclass(eq=False, repr=False)  # ``model.problem += ...`` assigns the attribute
class Model:
    """A 0-1 program over all levels, whose optimum is the joint search's in the cost's integers.

    Parameters
    ----------
    problem : pulp.LpProblem
    columns : str -> pulp.LpVariable
        By the names that `hypar_opt.write_model` gives them in an LP file.
    """

    problem: Any
    columns: Mapping[str, Any]
    _instance: Instance
    _solve: Callable[..., Plan]

    def __repr__(self) -> str:
        name, rows = self._instance.network.name, len(self.problem.constraints)
        return f"<Model of {name}: {len(self.columns):,} columns, {rows:,} rows>"

    def takes(self, layer: str, level: int, word: str) -> Any:
        """Return an expression that is 1 where a layer has a choice at a level, else 0.

        Parameters
        ----------
        level
            From 1 for H1.

        Raises
        ------
        HyparError
            If the model has no such layer, level or choice.
        """
        here = []
        for name, column in self.columns.items():
            kind, *fields = fields_of(name)
            if kind == "x" and fields[0] == layer:
                levels, words = (part.split(".") for part in fields[1:])
                if f"H{level}" in levels:
                    here.append((column, words[levels.index(f"H{level}")]))
        own = [column for column, other in here if other == word]
        if own:
            return load_pulp().lpSum(own)
        # Of two choices the column is of the second.
        first = self._first_word(layer) if len(here) == 1 else None
        if word != first:
            raise HyparError(f"the model has no choice {word!r} of {layer!r} at H{level}")
        return 1 - here[0][0]

    def _first_word(self, layer: str) -> str | None:
        names, words = self._instance.workload.layers, self._instance.workload.words
        own = [node.name for node in names].index(layer)
        return words[self._instance.workload.shared + own][0]

    def plan(self) -> Plan:
        """Return the plan of the solution that ``problem.solve()`` has found, priced again.

        It is a feasible plan: one's own constraints may exclude better ones.

        Raises
        ------
        HyparError
            If there is no solution, or it is none of the model.
        """
        from hypar_opt.solvers.solution.formats import Solution
        from hypar_opt.solvers.solution.solver import SolutionFile

        pulp = load_pulp()
        values = {name: column.value() for name, column in self.columns.items()}
        is_solved = self.problem.sol_status in (
            pulp.LpSolutionOptimal,
            pulp.LpSolutionIntegerFeasible,
        )
        if not is_solved or None in values.values():
            raise HyparError(
                "the model has no solution: problem.solve() finds one, if there is any"
            )
        found = Solution("PuLP", values | {CONSTANT: 1.0})
        return self._solve(solution=SolutionFile(found, "the model"))


@checked
def model(network: str | Path | Network, **problem: Unpack[ProblemArguments]) -> Model:
    """Return the model of all levels together as a live program of PuLP.

    Parameters
    ----------
    network, **problem
        As for `hypar_opt.solve`.

    Raises
    ------
    HyparError
        As `hypar_opt.write_model`.

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
    described = find_network(network, problem.pop("tokens", None))
    again = partial(solve, described, **problem)
    instance = Instance(described, problem_of(described, **problem))
    table, labels = table_to_state(instance, "ilp")
    program, named = formulate(table), column_namer(table, labels)
    if program.largest_cost >= MAX_COEFFICIENT:
        raise RefusedError(f"a model has costs below 2^53, not {program.largest_cost:,}")
    pulp = load_pulp()
    live = pulp.LpProblem("hypar_opt", pulp.LpMinimize)
    # From version 4 on variables are a problem's.
    variable = getattr(live, "add_variable", pulp.LpVariable)
    binary, columns = program.binary, {}
    for column in program.costs:
        low, high, is_integer = program.domain(column, binary)
        kind = pulp.LpInteger if is_integer else pulp.LpContinuous
        columns[column] = variable(lp_name(named(column)), low, high, kind)
    live += (
        pulp.lpSum(cost * columns[name] for name, cost in program.costs.items()) + program.constant
    )
    compare = {"<=": operator.le, "=": operator.eq, ">=": operator.ge}
    for row in program.constraints:
        terms = pulp.lpSum(term * columns[name] for name, term in row.terms.items())
        live += compare[row.sense](terms, row.bound), lp_name(named(row.name))
    return Model(live, {column.name: column for column in columns.values()}, instance, again)
