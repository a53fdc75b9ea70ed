"""The charges of a level, or of all, for a layer and a boundary: in bytes, time or energy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from hypar_opt.proofs.reference.bytes_moved import Bytes
from hypar_opt.proofs.reference.physical import Energy, Time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hypar_opt.costs.table import Integers
    from hypar_opt.plan.plan import Plan
    from hypar_opt.proofs.reference.exchanges import Counts, Matrix, State


class Charges(Protocol):
    """The charges of a problem, as integers of a fraction of the plan's unit."""

    @property
    def resolution(self) -> int:
        """Charges per unit of the plan's cost."""

    @property
    def joins_levels(self) -> bool:
        """Whether a layer has charges for several levels together, as for a ring."""

    def together(self, boundary: int) -> bool:
        """Whether an edge is charged by both ends' choices at all levels: `pairs`, not `edge`."""

    def node(self, level: int, layer: int, counts: Counts) -> Sequence[int]:
        """Return the charge of each choice of a layer at a level, given its choices above."""

    def edge(self, level: int, boundary: int, source: Counts, target: Counts) -> Matrix:
        """Return the charges of pairs of choices of an edge's two ends, given those above."""

    def state(self, layer: int, state: Sequence[int]) -> int:
        """Return the charge of a layer's choices at all levels, H1 first, beyond its nodes."""

    def pairs(self, boundary: int, sources: Sequence[State], targets: Sequence[State]) -> Integers:
        """Return the charges of pairs of states of an edge's ends, over all their levels.

        Parameters
        ----------
        sources, targets
            The choices of both ends at as many levels, H1 first.

        Returns
        -------
        (sources, targets)
        """


def built_in(plan: Plan) -> Charges | None:
    """Return the charges of the plan's problem; None for a plug-in's cost.

    Raises
    ------
    CheckFailedError
        If the plan's unit is not a unit of its cost, or its array is missing.
    """
    kinds: dict[str, Callable[[Plan], Charges]] = {
        "bytes": Bytes.of,
        "time": Time.of,
        "energy": Energy.of,
    }
    kind = kinds.get(plan.cost.kind)
    # A plug-in defines its own charges, see `own_cost`.
    return None if kind is None else kind(plan)
