"""Many problems of one network at once: every combination of batches, elements, readings, levels.

Where levels have thresholds, all batches are solved together (`affine`); any other problem is
solved separately, as `hypar_opt.solve` does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Never

import numpy as np
from numpy.typing import NDArray

from hypar_opt.checked import checked
from hypar_opt.errors import HyparError, UnknownNameError, argument
from hypar_opt.frozen import Frozen
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.instance.instance import Instance
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.models import find_network
from hypar_opt.plan.arguments import ProblemArguments, hierarchy_of, problem_of
from hypar_opt.plan.costs import json_number
from hypar_opt.plan.plan import Plan
from hypar_opt.planning.solve import solve
from hypar_opt.results import Displayed
from hypar_opt.search.searches import SEARCHES
from hypar_opt.studies.many.affine import bits_type
from hypar_opt.studies.many.batches import AMOUNTS, Batches
from hypar_opt.studies.many.batches import SearchName as SearchName
from hypar_opt.studies.many.batches import is_batched as is_batched
from hypar_opt.studies.many.kernels import Bits
from hypar_opt.workload.network import Network

AXES = ("batch", "element_bytes", "reading", "levels")
TAKEN = (*AXES, "tokens", "hierarchy", "whole_levels", "search")


@dataclass(frozen=True, eq=False, repr=False)
class ManyPlans(Frozen, Displayed):
    """The optimal plans of all combinations of four axes, as arrays.

    Parameters
    ----------
    network, search
        The same for all problems.
    batch, element_bytes, reading, levels
        The values of the four axes, in the order of the arrays' axes.
    hierarchy
        The parts of the levels of each value of ``levels``.
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
    hierarchy: tuple[tuple[int, ...], ...]
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
        *rest, levels = zip(AXES, axes, index, strict=True)
        values = {name: axis[place] for name, axis, place in rest}
        values |= {"hierarchy": self.hierarchy[levels[2]], "whole_levels": True}
        return solve(self.network, search=self.search, **values)


