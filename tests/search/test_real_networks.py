"""Nine networks as others wrote them: all exact solvers find one optimum, and widths are small."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import onnx
import pytest

import hypar_opt as ho
from hypar_opt.costs.level_tables import level_table
from hypar_opt.deadline import Deadline
from hypar_opt.instance.instance import Instance
from hypar_opt.models import find_network
from hypar_opt.plan.arguments import problem_of
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.backends.catalogue import find_backend
from hypar_opt.solvers.base import SolverOptions, Status
from hypar_opt.solvers.cp_sat.search import CpSatSearch
from hypar_opt.solvers.ilp.minimise import Session, minimise
from tests.slow import slow_after

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
NINE = sorted(path.stem.removeprefix("light_") for path in LIGHT.glob("*.onnx"))
OPTIONS = SolverOptions()
BATCHES = (256, 32, 4096)


@cache
def network(name: str) -> ho.Network:
    return find_network(LIGHT / f"light_{name}.onnx")


def test_there_are_nine() -> None:
    assert len(NINE) == 9


@pytest.mark.parametrize("batch", slow_after(1, BATCHES))
@pytest.mark.parametrize("name", NINE)
def test_minimum_cuts_are_what_elimination_finds(name: str, batch: int) -> None:
    """At one level and at four, level by level and jointly; joint is never the dearer."""
    for levels in (1, 4):
        totals = []
        for search in ("levelwise", "joint"):
            plans = [
                ho.solve(
                    network(name),
                    batch=batch,
                    levels=levels,
                    search=search,
                    reading="executed",
                    solver=solver,
                )
                for solver in ("cut", "dp")
            ]
            cut, dp = plans
            assert (cut.cost, cut.parallelism) == (dp.cost, dp.parallelism)
            assert cut.solver.status == dp.solver.status == "optimal"
            # Printed on graphs; a chain needs none.
            widths = [dict(model)["width"] for model in dp.solver.statistics]
            assert not widths or max(widths) <= 2
            totals.append(cut.cost.total)
        assert totals[1] <= totals[0]


@pytest.mark.parametrize("name", ["gpt2", "gpt2-xl", "llama-7b", "llama-70b", "bert-base"])
def test_transformers_are_narrow(name: str) -> None:
    plan = ho.solve(name, batch=8, levels=3, search="joint", solver="dp")
    assert [dict(model)["width"] for model in plan.solver.statistics] == [2]


@pytest.mark.parametrize("batch", slow_after(1, BATCHES))
@pytest.mark.parametrize("name", slow_after(4, sorted(NINE, key="densenet121".__eq__)))
def test_programs_find_the_same_optimum(name: str, batch: int) -> None:
    """The tables of four levels, which begin with those of fewer; and of all levels together."""
    instance = Instance(network(name), problem_of(network(name), batch=batch, levels=4))
    workload, cost = instance.workload, instance.cost
    above: list[tuple[int, ...]] = []
    tables = []
    for _ in range(4):
        tables.append(level_table(cost, workload, above))
        optimum = SOLVERS["cut"]().solve(tables[-1], OPTIONS)
        above.append(optimum.assignment or ())
    for levels in range(1, 5):
        thresholds = cost.thresholds(workload, levels)
        assert thresholds is not None
        tables += thresholds.tables()
    session = Session(find_backend(OPTIONS), OPTIONS, Deadline.after(None))
    for table in tables:
        optimum = SOLVERS["cut"]().solve(table, OPTIONS)
        assert optimum.status is Status.OPTIMAL
        # Ties, which take a program one more run each, are broken in tests of smaller graphs.
        for answer in (minimise(session, table), CpSatSearch(table, OPTIONS).optimum()):
            assert answer.status is Status.OPTIMAL
            assert answer.objective == optimum.objective
