"""Many problems of one network at once: every combination of batches, elements, readings, levels.

Where the levels are separable, all batches are solved together (`hypar_opt.search.batched`); any
other problem is solved by itself, as `hypar_opt.solve` solves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.table import exact_dtype
from hypar_opt.errors import HyparError, UnknownNameError, argument
from hypar_opt.models import find_network
from hypar_opt.pipeline import solve
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.plan import json_number
from hypar_opt.search.batched import AffineChain, Bits, bits_type
from hypar_opt.search.instance import Instance
from hypar_opt.search.searches import SEARCHES
from hypar_opt.workload.parallelism import DATA, MODEL

if TYPE_CHECKING:
    from hypar_opt.costs.separable import SeparableTable
    from hypar_opt.costs.table import Integers
    from hypar_opt.plan.plan import Plan
    from hypar_opt.workload.network import Network

Search = Literal["levelwise", "joint"]

AXES = ("batch", "element_bytes", "reading", "levels")


@dataclass(frozen=True, eq=False)
class ManyPlans:
    """The optimal plans of all combinations of four axes, as arrays.

    Parameters
    ----------
    network, search
        Of all problems.
    batch, element_bytes, reading, levels
        The values of the four axes, in the order of the arrays' axes.
    totals, data_parallel, model_parallel : (batches, element bytes, readings, levels)
        Bytes by the reading, of the plan and of the baselines: int64, or objects where a total is
        no whole number or does not fit.
    bits : (batches, element bytes, readings, levels, layers)
        Bit h is 1 where the layer takes model parallelism at level h, H1 being 0.
    """

    network: Network
    search: Search
    batch: tuple[int, ...]
    element_bytes: tuple[int, ...]
    reading: tuple[str, ...]
    levels: tuple[int, ...]
    totals: Integers
    data_parallel: Integers
    model_parallel: Integers
    bits: Bits

    @property
    def counts(self) -> NDArray[np.uint8]:
        """The number of levels at which each layer takes model parallelism."""
        counts = np.zeros(self.bits.shape, np.uint8)
        for level in range(max(self.levels)):
            counts += self.choices(level + 1)
        return counts

    def choices(self, level: int) -> NDArray[np.bool_]:
        """Return where layers take model parallelism at a level, 1 for H1.

        Of plans with fewer levels it is False.
        """
        if not 1 <= level <= max(self.levels):
            raise HyparError(f"level should be from 1 to {max(self.levels)}, got {level}")
        chosen: NDArray[np.bool_] = (self.bits >> (level - 1) & 1).astype(bool)
        return chosen

    def plan(self, *index: int) -> Plan:
        """Return one of the plans, by its place on the four axes.

        It is solved and priced by itself, which is a check of the arrays.

        Raises
        ------
        HyparError
            If there is no such place.
        """
        axes = [getattr(self, name) for name in AXES]
        if len(index) != len(axes) or not all(
            -len(axis) <= place < len(axis) for axis, place in zip(axes, index, strict=True)
        ):
            raise HyparError(f"a plan is at four places, of {', '.join(AXES)}; got {index}")
        values = {name: axis[place] for name, axis, place in zip(AXES, axes, index, strict=True)}
        return solve(self.network, search=self.search, **values)


def solve_many(
    network: str | Path | Network,
    *,
    batch: int | Sequence[int] = 256,
    element_bytes: int | Sequence[int] = 4,
    reading: str | Sequence[str] | None = None,
    levels: int | Sequence[int] = 4,
    search: Search = "levelwise",
) -> ManyPlans:
    """Solve every combination of batches, element sizes, readings and levels, in bytes.

    With two choices; where levels are separable, as on every chain of the zoo, a million
    combinations take seconds. Others, and those whose sums do not fit 64 bits, are solved one by
    one. The plans are those of `hypar_opt.solve`.

    Parameters
    ----------
    network
        A name of the zoo, the path of a network file, or a `Network`.
    batch, element_bytes, reading, levels
        One value or several of each; see `hypar_opt.plan.problem.Problem`. Unless given, the
        reading is the default of the network.
    search
        ``levelwise``, the default, or ``joint``.

    Raises
    ------
    HyparError
        If an axis is empty, or a value is wrong.

    Examples
    --------
    >>> many = solve_many("lenet-c", batch=[32, 256], levels=[2, 4])
    >>> many.totals[:, 0, 0]
    array([[ 1159200,  3934240],
           [ 5075680, 15606240]])
    >>> many.plan(1, 0, 0, 0).cost.total
    5075680
    """
    described = find_network(network)
    if search not in SEARCHES:
        raise UnknownNameError("search", search, list(SEARCHES))
    axes = _axes(described, batch, element_bytes, reading, levels)
    batches, _, readings, counts = axes
    shape = tuple(map(len, axes))
    layers = len(described.layers)
    bits = np.zeros((shape[0], *shape[2:], layers), bits_type(max(counts)))
    # Of plan and baselines, for elements of 4 bytes: the size of an element changes no plan.
    moved: Integers = np.zeros((3, shape[0], *shape[2:]), np.int64)
    for column, name in enumerate(readings):
        solved = _Batches(described, name, search, batches)
        for place, (own, own_bits) in enumerate(solved.at(counts)):
            # Python's integers where a total does not fit.
            moved = moved.astype(np.result_type(moved, own), copy=False)
            moved[:, :, column, place], bits[:, column, place] = own, own_bits
    totals = [_in_bytes(part, axes[1]) for part in moved]
    spread = np.broadcast_to(bits[:, None], (*shape, layers))
    return ManyPlans(described, search, *axes, totals[0], totals[1], totals[2], spread)


@dataclass(frozen=True)
class _Batches:
    """The problems of many batches by one reading, for elements of 4 bytes."""

    network: Network
    reading: str
    search: Search
    batches: tuple[int, ...]

    def at(self, counts: Sequence[int]) -> Iterator[tuple[Integers, Bits]]:
        """Yield bytes of plan and baselines, ``(3, batches)``, and bits, for numbers of levels."""
        chain = AffineChain.of(self._table)
        batches = np.array(self.batches, np.int64)
        limits = {count: _largest_batch(chain, count) for count in counts}
        together = [count for count in counts if max(self.batches) <= limits[count]]
        shared = None
        if chain is not None and together and self.search == "levelwise":
            # The first levels of a plan are the plan of fewer levels.
            shared = chain.levelwise(batches, max(together))
        for count in counts:
            fit = batches <= limits[count]
            moved: Integers = np.zeros((3, len(batches)), np.int64 if fit.all() else object)
            bits = np.zeros((len(batches), len(self.network.layers)), bits_type(count))
            if chain is not None and fit.any():
                if shared is not None and count in together:
                    totals, made = shared[0][count], shared[1] & (2**count - 1)
                elif self.search == "levelwise":
                    every, made = chain.levelwise(batches[fit], count)
                    totals = every[count]
                else:
                    totals, made = chain.joint(batches[fit], count)
                baselines = [chain.uniform(batches[fit], count, c) for c in (DATA, MODEL)]
                moved[:, fit], bits[fit] = [totals, *baselines], made
            for place in np.flatnonzero(~fit).tolist():
                moved[:, place], bits[place] = self._one(self.batches[place], count)
            yield moved, bits

    def _table(self, batch: int) -> SeparableTable | None:
        problem = problem_of(self.network, batch=batch, reading=self.reading, levels=1)
        instance = Instance(self.network, problem)
        # What layers share is a node of its own, and the constraints are those of kinds of layers.
        if instance.workload.shared or instance.constraints.any:
            return None
        return instance.cost.separable(instance.workload, 1)

    def _one(self, batch: int, count: int) -> tuple[list[Any], list[int]]:
        """Return the bytes and the bits of one problem, solved by itself."""
        plan = solve(
            self.network, search=self.search, batch=batch, reading=self.reading, levels=count
        )
        baselines = plan.cost.baselines
        states = zip(*plan.assignments(), strict=True)
        bits = [sum(choice << level for level, choice in enumerate(state)) for state in states]
        moved = [plan.cost.total, baselines.data, baselines.model]
        return moved, bits or [0] * len(plan.layers)


def _largest_batch(chain: AffineChain | None, levels: int) -> int:
    """Return the largest batch whose sums fit int64 with room; 0 if there is none."""
    if chain is None:
        return 0
    fixed, per_image = chain.largest(0, levels), chain.largest(1, levels)
    room = 2**62 - 1 - fixed
    return max(0, room // max(1, per_image - fixed))


def _in_bytes(moved: Integers, element_bytes: Sequence[int]) -> Integers:
    """Return bytes for each size of an element: ``(batches, element bytes, readings, levels)``."""
    largest = int(moved.max(initial=0)) * max(element_bytes)
    exact = moved.astype(exact_dtype(largest))
    parts = np.stack([exact * size for size in element_bytes], axis=1)
    if not (parts % 4).any():
        whole: Integers = parts // 4
        return whole
    # As a plan file writes it: a float where there are fractional bytes.
    flat = [json_number(Fraction(part, 4)) for part in parts.reshape(-1).tolist()]
    fractional: Integers = np.empty(len(flat), object)
    fractional[:] = flat
    return fractional.reshape(parts.shape)


def _axes(
    network: Network, batch: Any, element_bytes: Any, reading: Any, levels: Any
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...], tuple[int, ...]]:
    """Return the axes as tuples, after checking their values as a problem's."""
    if reading is None:
        reading = problem_of(network).reading
    axes = {
        name: _values(name, given)
        for name, given in zip(AXES, (batch, element_bytes, reading, levels), strict=True)
    }
    for name, values in axes.items():
        # Of a million batches the smallest and the largest are checked, and any that is no
        # integer: all others are between.
        wrong = [value for value in values if type(value) is not int][:1]
        few = name in ("element_bytes", "reading")
        for value in set(values) if few else wrong or (min(values), max(values)):
            fields = {"reading": axes["reading"][0], name: value}
            problem = problem_of(network, **fields)
            _ = Instance(network, problem).cost  # an unknown reading is refused
    return axes["batch"], axes["element_bytes"], axes["reading"], axes["levels"]


def _values(name: str, given: Any) -> tuple[Any, ...]:
    """Return an axis's values; one value is an axis too."""
    if isinstance(given, np.ndarray):
        given = given.tolist()
    several = isinstance(given, Iterable) and not isinstance(given, str)
    values = tuple(given) if several else (given,)
    if not values:
        raise HyparError(f"{argument(name)} should have a value or more, got none")
    return values
