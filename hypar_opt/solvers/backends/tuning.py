"""The parameters of backends that a user may set by name: those that tune a search.

A backend's other parameters change the problem (a direction, a scale, a tolerance, a cutoff), so
that an optimum it then claims is that of another problem; or they read and write files, which only
our own options may name. A list of allowed parameters cannot overlook any of these; a list of
forbidden ones would have to know them all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches

from hypar_opt.errors import RefusedError, argument, worded

_CBC = """
cliqueCuts combine2Solutions combineSolutions costStrategy crash crossover cutDepth cutLength
depthMiniBab DivingCoefficient DivingFractional DivingGuided DivingLineSearch DivingPseudoCost
DivingSome DivingVectorLength factorization feasibilityPump flowCoverCuts greedyHeuristic
heuristicsOnOff hotStartMaxIts idiotCrash knapsackCuts maxNodes maxSolutions
mixedIntegerRoundingCuts nodeStrategy passCuts passFeasibilityPump passTreeCuts perturbation
pivotAndComplement pivotAndFix presolve probingCuts randomizedRounding reduce2AndSplitCuts
reduceAndSplitCuts Rens residualCapacityCuts Rins roundingHeuristic scaling slowcutpasses
sprintCrash strongBranching trustPseudoCosts twoMirCuts VndVariableNeighborhoodSearch zeroHalfCuts
"""
_HIGHS = """
mip_allow_cut_separation_at_nodes mip_allow_restart mip_detect_symmetry mip_heuristic_effort
mip_heuristic_run_rens mip_heuristic_run_rins mip_heuristic_run_root_reduced_cost
mip_heuristic_run_shifting mip_heuristic_run_zi_round mip_lifting_for_probing mip_lp_age_limit
mip_min_cliquetable_entries_for_parallelism mip_pool_age_limit mip_pool_soft_limit
mip_pscost_minreliable mip_root_presolve_only parallel presolve simplex_crash_strategy
simplex_dual_edge_weight_strategy simplex_price_strategy simplex_primal_edge_weight_strategy
simplex_scale_strategy simplex_strategy solver
"""
_GUROBI = """
Aggregate BranchDir CliqueCuts CoverCuts Crossover Cuts FlowCoverCuts Heuristics MIPFocus MIRCuts
Method NodeMethod PrePasses Presolve PumpPasses RINS Symmetry VarBranch ZeroHalfCuts
"""
_CPLEX = (
    *("emphasis mip", "lpmethod", "mip cuts cliques", "mip cuts covers", "mip cuts mircut"),
    *("mip strategy backtrack", "mip strategy branch", "mip strategy heuristicfreq"),
    *("mip strategy nodeselect", "mip strategy probe", "mip strategy rinsheur"),
    *("mip strategy startalgorithm", "mip strategy variableselect", "preprocessing presolve"),
)
_SCIP = """
branching/preferbinary lp/pricing misc/usesymmetry nodeselection/childsel presolving/maxrounds
propagating/maxrounds separating/maxrounds separating/maxroundsroot
"""
_XPRESS = "BACKTRACK CUTSTRATEGY HEUREMPHASIS NODESELECTION PRESOLVE VARSELECTION"
_COPT = """
CutLevel DivingHeurLevel HeurLevel LpMethod Presolve RootCutLevel RoundingHeurLevel StrongBranching
SubMipHeurLevel TreeCutLevel
"""
_MOSEK = """
MSK_IPAR_MIO_CUT_CLIQUE MSK_IPAR_MIO_HEURISTIC_LEVEL MSK_IPAR_MIO_NODE_SELECTION
MSK_IPAR_MIO_PROBING_LEVEL MSK_IPAR_MIO_SYMMETRY_LEVEL MSK_IPAR_PRESOLVE_USE
"""

_NAMES = {
    "cbc": _CBC,
    "COIN_CMD": _CBC,
    "HiGHS": _HIGHS,
    "HiGHS_CMD": _HIGHS,
    "GUROBI": _GUROBI,
    "GUROBI_CMD": _GUROBI,
    "SCIP_PY": _SCIP,
    "SCIP_CMD": _SCIP,
    "XPRESS_PY": _XPRESS,
    "XPRESS_CMD": _XPRESS,
    "COPT": _COPT,
    "MOSEK": _MOSEK,
}

TUNING: Mapping[str, tuple[str, ...]] = {
    **{backend: tuple(names.split()) for backend, names in _NAMES.items()},
    "CPLEX_CMD": _CPLEX,  # whose names are several words
}
"""Permitted parameters by backend, unabbreviated, though CBC itself accepts abbreviations."""


def check_parameters(backend: str, parameters: Mapping[str, str]) -> None:
    """Refuse a parameter that is not known to only tune a search.

    Raises
    ------
    RefusedError
        Naming the parameter, and what would be right.
    """
    # Some programs ignore case; what is refused should not depend on the program.
    permitted = {name.lower(): name for name in TUNING.get(backend, ())}
    for name, value in parameters.items():
        if name.lower() not in permitted:
            suggestions = get_close_matches(name.lower(), permitted, n=1, cutoff=0.8)
            hint = f"; did you mean {permitted[suggestions[0]]}?" if suggestions else ""
            raise RefusedError(
                f"with the backend {backend} takes no {argument('parameters')} {name!r}: only what"
                f" tunes the search, as {', '.join(list(permitted.values())[:3])}{hint}"
            )
        # Without slashes or spaces a value is no path, and no second argument.
        if not re.fullmatch(r"[-+]?\w[\w.+-]{0,39}", value, re.ASCII):
            parameter = worded(f"parameters[{name!r}]", f"--solver-option {name}")
            raise RefusedError(
                f"with the backend {backend}: {parameter} should be a number or a word, got"
                f" {value!r}"
            )
