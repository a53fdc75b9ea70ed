"""Many problems of one network at once: every combination of batches, elements, readings, levels.

Where levels have thresholds, all batches are solved together (`affine_chain`); any other problem
is solved separately, as `hypar_opt.solve` does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, Never

import numpy as np
from numpy.typing import NDArray

from hypar_opt.checked import checked
from hypar_opt.costs.table import Integers, exact_dtype
from hypar_opt.costs.thresholds import ThresholdTable
from hypar_opt.errors import HyparError, UnknownNameError, argument
from hypar_opt.frozen import Frozen
from hypar_opt.instance.instance import Instance
from hypar_opt.models import find_network
from hypar_opt.pipeline import solve
from hypar_opt.plan.arguments import ProblemArguments, problem_of
from hypar_opt.plan.plan import Plan, json_number
from hypar_opt.results import Displayed
from hypar_opt.search.searches import SEARCHES
from hypar_opt.studies.many.affine_chain import AffineChain, Bits, Int64, bits_type
from hypar_opt.workload.network import Network

SearchName = Literal["levelwise", "joint"]

AXES = ("batch", "element_bytes", "reading", "levels")
TAKEN = (*AXES, "search")
AMOUNTS = (
    *("totals", "data_parallel", "model_parallel"),
    *("executed_bytes", "data_parallel_bytes"),
)
"""The names of the arrays of bytes in `ManyPlans`."""


@dataclass(frozen=True, eq=False, repr=False)
class ManyPlans(Frozen, Displayed):
    """The optimal plans of all combinations of four axes, as arrays.

    Parameters
    ----------
    network, search
        The same for all problems.
    batch, element_bytes, reading, levels
        The values of the four axes, in the order of the arrays' axes.
    totals, data_parallel, model_parallel : (batches, element bytes, readings, levels)
        Bytes by the reading, of the plan and of the baselines: int64, or objects if a total is
        not an integer or does not fit.
    executed_bytes, data_parallel_bytes : (batches, element bytes, readings, levels)
        Bytes moved when the plan is run, and when Data Parallelism is run.
    bits : (batches, element bytes, readings, levels, layers)
        Bit h is 1 where the layer takes model parallelism at level h, H1 being 0.
    """

    network: Network
    search: SearchName
    batch: tuple[int, ...]
    element_bytes: tuple[int, ...]
    reading: tuple[str, ...]
    levels: tuple[int, ...]
    totals: Integers
    data_parallel: Integers
    model_parallel: Integers
    executed_bytes: Integers
    data_parallel_bytes: Integers
    bits: Bits

    @property
    def counts(self) -> NDArray[np.uint8]:
        """The number of levels at which each layer takes model parallelism."""
        counts = np.zeros(self.bits.shape, np.uint8)
        for level in range(max(self.levels)):
            counts += self.choices(level + 1)
        return counts

    @checked
    def choices(self, level: int) -> NDArray[np.bool_]:
        """Return which layers take model parallelism at a level, 1 for H1.

        False for plans with fewer levels.
        """
        if not 1 <= level <= max(self.levels):
            raise HyparError(f"level should be from 1 to {max(self.levels)}, got {level}")
        chosen: NDArray[np.bool_] = (self.bits >> (level - 1) & 1).astype(bool)
        return chosen

    @checked
    def rows(self, stop: int | None = None) -> list[dict[str, Any]]:
        """Return one flat dictionary per plan, the last axis fastest: the rows of a data frame.

        At most ``stop`` of them, from the first.
        """
        values = itertools.islice(itertools.product(*(getattr(self, name) for name in AXES)), stop)
        arrays = (getattr(self, name).reshape(-1)[:stop] for name in AMOUNTS)
        amounts = zip(*(array.tolist() for array in arrays), strict=True)
        return [
            dict(zip((*AXES, *AMOUNTS), (*at, *moved), strict=True))
            for at, moved in zip(values, amounts, strict=True)
        ]

    def __repr__(self) -> str:
        axes = " x ".join(f"{len(getattr(self, name)):,} {name}" for name in AXES)
        return f"<ManyPlans: {self.totals.size:,} of {self.network.name}, {self.search}: {axes}>"

    def plan(self, *index: int) -> Plan:
        """Return one of the plans, by its index on each of the four axes.

        It is solved and priced separately, which checks the arrays.

        Raises
        ------
        HyparError
            If an index is out of range.
        """
        axes = [getattr(self, name) for name in AXES]
        if len(index) != len(axes) or not all(
            isinstance(place, int | np.integer) and -len(axis) <= place < len(axis)
            for axis, place in zip(axes, index, strict=True)
        ):
            raise HyparError(
                f"an index should be four positions, of {', '.join(AXES)}; got {index}"
            )
        values = {name: axis[place] for name, axis, place in zip(AXES, axes, index, strict=True)}
        return solve(self.network, search=self.search, **values)


@checked
def solve_many(
    network: str | Path | Network,
    *,
    batch: int | Sequence[int] = 256,
    element_bytes: int | Sequence[int] = 4,
    reading: str | Sequence[str] | None = None,
    levels: int | Sequence[int] = 4,
    search: SearchName = "levelwise",
    **other: Never,
) -> ManyPlans:
    """Solve every combination of batches, element sizes, readings and levels, in bytes.

    Problems have two choices, no array and no constraints; `hypar_opt.solve` takes these, one
    problem per call. If levels have thresholds, as on every chain of the zoo, a million
    combinations take seconds. Graphs, and problems whose sums do not fit 64 bits, are solved one
    by one. The plans are those of `hypar_opt.solve`.

    Parameters
    ----------
    network
        A name of the zoo, the path of a network file, or a `Network`.
    batch, element_bytes, reading, levels
        One value or several of each; see `hypar_opt.plan.problem.Problem`. The default reading is
        that of the network.
    search
        ``levelwise``, the default, or ``joint``.

    Raises
    ------
    HyparError
        If an axis is empty, a value is wrong, or an argument is one of `hypar_opt.solve` alone.

    Examples
    --------
    >>> many = solve_many("lenet-c", batch=[32, 256], levels=[2, 4])
    >>> many.totals[:, 0, 0]
    array([[ 1159200,  3934240],
           [ 5075680, 15606240]])
    >>> many.plan(1, 0, 0, 0).cost.total
    5075680
    """
    for name in other:
        raise _not_taken(name)
    described = find_network(network)
    if search not in SEARCHES:
        raise UnknownNameError("search", search, list(SEARCHES))
    axes = _axes(described, batch, element_bytes, reading, levels)
    batches, _, readings, counts = axes
    shape = tuple(map(len, axes))
    layers = len(described.layers)
    bits = np.zeros((shape[0], *shape[2:], layers), bits_type(max(counts)))
    # For elements of 4 bytes: the size of an element changes no plan.
    moved: Integers = np.zeros((len(AMOUNTS), shape[0], *shape[2:]), np.int64)
    executed = affine_chain(described, "executed")
    for column, name in enumerate(readings):
        chain = executed if name == "executed" else affine_chain(described, name)
        solved = _Batches(described, name, search, batches, chain, executed)
        for index, (amount, choice_bits) in enumerate(solved.at(counts)):
            # Python's integers if a total does not fit.
            moved = moved.astype(np.result_type(moved, amount), copy=False)
            moved[:, :, column, index], bits[:, column, index] = amount, choice_bits
    spread = np.broadcast_to(bits[:, None], (*shape, layers))
    in_bytes = [_in_bytes(part, axes[1]) for part in moved]
    amounts = dict(zip(AMOUNTS, in_bytes, strict=True))
    return ManyPlans(described, search, *axes, bits=spread, **amounts)  # type: ignore[arg-type]


def affine_chain(network: Network, reading: str) -> AffineChain | None:
    """Return a network's charges as functions of the batch; None if it is solved one by one."""

    def table(batch: int) -> ThresholdTable | None:
        instance = Instance(network, problem_of(network, batch=batch, reading=reading, levels=1))
        # Shared tensors are separate nodes; the constraints are those of kinds of layers.
        if instance.workload.shared or instance.constraints.any:
            return None
        return instance.cost.thresholds(instance.workload, 1)

    return AffineChain.of(table)


