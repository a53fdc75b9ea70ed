"""The layouts of a plan's tensors, and the steps of the conversions between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.hierarchy import Hierarchy, Shares
from hypar_opt.sharding.conversions import (
    Layouts,
    Step,
    all_reduce,
    conversion,
    dual,
    even_axes,
    scatter_layout,
)
from hypar_opt.sharding.layouts import (
    BATCH,
    CHANNEL,
    COLUMN,
    EXPERT,
    PARTIAL,
    ROW,
    SHUFFLED,
    TOKEN,
    WHOLE,
    Layout,
)
from hypar_opt.workload.addends import may_defer_reduction
from hypar_opt.workload.operators.axes import COLUMNS, ROWS, TOKENS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.workload.tensors import Workload


HALO_AXES: tuple[tuple[Layout, str], ...] = ((ROW, ROWS.axis), (COLUMN, COLUMNS.axis))


class Halo(NamedTuple):
    """A halo exchange: rows or columns of neighbouring parts that a layer's windows read.

    Rows are exchanged first, then columns, which include the rows just received. Halos at an
    image's edges are as wide as between two parts, since all parts have arrays of one shape.

    Parameters
    ----------
    layout
        By rows, or by columns: which of them are exchanged.
    levels
        The levels that split them, H1 first: the digits of a part's number.
    before, behind
        How many rows, or columns, a part receives from the part before it and from that behind.
    """

    layout: Layout
    levels: tuple[int, ...]
    before: int
    behind: int


@dataclass(frozen=True, eq=False)
class Program:
    """The layouts of all tensors of a plan, and the steps between them.

    Parameters
    ----------
    workload
        With shared tensors as nodes.
    rows : (levels, nodes)
        The column of every node's choice, H1 first.
    hierarchy
        The parts of each level, by which devices are numbered.
    shares
        The shares of H1's parts in an axis that H1 splits, if they are unequal.
    by_batch
        Whether partial sums that are all-gathered after they are reduce-scattered are split by
        batch in between; else those of sequences are split by token, others by channel. All move
        equally much.
    joined
        Whether the all-to-alls of a conversion are joined over all levels; see `conversion`.

    Source: docs/model.md.
    """

    workload: Workload
    rows: Sequence[Sequence[int]]
    hierarchy: Hierarchy
    shares: Shares | None = None
    by_batch: bool = True
    joined: bool = False

    def parts(self, layouts: Layouts, *among: Layout) -> int:
        """Return the product of the parts of the levels at which a tensor has some layouts."""
        return self.hierarchy.parts(
            level for level, layout in enumerate(layouts) if layout in among
        )

    @cached_property
    def columns(self) -> NDArray[np.intp]:
        """The column of every node's choice, as an array: ``(levels, nodes)``."""
        return np.array(self.rows, np.intp).reshape(-1, len(self.workload.nodes))

    @property
    def read(self) -> list[Layouts]:
        """The layouts in which each node reads its first input."""
        return self._reads[0]

    def read_over(self, boundary: int) -> Layouts:
        """Return the layouts in which a boundary's target reads its tensor."""
        edge = self.workload.boundaries[boundary]
        return self.read_as(edge.target, edge.input)

    def read_as(self, node: int, number: int) -> Layouts:
        """Return the layouts in which a node reads one of its inputs."""
        return self._reads[min(number, len(self._reads) - 1)][node]

    @cached_property
    def _reads(self) -> list[list[Layouts]]:
        """The layouts in which each node reads its operands."""
        return [self._all_laid_out(numbers) for numbers in self.workload.layouts.inputs]

    @cached_property
    def written(self) -> list[Layouts]:
        """The layouts in which each node leaves its output, partial sums among them."""
        return self._all_laid_out(self.workload.layouts.output)

    def words(self, node: int) -> tuple[str | None, ...]:
        """Return a node's choices at each level in its kind's words."""
        return tuple(self.workload.words[node][row[node]] for row in self.rows)

    def weights(self, node: int) -> Layouts:
        """Return the layouts in which a node's weights are kept."""
        return self._laid_out(self.workload.layouts.weight, node)

    def _laid_out(self, numbers: NDArray[np.intp], node: int) -> Layouts:
        """Return a node's layouts at each level, of `Layouts` of a workload by choice."""
        names, layouts = self.workload.layouts.names, numbers[:, node].tolist()
        return tuple(names[layouts[row[node]]] for row in self.rows)

    def _all_laid_out(self, numbers: NDArray[np.intp]) -> list[Layouts]:
        """Return the layouts of all nodes at each level."""
        names, rows = self.workload.layouts.names, self.columns
        laid_out = np.array(names, object)[numbers[rows, np.arange(rows.shape[1])]]
        return list(map(tuple, laid_out.T.tolist()))

    @cached_property
    def stored(self) -> list[Layouts]:
        """The layouts in which each node's output is stored for its readers, after pooling.

        Addends, where the reader takes these.

        Before activation and pool, partial sums are reduce-scattered into the layout that the
        tensor's only reader needs, or that the shared tensor has; as `by_batch` says where that is
        whole, and by batch or token where no layer reads the output.
        """
        # A tensor with several readers has one boundary only: to its shared node. One that is
        # several operands of a reader is stored in the layout of the first, which is never whole.
        boundaries = reversed([*enumerate(self.workload.boundaries)])
        into_reader = {edge.source: number for number, edge in boundaries if not edge.weights}
        stored = self.written.copy()
        for node, written in enumerate(stored):
            if PARTIAL in written:
                boundary = into_reader.get(node)
                unread = (WHOLE,) * len(written)
                wanted = unread if boundary is None else self.read_over(boundary)
                passes = boundary is not None and may_defer_reduction(self.workload)[boundary]
                has_tokens = TOKENS.axis in self.workload.nodes[node].sizes
                otherwise = BATCH
                if not self.by_batch and (has_tokens or boundary is not None):
                    otherwise = TOKEN if has_tokens else CHANNEL
                stored[node] = tuple(
                    scatter_layout(target, otherwise)
                    if layout == PARTIAL and not (passes and target == PARTIAL)
                    else layout
                    for layout, target in zip(written, wanted, strict=True)
                )
        return stored

    def output_steps(self, node: int) -> tuple[Step, ...]:
        """Return the reduce-scatters of a node's output, of the extent before pooling."""
        return conversion(self.written[node], self.stored[node], self.hierarchy.sizes)

    def input_steps(self, boundary: int) -> tuple[Step, ...]:
        """Return the steps that convert a boundary's tensor for the node that reads it."""
        edge = self.workload.boundaries[boundary]
        if edge.weights:
            return ()  # users of shared weights slice their parts
        even = None
        if self.joined:
            even = even_axes(self.workload.extents[boundary], self.hierarchy.accelerators)
        ends = self.stored[edge.source], self.read_over(boundary)
        return conversion(*ends, self.hierarchy.sizes, even)

    def gradient_steps(self, node: int) -> tuple[Step, ...]:
        """Return the all-reduces of the gradient of the weights that a node keeps."""
        return all_reduce(dual(self.weights(node)), self.hierarchy.sizes)

    def bias_layouts(self, node: int) -> Layouts:
        """Return the layouts of a node's bias: split as the channels, and experts, of its output.

        That is the output as it is stored: one of the addends has the bias.
        """
        carried = (CHANNEL, SHUFFLED, PARTIAL, EXPERT)
        return tuple(lay if lay in carried else WHOLE for lay in self.stored[node])

    def bias_steps(self, node: int) -> tuple[Step, ...]:
        """Return the all-reduces of the gradient of a node's bias, which no cost counts."""
        return all_reduce(dual(self.bias_layouts(node)), self.hierarchy.sizes)

    def statistics_steps(self, node: int) -> tuple[Step, ...]:
        """Return the all-reduces of a norm's statistics, in either direction."""
        layouts = self._laid_out(self.workload.layouts.statistics, node)
        return all_reduce(layouts, self.hierarchy.sizes)

    def halos(self, node: int, *, of_input: bool = False) -> tuple[Halo, ...]:
        """Return the halo exchanges of the images that a node reads.

        Parameters
        ----------
        of_input
            Whether also for the network's input, of which each part is given what it reads.
        """
        borders, halos = self.workload.nodes[node].borders, []
        for layout, axis in HALO_AXES if of_input or node in self.workload.readers else ():
            levels = tuple(n for n, split in enumerate(self.read[node]) if split == layout)
            border = borders.get(axis)
            if levels and border is not None and border.halo:
                halos.append(Halo(layout, levels, border.before, border.behind))
        return tuple(halos)
