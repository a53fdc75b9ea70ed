"""The tensors of a plan as a sharded program stores them: axes, and the levels that split them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import HyparError
from hypar_opt.execution.index_labels import levels_by
from hypar_opt.execution.jax.axes import StoredAxis
from hypar_opt.execution.jax.gathers import adapted_to_jax
from hypar_opt.execution.jax.maps import BETWEEN, NetworkMaps
from hypar_opt.execution.jax.mesh import Axes, AxesOf, mesh_axes, on_axes
from hypar_opt.execution.jax.padding import PaddedBatch, padded
from hypar_opt.execution.jax.ties import SplitAxes, split_axes
from hypar_opt.sharding.layouts import BATCH, EXPERT, TOKEN
from hypar_opt.workload.operators.experts import Router

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.sharding.program import Halo, Program
    from hypar_opt.workload.network import Network

ACTIVATIONS = {
    "abs": "jnp.abs",
    "clipped_plus_one": "clipped_plus_one",
    "clipped_quick_gelu": "clipped_quick_gelu",
    "elu": "jax.nn.elu",
    "exp": "jnp.exp",
    "gelu": "jax.nn.gelu",
    "gelu_erf": "gelu_by_erf",
    "hard_tanh": "jax.nn.hard_tanh",
    "hardsigmoid": "jax.nn.hard_sigmoid",
    "hardswish": "jax.nn.hard_swish",
    "identity": "jnp.asarray",
    "leaky_relu": "jax.nn.leaky_relu",
    "log_sigmoid": "jax.nn.log_sigmoid",
    "mish": "jax.nn.mish",
    "quick_gelu": "quick_gelu",
    "relu": "jax.nn.relu",
    "relu6": "jax.nn.relu6",
    "selu": "jax.nn.selu",
    "sigmoid": "jax.nn.sigmoid",
    "silu": "jax.nn.silu",
    "softplus": "jax.nn.softplus",
    "softsign": "jax.nn.soft_sign",
    "square": "jnp.square",
    "squared_relu": "squared_relu",
    "tanh": "jnp.tanh",
    "thresholded_relu": "thresholded_relu",
}
"""The activations of network files, by name, in jax."""


class StoredTensor(NamedTuple):
    """An array of a program: its dimensions in order, and the levels that split some of them.

    Parameters
    ----------
    dims
        Either a `StoredAxis`, with one dimension per level and one for the rest, or the size of a
        single dimension.
    split
        The levels that split each of ``dims`` in this tensor.
    """

    dims: tuple[StoredAxis | int, ...]
    split: tuple[tuple[int, ...], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The size of each of ``dims``."""
        return tuple(dim if isinstance(dim, int) else dim.size for dim in self.dims)

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape."""
        sizes = ((dim,) if isinstance(dim, int) else dim.shape for dim in self.dims)
        return tuple(size for dim in sizes for size in dim)

    @property
    def levels(self) -> tuple[int | None, ...]:
        """The level that splits each dimension of `shape`, if any."""
        levels: list[int | None] = []
        for dim, split in zip(self.dims, self.split, strict=True):
            if not isinstance(dim, int):
                levels += [n if n in split else None for n in range(dim.hierarchy.levels)]
            levels.append(None)
        return tuple(levels)

    def stored(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return an array, given in the network's order, as this tensor stores it."""
        return array[self._order].reshape(self.shape)

    def original(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Return a stored array in the network's order: the inverse of `stored`."""
        array = np.empty(self.sizes, stored.dtype)
        array[self._order] = stored.reshape(self.sizes)
        return array

    @property
    def _order(self) -> tuple[NDArray[np.intp], ...]:
        """The index in the network's order at each stored position."""
        dims = self.dims
        return np.ix_(*(np.arange(d) if isinstance(d, int) else d.order.ravel() for d in dims))


@dataclass(frozen=True, eq=False)
class ShardedNetwork(NetworkMaps):
    """A network with a plan's layouts, whose program has the axes of a mesh as its levels.

    Parameters
    ----------
    by_level
        The same program with the plan's levels, several of which may be one axis of the mesh.
    axes
        The axes of the mesh.
    padding
        The padded batch that both programs are of, if the plan's parts of its batch are not equal.
    differences
        What is not as in the plan, as phrases.

    Raises
    ------
    HyparError
        If an activation or a mixture without a capacity has no program, or a size cannot be split
        evenly.
    """

    by_level: Program
    axes: Axes
    padding: PaddedBatch | None = None
    differences: Sequence[str] = ()

    def __post_init__(self) -> None:
        for layer in self.network.layers:
            if isinstance(layer, Router):
                layer.check_runs()
            activation = getattr(layer, "activation", None)
            if activation is not None and activation not in ACTIVATIONS:
                names = ", ".join(ACTIVATIONS)
                raise HyparError(
                    f"layer {layer.name!r}, activation: {activation!r} is not known; one of {names}"
                )
        self.split  # noqa: B018 - refuses an uneven split at once

    @property
    def planned(self) -> Program:
        """The plan's own program: `by_level`, unless the batch is padded."""
        return self.padding.planned if self.padding else self.by_level

    def axis(self, level: int) -> str:
        """Return the text of the name of the mesh axis that a level is."""
        return f'"{self.axes[level].name}"'

    def names(self, levels: Sequence[int]) -> str:
        """Return the text of a tuple of mesh axes."""
        return f"({', '.join(map(self.axis, levels))}{',' if len(levels) == 1 else ''})"

    @property
    def axes_description(self) -> str:
        """The sentences on the mesh for the docstring of an exported file."""
        hierarchy = self.by_level.hierarchy
        said = "; ".join(axis.said(hierarchy) for axis in self.axes)
        return (
            f"The axes of the mesh are levels of the plan, H1 the topmost: {said}."
            if self.axes
            else "The mesh has no axes."
        )

    @cached_property
    def batch(self) -> StoredAxis:
        """The axis of the batch."""
        return self.split.axes[0]

    def written(self, position: int) -> StoredAxis:
        """The axis of the channels that a layer writes."""
        return self.split.axes[self.split.shapes[position].writes]

    def read(self, position: int, number: int = 0) -> StoredAxis:
        """The axis of the channels that a layer reads as one of its inputs, flattened if it is."""
        return self.split.axes[self.split.shapes[position].reads[number]]

    def places(self, source: int) -> tuple[StoredAxis | int, ...]:
        """The dimensions between batch and channels of a layer's output.

        Tokens; rows and columns; or groups of tokens, experts and slots.
        """
        return self.along(self.read_positions(source))

    def along(self, sizes: tuple[int, ...]) -> tuple[StoredAxis | int, ...]:
        """Return the dimensions of so many positions: those that levels may split as axes."""
        if len(sizes) == 2 and not self.splits_images:
            return sizes
        axes = zip(BETWEEN[len(sizes)], sizes, strict=False)
        split = [self.split.axes[self.split.places[axis]] for axis in axes]
        return (*split, *sizes[len(split) :])

    def tokens(self, source: int) -> StoredAxis:
        """The axis of the tokens that a layer writes, or of groups of them."""
        size, *_ = self.read_positions(source)
        return self.split.axes[self.split.places[TOKEN, size]]

    def experts(self, source: int) -> StoredAxis:
        """The axis of the experts whose slots a layer writes."""
        _, size, _ = self.read_positions(source)
        return self.split.axes[self.split.places[EXPERT, size]]

    def halos(self, position: int) -> tuple[Halo, ...]:
        """Return the halos of a layer that reads images in parts.

        Of the network's input, too.
        """
        return self.program.halos(position + self.shared, of_input=True)

    def rows(self, position: int) -> StoredAxis:
        """The axis of an embedding's vocabulary."""
        rows = self.split.shapes[position].rows
        assert rows is not None
        return self.split.axes[rows]

    @classmethod
    def of(
        cls, network: Network, program: Program, *, pads: bool = True, axes_of: AxesOf = mesh_axes
    ) -> ShardedNetwork:
        """Return a network with a plan's layouts, or equivalent ones if its batch is too small.

        Partial sums that are reduce-scattered and all-gathered are split by batch in between, if
        levels can split it evenly.

        Parameters
        ----------
        pads
            Whether a batch that layers split unevenly is padded; else it is refused.
        axes_of
            Returns the axes of a program's mesh.
        """
        program, differences = adapted_to_jax(program)
        images = program.hierarchy.parts(levels_by(program, BATCH))
        program = replace(program, by_batch=program.workload.batch % images == 0)
        padding = padded(network, program) if pads else None
        by_level = padding.program if padding else program
        axes = axes_of(by_level)
        mesh_program = on_axes(by_level, axes)
        return cls(network, mesh_program, by_level, axes, padding, tuple(differences))

    @cached_property
    def split(self) -> SplitAxes:
        """The axes of all arrays, and the layers whose input is flattened first."""
        return split_axes(self)
