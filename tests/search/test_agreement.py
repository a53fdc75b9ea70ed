"""2,000 random problems: exact solvers find one plan, and certificates prove just the optima."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.costs import COSTS
from hypar_opt.costs.state_table import StateTable
from hypar_opt.costs.table import CostTable
from hypar_opt.errors import RefusedError
from hypar_opt.instance.constraints import ConstraintSet
from hypar_opt.integers import Integers
from hypar_opt.plan.plan import words_of
from hypar_opt.planning.priced import plan_of
from hypar_opt.proofs.certificate import certify, check_certificate
from hypar_opt.solvers import SOLVERS
from hypar_opt.workload.tensors import workload_of
from tests.slow import slow_after
from tests.strategies.plans import Asked, Rows
from tests.strategies.problems import keeps, random_problem

BATCHES, EACH = 160, 13
EXACT = tuple(name for name in SOLVERS if SOLVERS[name].searches)


@pytest.mark.parametrize("batch", slow_after(1, range(BATCHES)))
def test_exact_solvers_find_one_plan_and_certificates_prove_just_the_optima(batch: int) -> None:
    rng = Random(batch)
    for number in range(EACH):
        network, asked = random_problem(rng, most_plans=2**12)
        which = f"problem {number} of batch {batch}: {network.description()}, {asked}"
        # Programs take longest, the integer one a process a table: they solve a part of them.
        without = tuple(name for name in EXACT if name not in ("ilp", "cpsat"))
        greedy = agreed(network, asked, "levelwise", without if number % 5 else EXACT, which)
        some = (*without, "cpsat") if number % 2 else without
        plan = agreed(network, asked, "joint", some if number % 4 else EXACT, which)
        assert plan.cost.total <= greedy.cost.total, which
        check_proofs(plan, which)
        check_proofs(greedy, which)
        worse = another(plan, rng)
        if worse is not None and worse.cost.total > plan.cost.total:
            assert not proved(worse), which


def agreed(
    network: ho.Network, asked: Asked, search: str, solvers: tuple[str, ...], which: str
) -> ho.Plan:
    """Return the plan of all solvers; each says that it is optimal, and the same one."""
    plans = []
    for name in solvers:
        try:
            plans.append(ho.solve(network, solver=name, search=search, **asked))
        except RefusedError:
            assert name == "cut", which  # three choices, a capacity
    assert all(plan.solver.bound is not None for plan in plans), which
    found = {(plan.cost.total, plan.parallelism, plan.solver.status) for plan in plans}
    assert len(found) == 1, f"{which}, {search}: {found}"
    assert plans[0].solver.status == "optimal", which
    return plans[0]


def check_proofs(plan: ho.Plan, which: str) -> None:
    """Certificates are accepted where the best bound of potentials is what the plan costs."""
    if plan.constraints.memory is None:
        assert proved(plan), which
    elif plan.solver.scope == "joint":
        assert proved(plan) == (best_bound(plan) == Fraction(plan.cost.total)), which


def proved(plan: ho.Plan) -> bool:
    try:
        certificate = certify(plan)
    except ho.HyparError as error:
        assert "no certificate" in str(error), error  # noqa: PT017
        return False
    check_certificate(plan, certificate)
    return True


def another(plan: ho.Plan, rng: Random) -> ho.Plan | None:
    """Return a random plan of the same problem that keeps to its constraints, if one is met."""
    workload = workload_of(plan.network.description, plan.batch, plan.choices)
    for _ in range(20):
        rows: Rows = tuple(
            tuple(rng.randrange(len(plan.choices)) for _ in plan.layers) for _ in range(plan.levels)
        )
        if keeps(workload, plan.problem, rows):
            least = plan.cost.total
            return plan_of(plan, words_of(rows, plan.words), bound=least, considered=1)
    return None


def best_bound(plan: ho.Plan) -> Fraction:
    """Return the most that a price of memory proves: every assignment's cost and load are known.

    The cheapest assignment of cost plus price times what it takes beyond the capacity, for the
    price at which that is the most: two assignments tie there, or the price is nothing.
    """
    workload = workload_of(plan.network.description, plan.batch, plan.choices)
    cost = COSTS["bytes"].from_problem(plan.problem, workload)
    plain = StateTable.of(cost, workload, plan.levels)
    limits = ConstraintSet(plan.problem, workload).of_states(plain.states)
    table = StateTable(cost, workload, plain.states, *limits).dense()
    costs, over = every_assignment(table)
    # Of all assignments only those count that none beats in both: cheaper ones take more.
    order = np.lexsort((over, costs))
    kept: list[tuple[int, int]] = []
    for place in order.tolist():
        if not kept or over[place] < kept[-1][1]:
            kept.append((int(costs[place]), int(over[place])))
    prices = [Fraction(0)] + [
        Fraction(b[0] - a[0], a[1] - b[1]) for n, a in enumerate(kept) for b in kept[n + 1 :]
    ]
    bounds = [min(Fraction(c) + price * o for c, o in kept) for price in prices]
    best: Fraction = max(bounds) / cost.resolution
    return best


def every_assignment(table: CostTable) -> tuple[Integers, Integers]:
    """Return each allowed assignment's cost, and what it takes beyond the capacity."""
    assert table.allowed is not None
    ((load, capacity),) = table.limits
    columns = [np.flatnonzero(row) for row in table.allowed]
    chosen = np.stack(np.meshgrid(*columns, indexing="ij")).reshape(table.layers, -1)
    layers = np.arange(table.layers)[:, None]
    costs = table.node[layers, chosen].sum(axis=0)
    for (source, target), edge in zip(table.ends, table.edge, strict=True):
        costs = costs + edge[chosen[source], chosen[target]]
    return costs, load[layers, chosen].sum(axis=0) - capacity