@dataclass(frozen=True)
class _Batches:
    """The problems of many batches in one reading, for elements of 4 bytes."""

    network: Network
    reading: str
    search: SearchName
    batches: tuple[int, ...]
    chain: AffineChain | None
    """By the reading."""
    executed: AffineChain | None

    def at(self, counts: Sequence[int]) -> Iterator[tuple[Integers, Bits]]:
        """Yield `AMOUNTS`, ``(5, batches)``, and bits, for numbers of levels."""
        batches = np.array(self.batches, np.int64)
        limits = {
            count: min(_largest_batch(chain, count) for chain in (self.chain, self.executed))
            for count in counts
        }
        together = [count for count in counts if max(self.batches) <= limits[count]]
        shared = None
        if self.chain is not None and together and self.search == "levelwise":
            # The first levels of a plan are the plan of fewer levels.
            shared = self.chain.levelwise(batches, max(together))
        for count in counts:
            fit = batches <= limits[count]
            levels = shared if count in together else None
            if fit.all():
                yield self._several(batches, count, levels)
                continue
            moved: Integers = np.zeros((len(AMOUNTS), len(batches)), object)
            bits = np.zeros((len(batches), len(self.network.layers)), bits_type(count))
            if fit.any():
                moved[:, fit], bits[fit] = self._several(batches[fit], count, levels)
            for place in np.flatnonzero(~fit).tolist():
                moved[:, place], bits[place] = self._one(self.batches[place], count)
            yield moved, bits

    def _several(
        self, batches: Int64, count: int, levels: tuple[Int64, Bits] | None
    ) -> tuple[Int64, Bits]:
        """Return the amounts and the bits of problems that are solved together.

        Their plans of ``count`` levels or more, by `AffineChain.levelwise`, may be known.
        """
        chain, executed = self.chain, self.executed
        assert chain is not None
        assert executed is not None
        if self.search == "joint":
            totals, bits = chain.joint(batches, count)
        else:
            by_level, deepest = levels or chain.levelwise(batches, count)
            totals, bits = by_level[count], deepest & (2**count - 1)
        data, model = range(2)  # the columns of the paper's choices
        baselines = [chain.uniform(batches, count, choice) for choice in (data, model)]
        run = totals if chain is executed else executed.price(batches, bits, count)
        return np.stack([totals, *baselines, run, executed.uniform(batches, count, data)]), bits

    def _one(self, batch: int, count: int) -> tuple[list[Any], list[int]]:
        """Return the amounts and the bits of one problem, solved separately."""
        plan = solve(
            self.network, search=self.search, batch=batch, reading=self.reading, levels=count
        )
        cost, states = plan.cost, zip(*plan.assignments(), strict=True)
        bits = [sum(choice << level for level, choice in enumerate(state)) for state in states]
        baselines = cost.baselines.data, cost.baselines.model
        moved = [cost.total, *baselines, cost.executed_bytes, cost.data_parallel_bytes]
        return moved, bits or [0] * len(plan.layers)


