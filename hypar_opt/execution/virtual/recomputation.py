"""Recomputation on virtual devices: which layers run again, and what is kept for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypar_opt.workload.repeats import EPILOGUE, PASS

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.division import Division


class Recomputation:
    """The layers that run forward again, as `Repeats.recomputed` and `Repeats.by_op` have them.

    Layers that run again together do so when the backward pass comes to the last of them, from the
    tensors that they read of other layers; by operator, from what their products leave, too.
    """

    def __init__(self, division: Division) -> None:
        workload, self._shared = division.program.workload, division.shared
        self._again = workload.repeats.recomputed
        self._into_shared = {
            source: workload.boundaries[boundary].target
            for source, boundary in workload.boundary_into_shared.items()
        }
        together: defaultdict[int, list[int]] = defaultdict(list)
        for node, first in sorted(self._again.items()):
            if first is not None and node >= self._shared:
                together[first].append(node - self._shared)
        self._by_op = workload.repeats.by_op
        self._block_of: dict[int, int] = {}
        for first, *rest in workload.repeats.blocks:
            together[first] = [node - self._shared for node in (first, *rest)]
            self._block_of |= dict.fromkeys(together[first], first)
        self._ending = {layers[-1]: layers for layers in together.values()}
        self._kept = {
            source + self._shared
            for position, sources in enumerate(division.network.sources)
            for source in sources
            if source >= 0 and self._run_of(source) != self._run_of(position)
        }

        workload_again = workload.repeats.converted_again
        self.converted = {
            target: (boundary, source - self._shared)
            for source, boundary in workload.boundary_into_shared.items()
            if (target := workload.boundaries[boundary].target) in workload_again
        }
        """The shared tensors that are gathered again without recomputation: how, and their writer,
        by node."""
        self._read: defaultdict[int, set[int]] = defaultdict(set)
        for edge in workload.boundaries:
            if edge.source in self.converted:
                self._read[edge.target - self._shared].add(edge.source)
        self._last = {
            node: max(n for n, tensors in self._read.items() if node in tensors)
            for node in self.converted
        }

    def read_by(self, position: int) -> set[int]:
        """Return the tensors read by a layer that are gathered again."""
        return self._read.get(position, set())

    def last_read_by(self, position: int) -> Sequence[int]:
        """Return those tensors whose last forward reader is a layer."""
        return [node for node, last in self._last.items() if last == position]

    def _run_of(self, position: int) -> int | None:
        first = self._again.get(position + self._shared)
        return self._block_of.get(position) if first is None else first

    def alone(self, position: int) -> bool:
        """Return whether a layer recomputes alone, from its own inputs."""
        node = position + self._shared
        return node in self._again and self._again[node] is None and node not in self._by_op

    def again(self, position: int) -> str | None:
        """Return what of a layer runs again together with others: `PASS`, or less by operator."""
        node = position + self._shared
        return self._by_op.get(node) if self._again.get(node) is None else PASS

    def stored_again(self, position: int) -> bool:
        """Return whether a layer's shared output is stored again for its readers."""
        stored = self._into_shared.get(position + self._shared, -1)
        return self._again.get(stored) is not None or stored in self._by_op

    def ending_at(self, position: int) -> Sequence[int]:
        """Return the layers recomputed together, in order, if this is the last of them."""
        return self._ending.get(position, ())

    def dropped(self, position: int) -> Sequence[int]:
        """Return the nodes of a layer's output as it is stored, unless it is kept."""
        node = position + self._shared
        if self.again(position) not in (PASS, EPILOGUE):
            return ()
        stored = self._into_shared.get(node)
        if stored is not None and not self.stored_again(position):
            return (node,)
        if node in self._kept:
            # Other layers read it as it is stored for several readers, if there are several.
            return () if stored is None else (node,)
        return (node,) if stored is None else (node, stored)
