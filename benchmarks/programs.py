"""The programs that others would write of a problem, built and solved without us."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hypar_opt.costs.table import CostTable
from hypar_opt.costs.thresholds import ThresholdTable
from hypar_opt.solvers.backends.base import load_pulp
from hypar_opt.solvers.minimum_cut import networks_of
from hypar_opt.solvers.pseudo_boolean import PseudoBoolean


def tight_program(thresholds: ThresholdTable) -> tuple[list[int], list[list[int]]]:
    """Return costs of a variable a layer and question, then one an edge; and the edges.

    An edge's variable z, at least x_u and x_v, stands for "either": with charges a, b, c, d of
    the four pairs and a + d <= b + c, the edge costs
    a + (d - b) x_u + (d - c) x_v + (b + c - a - d) z.
    """
    table = thresholds.as_one_table()
    (a, b), (c, d) = table.edge.transpose(1, 2, 0)
    layer = table.node[:, 1] - table.node[:, 0]
    np.add.at(layer, table.ends[:, 0], d - b)
    np.add.at(layer, table.ends[:, 1], d - c)
    return [*layer.tolist(), *(b + c - a - d).tolist()], table.ends.tolist()


def one_ilp(table: ThresholdTable) -> list[int]:
    """Build the tight ILP with PuLP and solve it with CBC once, ties as they come."""
    pulp = load_pulp()
    costs, ends = tight_program(table)
    layers = len(costs) - len(ends)
    problem = pulp.LpProblem("vgg_e", pulp.LpMinimize)
    x = [problem.add_variable(f"x{n}", 0, 1, pulp.LpInteger) for n in range(layers)]
    z = [problem.add_variable(f"z{n}", 0, 1) for n in range(len(ends))]
    problem.setObjective(pulp.LpAffineExpression(dict(zip([*x, *z], costs, strict=True))))
    for above, pair in zip(z, ends, strict=True):
        for end in pair:
            terms = pulp.LpAffineExpression({above: 1, x[end]: -1})
            problem.addConstraint(pulp.LpConstraint(terms, pulp.LpConstraintGE, rhs=0))
    problem.solve(cbc())
    answers = [round(variable.value()) for variable in x]
    layers //= table.levels
    return [sum(answers[n::layers]) for n in range(layers)]


def cbc() -> Any:
    pulp = load_pulp()
    return pulp.COIN_CMD(path=pulp.PULP_CBC_CMD.pulp_cbc_path, msg=False)


def alpa(table: CostTable) -> list[int]:
    """Build and solve Alpa's ILP of a table.

    A layer's choice is one-hot, and so is an edge's pair of choices, which no more than equals that
    of either end: each pair is a variable of its own for the product of two.

    Source: Zheng et al., "Alpa", OSDI 2022, section 4.2 (its equation 1, linearised).
    """
    pulp = load_pulp()
    problem = pulp.LpProblem("alpa", pulp.LpMinimize)
    objective: dict[Any, int] = {}

    def one_hot(name: str, costs: list[int]) -> list[Any]:
        columns = [
            problem.add_variable(f"{name}_{i}", 0, 1, pulp.LpInteger) for i in range(len(costs))
        ]
        objective.update(zip(columns, costs, strict=True))
        constrain(dict.fromkeys(columns, 1), pulp.LpConstraintEQ, 1)
        return columns

    def constrain(terms: dict[Any, int], sense: int, bound: int) -> None:
        problem.addConstraint(pulp.LpConstraint(pulp.LpAffineExpression(terms), sense, rhs=bound))

    s = [one_hot(f"s{n}", costs) for n, costs in enumerate(table.node.tolist())]
    for n, ((u, v), costs) in enumerate(zip(table.ends.tolist(), table.edge, strict=True)):
        e = np.reshape(np.array(one_hot(f"e{n}", costs.reshape(-1).tolist()), object), costs.shape)
        for end, rows in ((s[u], e), (s[v], e.T)):
            for column, row in zip(end, rows, strict=True):
                constrain({**dict.fromkeys(row, 1), column: -1}, pulp.LpConstraintLE, 0)
    problem.setObjective(pulp.LpAffineExpression(objective))
    problem.solve(cbc())
    return [[round(column.value()) for column in columns].index(1) for columns in s]


def bare_cuts(table: ThresholdTable) -> Callable[[], Any]:
    """Return OR-Tools' calls for the minimum cuts of a table, on arrays that are there."""
    from ortools.graph.python.max_flow import SimpleMaxFlow  # type: ignore[import-untyped]

    networks = networks_of(PseudoBoolean.of(table))
    capacities = [np.concatenate([to, networks.between]) for to in networks.to_and_from]

    def cut() -> None:
        for capacity in capacities:
            flow = SimpleMaxFlow()
            flow.add_arcs_with_capacity(networks.tail, networks.head, capacity)
            flow.solve(networks.source, networks.source + 1)
            flow.get_source_side_min_cut()

    return cut


def lp_arrays(thresholds: ThresholdTable) -> Any:
    """Return the LP with a variable a layer and question, and one an edge: z >= x_u, z >= x_v."""
    import highspy

    costs, pairs = tight_program(thresholds)
    cost, ends = np.array(costs, float), np.array(pairs)
    edges = len(ends)
    layers = len(cost) - edges
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = layers + edges, 2 * edges
    model.col_cost_ = cost
    model.col_lower_, model.col_upper_ = np.zeros(layers + edges), np.ones(layers + edges)
    model.row_lower_, model.row_upper_ = np.zeros(2 * edges), np.full(2 * edges, np.inf)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.arange(0, 4 * edges + 1, 2)
    z = np.repeat(layers + np.arange(edges), 2)
    model.a_matrix_.index_ = np.stack([z, ends.reshape(-1)], axis=1).reshape(-1)
    model.a_matrix_.value_ = np.tile([1.0, -1.0], 2 * edges)
    return model


def highs(table: ThresholdTable) -> tuple[Callable[[], None], list[int]]:
    """Return a call by which HiGHS solves the LP of arrays, and its answers to all questions."""
    import highspy

    model = lp_arrays(table)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)

    def solve() -> None:
        solver.passModel(model)
        solver.run()

    solve()
    found = solver.getSolution().col_value[: table.levels * len(table.data)]
    return solve, np.rint(found).astype(int).tolist()
