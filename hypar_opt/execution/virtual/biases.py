"""The biases of layers on virtual devices, and their gradients, which no plan counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hypar_opt.execution.virtual.fabric import Blocks, Fabric, Source
from hypar_opt.sharding.passes import Phase

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.division import Division
    from hypar_opt.execution.virtual.shards import Array


class Biases:
    """The devices' parts of all biases, by layer; their gradients move on a fabric of their own.

    A device holds the bias of its channels of the output.

    Parameters
    ----------
    whole
        The biases, by position in `Network.layers`.
    """

    def __init__(self, division: Division, whole: Mapping[int, Array]) -> None:
        self._division, self._fabric = division, Fabric(division.program.hierarchy)
        self._gradients: dict[int, Blocks] = {}
        self._blocks = {
            position: [
                bias[division.bias_channels(position, device)] for device in self._fabric.devices
            ]
            for position, bias in whole.items()
        }

    def used(self, position: int) -> Blocks | list[None]:
        """Return each device's part of a layer's bias; None of a layer without one."""
        return self._blocks.get(position, [None] * len(self._fabric.devices))

    def add(self, position: int, gradients: Blocks) -> None:
        """Add a micro-batch's gradients."""
        before = self._gradients.get(position)
        if before is not None:
            gradients = [a + b for a, b in zip(before, gradients, strict=True)]
        self._gradients[position] = gradients

    def reduced(self) -> dict[int, Blocks]:
        """Return the reduced gradients of the devices' parts, by layer."""
        program, shared = self._division.program, self._division.shared
        reduced = {}
        for position, gradients in self._gradients.items():
            node = position + shared
            whose = Source(Phase.GRADIENT, node, None)
            reduced[position] = self._fabric.all_reduce(gradients, program.bias_steps(node), whose)
        return reduced

    @property
    def received(self) -> Counter[int]:
        """The elements that devices received, by level."""
        levels: Counter[int] = Counter()
        for purpose, elements in self._fabric.received.items():
            levels[purpose.level] += elements
        return levels
