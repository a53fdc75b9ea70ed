"""Mutants of the package: what the tests must notice; `make mutants`."""

from __future__ import annotations

from tests.mutants.costs import COSTS
from tests.mutants.execution import EXECUTION
from tests.mutants.mutant import Mutant
from tests.mutants.proofs import PROOFS
from tests.mutants.sharding import SHARDING
from tests.mutants.solvers import SOLVERS
from tests.mutants.trained import TRAINED

AREAS: dict[str, tuple[Mutant, ...]] = {
    "proofs": PROOFS,
    "sharding": SHARDING,
    "execution": EXECUTION,
    "costs": COSTS,
    "solvers": SOLVERS,
    "trained": TRAINED,
}
