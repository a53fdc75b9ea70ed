"""Five readings of the paper's communication model: one row of factors per reading.

The paper prints, for the exchange between the two halves of a group at one level,

* Table 1, intra-layer: A(dW_l) in data parallelism, A(F_{l+1}) in model parallelism;
* Table 2, inter-layer: dp-dp 0; dp-mp 0.25 A(F_{l+1}) + 0.25 A(E_{l+1});
  mp-mp 0.5 A(E_{l+1}); mp-dp 0.5 A(E_{l+1}),

with A(.) the number of elements. Its text, its figures and a run on real tensors each
count these exchanges differently, the last in two ways:

``tables``
    Tables 1 and 2 to the letter: what one side fetches. Also the objective of the
    authors' later AccPar.
``text``
    Intra-layer exchanges count both directions, as the worked example does (section 3.4:
    56 KB = 2 x 70 x 100 x 4 B); inter-layer exchanges as printed. The default without an array,
    and on the paper's.
``figures``
    What Figures 5 to 13 imply: both directions throughout, and no charge for mp-mp and
    mp-dp. Reproduces all 40 rows of Figure 5.
``executed``
    What a good program of the plan moves, in all directions; the default for graphs and on every
    other array. It reduce-scatters partial sums, before the pool, into the layout that the next
    layer reads, and all-gathers the error on its way back; so mp-mp and mp-dp move nothing more.
    ``figures``, but for the maps in front of pools.
``joined``
    ``executed``, but that a tensor whose layout changes from one axis to another at several levels
    is exchanged once, over all of them. No level has a charge of its own then.

`docs/decisions/0003-readings.md` says why there are several and what each
reproduces; `docs/model.md` has the last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.errors import UnknownNameError
from hypar_opt.sharding.conversions import StepKind, conversion
from hypar_opt.sharding.layouts import PARTIAL, WHOLE, Layout, is_split

if TYPE_CHECKING:
    from hypar_opt.workload.layer_tensors import Extent


class Conversion(NamedTuple):
    """The exchange of a boundary, forward and backward, in quarters of an element.

    Or arrays, for many boundaries.
    """

    forward: int = 0
    backward: int = 0


@dataclass(frozen=True)
class Reading:
    """The factors of one reading, in quarters of an element, between the two halves of a group.

    Between n parts each of a reduction's two passes is charged n - 1 times as much.

    Parameters
    ----------
    gradient
        An all-reduce of the weights' gradient, per element of dW: where a layer's choice splits an
        axis that its weights lack.
    partial_sum
        A layer's output where the choice's axis is not among its own, per element: all-reduced
        forward, or reduce-scattered where the error is gathered.
    gathered_error
        The error of the same output, per element: all-gathered backward, the dual of the
        reduce-scatter.
    conversion
        Returns what a boundary moves, given the layout in which its tensor is written, that in
        which it is read, the number of parts, and the tensor's size.
    input_error
        The error of a layer's input where the choice's axis is not among its own, per element:
        it leaves the layer as partial sums. None if the reading has no such choice.
    first_input_error
        Whether ``input_error`` is also charged for a network's first layer, although no layer needs
        the error of the network's input: AccPar's convention.
    before_pool
        Whether a layer's output is counted before pooling, where a run reduces it, or after it.
    shared_tensors
        Whether a tensor with several readers is stored in one layout that each of them converts; if
        not, each edge is a boundary of Table 2.
    halves
        Whether the reading is defined only for levels of two parts, as in the paper.
    gathers_last
        Whether a layer's input that is read whole is all-gathered after all its other exchanges, so
        that no copies repeat these.
    joins_levels
        Whether the all-to-alls of a conversion are joined over all levels.
    """

    gradient: int
    partial_sum: int
    conversion: Callable[[Layout, Layout, int, Extent], Conversion]
    input_error: int | None = None
    first_input_error: bool = False
    gathered_error: int = 0
    before_pool: bool = False
    shared_tensors: bool = False
    gathers_last: bool = False
    halves: bool = True
    joins_levels: bool = False


def _printed(written: Layout, read: Layout, parts: int, tensor: Extent) -> Conversion:  # noqa: ARG001
    """Return Table 2's charge, and AccPar's for what output parallelism reads and writes."""
    size = tensor.elements
    if not is_split(read):
        # d-o and o-o: half of the input is gathered forward.
        return Conversion(2 * size, 0) if is_split(written) else Conversion()
    if written == PARTIAL:
        return Conversion(0, 2 * size)  # mp-mp and mp-dp: 0.5 A(E), backward
    # dp-mp: 0.25 A(F) forward and 0.25 A(E) backward; o-d as dp-mp (AccPar, Type III).
    return Conversion() if written == WHOLE else Conversion(size, size)


def _in_both_directions(
    written: Layout,
    read: Layout,
    parts: int,  # noqa: ARG001
    tensor: Extent,
) -> Conversion:
    """Return the charge of an all-to-all: half of the tensor moves in each direction."""
    half = 2 * tensor.elements
    return Conversion(half, half) if is_split(written) and is_split(read) else Conversion()


def _executed_amount(written: Layout, read: Layout, parts: int, tensor: Extent) -> Conversion:
    """Return the amount that a conversion moves when run, except for reduce-scatters."""
    steps = conversion((written,), (read,), (parts,))
    moved = sum(
        4 * step.moved(tensor) for step in steps if step.kind is not StepKind.REDUCE_SCATTER
    )
    return Conversion(moved, moved)


_EXECUTED = Reading(
    8,
    4,
    _executed_amount,
    input_error=0,
    gathered_error=4,
    before_pool=True,
    shared_tensors=True,
    gathers_last=True,
    halves=False,
)

READINGS = MappingProxyType(
    {
        # `text` and `figures` count both directions of an all-reduce, 2 elements for 1 of the
        # tensor; `tables` what one side fetches. `executed` splits it into its two halves, of 1
        # each.
        "text": Reading(8, 8, _printed, input_error=8),
        "tables": Reading(4, 4, _printed, input_error=4, first_input_error=True),
        "figures": Reading(8, 8, _in_both_directions),
        "executed": _EXECUTED,
        "joined": replace(_EXECUTED, joins_levels=True),
    }
)


def reading_of(name: str) -> Reading:
    """Return a reading by its name.

    Raises
    ------
    UnknownNameError
        If there is none.
    """
    if name not in READINGS:
        raise UnknownNameError("reading", name, list(READINGS))
    return READINGS[name]