def _not_taken(name: str) -> HyparError:
    """Return the error of an argument that `solve_many` does not take."""
    elsewhere = (*ProblemArguments.__annotations__, *solve.__annotations__)
    if name not in elsewhere:
        return UnknownNameError("argument", name, list(TAKEN))
    return HyparError(
        f"solve_many takes no {name}, only {', '.join(TAKEN)}, and plans in bytes with two"
        f" choices; hypar_opt.solve takes {name}, one problem per call"
    )


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
    # As in plan files: a float for fractional bytes.
    flat = [json_number(Fraction(part, 4)) for part in parts.reshape(-1).tolist()]
    fractional: Integers = np.empty(len(flat), object)
    fractional[:] = flat
    return fractional.reshape(parts.shape)


def _axes(
    network: Network, batch: Any, element_bytes: Any, reading: Any, levels: Any
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...], tuple[int, ...]]:
    """Return the axes as tuples, with their values validated like those of a problem."""
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
            _ = Instance(network, problem).cost  # refuses an unknown reading
    return axes["batch"], axes["element_bytes"], axes["reading"], axes["levels"]


def _values(name: str, given: Any) -> tuple[Any, ...]:
    """Return an axis's values; a single value is an axis too."""
    if isinstance(given, np.ndarray):
        given = given.tolist()
    several = isinstance(given, Iterable) and not isinstance(given, str)
    values = tuple(given) if several else (given,)
    if not values:
        raise HyparError(f"{argument(name)} should have at least one value, got none")
    return values
