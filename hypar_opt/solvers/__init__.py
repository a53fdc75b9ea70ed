"""Solvers by name. Each sees a cost table and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.registry import Registry

if TYPE_CHECKING:
    from hypar_opt.solvers.base import Solver

SOLVERS: Registry[type[Solver]] = Registry(
    "solver",
    "hypar_opt.solvers",
    {
        "dp": "hypar_opt.solvers.dynamic_programming:DynamicProgramming",
        "ilp": "hypar_opt.solvers.ilp:IntegerProgram",
        "cpsat": "hypar_opt.solvers.cp_sat:ConstraintProgram",
        "brute": "hypar_opt.solvers.brute_force:BruteForce",
        "data": "hypar_opt.solvers.fixed:DataParallelism",
        "model": "hypar_opt.solvers.fixed:ModelParallelism",
        "trick": "hypar_opt.solvers.fixed:OneWeirdTrick",
    },
)
