"""Solvers by name. A solver is given a cost table and nothing else of the problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.registry import Registry

if TYPE_CHECKING:
    from hypar_opt.solvers.base import Solver

# Modules are named as text, so that listing solvers imports none of their libraries.
SOLVERS: Registry[type[Solver]] = Registry(
    "solver",
    "hypar_opt.solvers",
    {
        "dp": "hypar_opt.solvers.dynamic_programming:DynamicProgramming",
        "cut": "hypar_opt.solvers.minimum_cut:MinimumCut",
        "ilp": "hypar_opt.solvers.ilp.solver:IntegerProgram",
        "cpsat": "hypar_opt.solvers.cp_sat.solver:ConstraintProgram",
        "brute": "hypar_opt.solvers.brute_force:BruteForce",
        "data": "hypar_opt.solvers.baselines:DataParallelism",
        "model": "hypar_opt.solvers.baselines:ModelParallelism",
        "trick": "hypar_opt.solvers.baselines:OneWeirdTrick",
    },
    base="hypar_opt.solvers.base:Solver",
)