@checked
def solve_many(
    network: str | Path | Network,
    *,
    tokens: int | None = None,
    batch: int | Sequence[int] = 256,
    element_bytes: int | Sequence[int] = 4,
    reading: str | Sequence[str] | None = None,
    levels: int | Sequence[int] = 4,
    hierarchy: Sequence[int] | Sequence[Sequence[int]] | None = None,
    whole_levels: bool = False,
    search: SearchName = "levelwise",
    **other: Never,
) -> ManyPlans:
    """Solve every combination of batches, element sizes, readings and levels, in bytes.

    Problems have two choices, no array and no constraints; `hypar_opt.solve` takes these, one
    problem per call. If levels have thresholds, as on every network of the zoo where all levels
    have equally many parts, a million combinations take seconds on chains, and half a minute on
    graphs such as ResNet-50. Others, and problems whose sums do not fit 64 bits, are solved one
    by one. The plans are those of `hypar_opt.solve`.

    Parameters
    ----------
    network
        A name of the zoo, the path of a network file, or a `Network`.
    tokens
        The length of its sequences, in place of its own.
    batch, element_bytes, reading, levels
        One value or several of each; see `hypar_opt.plan.problem.Problem`. The default reading is
        that of the network.
    hierarchy
        The parts of each level, in place of ``levels``: one such as ``(6, 8)``, or several.
    whole_levels
        Whether levels of ``hierarchy`` stay whole, in place of their prime factors.
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
        raise _unsupported_argument(name)
    described = find_network(network, tokens)
    if search not in SEARCHES:
        raise UnknownNameError("search", search, list(SEARCHES))
    stated = None if hierarchy is None else _hierarchies(hierarchy, whole=whole_levels)
    axes = _axes(described, batch, element_bytes, reading, levels, stated)
    batches, _, readings, hierarchies = axes
    shape = tuple(map(len, axes))
    counts = [hierarchy.levels for hierarchy in hierarchies]
    layers = len(described.layers)
    bits = np.zeros((shape[0], *shape[2:], layers), bits_type(max(counts)))
    # For elements of 4 bytes: the size of an element changes no plan.
    moved: Integers = np.zeros((len(AMOUNTS), shape[0], *shape[2:]), np.int64)
    for column, name in enumerate(readings):
        for deepest, numbers in _by_deepest(hierarchies).items():
            solved = Batches(described, name, search, np.array(batches, np.int64), deepest)
            for index in numbers:
                amount, choice_bits = solved.at(counts[index])
                # Python's integers if a total does not fit.
                moved = moved.astype(np.result_type(moved, amount), copy=False)
                moved[:, :, column, index], bits[:, column, index] = amount, choice_bits
    spread = np.broadcast_to(bits[:, None], (*shape, layers))
    in_bytes = [_in_bytes(part, axes[1]) for part in moved]
    amounts = dict(zip(AMOUNTS, in_bytes, strict=True))
    return ManyPlans(
        described,
        search,
        *axes[:3],
        levels=tuple(counts),
        hierarchy=tuple(hierarchy.sizes for hierarchy in hierarchies),
        bits=spread,
        **amounts,  # type: ignore[arg-type]
    )


def _unsupported_argument(name: str) -> HyparError:
    """Return the error of an argument that `solve_many` does not take."""
    elsewhere = (*ProblemArguments.__annotations__, *solve.__annotations__)
    if name not in elsewhere:
        return UnknownNameError("argument", name, list(TAKEN))
    return HyparError(
        f"solve_many takes no {name}, only {', '.join(TAKEN)}, and plans in bytes with two"
        f" choices; hypar_opt.solve takes {name}, one problem per call"
    )


def _by_deepest(hierarchies: Sequence[Hierarchy]) -> dict[Hierarchy, list[int]]:
    """Group hierarchies that are leading levels of a common one; return their positions."""
    groups: dict[Hierarchy, list[int]] = {}
    for place, hierarchy in enumerate(hierarchies):
        levels = hierarchy.levels
        longer = (other for other in hierarchies if other.sizes[:levels] == hierarchy.sizes)
        groups.setdefault(max(longer, key=lambda other: other.levels), []).append(place)
    return groups


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
    network: Network,
    batch: Any,
    element_bytes: Any,
    reading: Any,
    levels: Any,
    hierarchies: Sequence[Hierarchy] | None,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...], tuple[Hierarchy, ...]]:
    """Return the axes as tuples, with their values validated like those of a problem."""
    if hierarchies is not None:
        levels = [hierarchy.levels for hierarchy in hierarchies]
    if reading is None:
        halves = hierarchies is None or all(hierarchy.is_binary for hierarchy in hierarchies)
        reading = problem_of(network).reading if halves else "executed"
    axes = {
        name: _values(name, stated)
        for name, stated in zip(AXES, (batch, element_bytes, reading, levels), strict=True)
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
    for hierarchy, name in itertools.product(hierarchies or (), axes["reading"]):
        problem = problem_of(network, hierarchy=hierarchy.sizes, whole_levels=True, reading=name)
        _ = Instance(network, problem).cost  # refuses the paper's readings of other parts
    places = hierarchies or [Hierarchy((2,) * count) for count in axes["levels"]]
    return axes["batch"], axes["element_bytes"], axes["reading"], tuple(places)


def _hierarchies(hierarchy: Any, *, whole: bool) -> tuple[Hierarchy, ...]:
    """Return hierarchies, or those of their prime factors; a single one is an axis too."""
    values = _values("hierarchy", hierarchy)
    entries = [values] if all(type(size) is int for size in values) else values
    stated = map(hierarchy_of, entries)
    return tuple(entry if whole else entry.in_primes for entry in stated)


def _values(name: str, argument_value: Any) -> tuple[Any, ...]:
    """Return an axis's values; a single value is an axis too."""
    if isinstance(argument_value, np.ndarray):
        argument_value = argument_value.tolist()
    several = isinstance(argument_value, Iterable) and not isinstance(argument_value, str)
    values = tuple(argument_value) if several else (argument_value,)
    if not values:
        raise HyparError(f"{argument(name)} should have at least one value, got none")
    return values
