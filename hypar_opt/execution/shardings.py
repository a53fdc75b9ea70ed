"""A plan's shardings by name, for other frameworks: which mesh axis splits which dimension.

Arrays are described as a program stores them: an axis that levels split becomes one dimension per
level, of its parts, and one for the rest, so that every mesh axis splits a dimension of its own.
Those of a step in micro-batches are of one of them; what data parallelism shards of weights is
divided over the mesh axes over which their gradient is all-reduced.

A mesh has equal parts. Of a plan with unequal ones the indices of each dimension are listed, device
by device.
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hypar_opt.execution.export import divided_plan, sharded_plan
from hypar_opt.execution.jax.mesh import level_axes
from hypar_opt.execution.jax.tensors import StoredTensor
from hypar_opt.execution.jax.weights import (
    bias_of,
    biases_of,
    inputs_of,
    stored_tensors,
    targets_of,
    weights_of,
)
from hypar_opt.sharding.layouts import BATCH
from hypar_opt.workload.operands import operands_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from hypar_opt.execution.jax.axes import StoredAxis
    from hypar_opt.execution.jax.weights import StoredWeights
    from hypar_opt.execution.virtual.division import Division
    from hypar_opt.plan.plan import Plan
    from hypar_opt.sharding.conversions import Layouts
    from hypar_opt.sharding.program import Program
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.base import Operator

SCHEMA, SCHEMA_OF_SHARDS = "hypar-opt/shardings/1", "hypar-opt/shards/1"

_WEIGHTS = {
    "k": "rows",
    "l": "columns",
    "i": "inputs",
    "o": "outputs",
    "s": "scale and shift",
    "c": "channels",
    "e": "channels of a head",
    "x": "experts",
    "X": "outputs",
    "t": "tokens",
}
_BIAS = ("experts", "outputs")
_TABLE = _WEIGHTS | {"i": "vocabulary", "o": "features"}
"""Names of the dimensions of weights, and of an embedding's, by axis."""


def shardings(plan: Plan) -> dict[str, Any]:
    """Return a plan's shardings by name, as plain data: ``hypar-opt/shardings/1``.

    Of a plan with unequal parts ``hypar-opt/shards/1``: what each device has.

    Raises
    ------
    HyparError
        As `sharded_plan`; of unequal parts as `divided_plan`.
    """
    if plan.unequal_shares and not plan.is_staged:
        return _shards(plan, divided_plan(plan))
    sharded = sharded_plan(plan, axes_of=level_axes)
    layers = sharded.network.layers
    operators = {layer.name: layer for layer in layers}
    positions = dict(zip(operators, map(_activation, sharded.positions), strict=True))
    array = partial(_array, range(sharded.levels))
    stored = biases_of(sharded)
    biases = {
        layer.name: _trained(array, one, _BIAS[-len(one.tensor.dims) :])
        for layer in layers
        if layer.has_bias and (one := stored[bias_of(layer.name)])
    }
    return {
        **_common_fields(plan, SCHEMA, sharded.program),
        "inputs": {
            name: array(one.tensor, _activation(sharded.read_positions(one.sequence)))
            for name, one in inputs_of(sharded)[0].items()
        },
        "weights": {
            name: _trained(array, one, _weights(operators[name], _WEIGHTS))
            for name, one in weights_of(sharded).items()
        },
        **({"biases": biases} if biases else {}),
        "tensors": {
            name: array(tensor, positions[name]) for name, tensor in stored_tensors(sharded).items()
        },
        "targets": {
            name: array(one.tensor, positions[name]) for name, one in targets_of(sharded).items()
        },
    }


def _common_fields(plan: Plan, schema: str, program: Program) -> dict[str, Any]:
    """Return what is said of any plan: its mesh, and its layers' choices and layouts."""
    network = plan.network.description
    return {
        "schema": schema,
        "network": network.name,
        "batch": plan.batch,
        **({"training": plan.training.stated} if plan.training.non_default else {}),
        "mesh": dict(zip(_mesh_axes(range(plan.levels)), plan.hierarchy.sizes, strict=True)),
        "layers": {
            layer.name: _layer(network, program, position)
            for position, layer in enumerate(network.layers)
        },
    }


def _shards(plan: Plan, division: Division) -> dict[str, Any]:
    """Return the indices of each dimension that every device has of weights and layers' outputs."""
    program, network, shared = division.program, division.network, division.shared
    devices = range(plan.accelerators)

    def array(
        sizes: Mapping[str, int], indices: Callable[[int], Sequence[NDArray[np.intp]]]
    ) -> dict[str, Any]:
        dims = [{"name": name, "size": size} for name, size in sizes.items()]
        return {"dims": dims, "shards": [list(map(_runs, indices(device))) for device in devices]}

    def bias(position: int, device: int) -> Sequence[NDArray[np.intp]]:
        return division.bias_held(position, device)

    weights, biases, tensors = {}, {}, {}
    for position, layer in enumerate(network.layers):
        for device in devices:
            division.use(position, device)  # refuses weights that are stored otherwise than used
        node = division.weight_node(position)
        if node is not None and layer.shares_weights_with is None:
            tensor = program.workload.layers[position]
            reduced = sorted(step.level for step in program.gradient_steps(node))
            weights[layer.name] = {
                **array(
                    dict(zip(_weights(layer, tensor.sizes), tensor.weight, strict=True)),
                    partial(division.stored, position),
                ),
                "all_reduced": _mesh_axes(reduced),
            }
        if layer.has_bias:
            reduced = sorted(step.level for step in program.bias_steps(position + shared))
            shape = layer.bias_shape(division.maps[position])
            sizes = dict(zip(_BIAS[-len(shape) :], shape, strict=True))
            biases[layer.name] = {
                **array(sizes, partial(bias, position)),
                "all_reduced": _mesh_axes(reduced),
            }
        output, layouts = division.tensor(position), program.written[position + shared]
        sizes = {f"{name}s" if name != BATCH else name: n for name, n in output.sizes.items()}
        tensors[layer.name] = array(sizes, partial(output.indices, layouts))
    groups = plan.array.description.groups if plan.array else ()
    ends = [0, *accumulate(group.count for group in groups)]
    return {
        **_common_fields(plan, SCHEMA_OF_SHARDS, program),
        "groups": {
            group.name: {"devices": list(between)}
            for group, between in zip(groups, pairwise(ends), strict=True)
        },
        "weights": weights,
        **({"biases": biases} if biases else {}),
        "tensors": tensors,
    }


def _runs(indices: NDArray[np.intp]) -> list[list[int]]:
    """Return ascending indices as the ends of their runs, ``[first, behind the last]``."""
    pieces = np.split(indices, np.flatnonzero(np.diff(indices) > 1) + 1)
    return [[int(piece[0]), int(piece[-1]) + 1] for piece in pieces if len(piece)]


def _layer(network: Network, program: Program, position: int) -> dict[str, Any]:
    """Return a layer's choice at each level, and the layouts that it reads and writes."""
    node, layer = position + program.workload.shared, network.layers[position]
    axes = _mesh_axes(range(program.hierarchy.levels))

    def named(layouts: Layouts) -> dict[str, str]:
        return dict(zip(axes, layouts, strict=True))

    inputs = range(1, len(operands_of(network)[position]))
    reads = [program.read_as(node, number) for number in inputs]
    differ = any(layouts != program.read[node] for layouts in reads)
    return {
        "kind": layer.kind,
        "choices": dict(zip(axes, program.words(node), strict=True)),
        "reads": named(program.read[node]),
        **({"reads_others": list(map(named, reads))} if differ else {}),
        "writes": named(program.written[node]),
    }


def _trained(
    array: Callable[[StoredTensor, Sequence[str]], dict[str, Any]],
    one: StoredWeights,
    names: Sequence[str],
) -> dict[str, Any]:
    return {**array(one.tensor, names), "all_reduced": _mesh_axes(one.reduced)}


def _array(levels: range, tensor: StoredTensor, names: Sequence[str]) -> dict[str, Any]:
    """Return an array's dimensions, its stored shape, and what each mesh axis splits."""
    splits = {level: n for n, level in enumerate(tensor.levels) if level is not None}
    return {
        "dims": [_dimension(*of) for of in zip(names, tensor.dims, strict=False)],
        "shape": list(tensor.shape),
        "split": dict(zip(_mesh_axes(levels), map(splits.get, levels), strict=True)),
    }


def _dimension(name: str, dim: StoredAxis | int) -> dict[str, Any]:
    if isinstance(dim, int):
        return {"name": name, "size": dim}
    return {
        "name": name,
        "size": dim.size,
        "levels": _mesh_axes(dim.split),
        "segments": list(dim.segments),
        **({"mirrored": True} if dim.mirrored else {}),
    }


def _weights(layer: Operator, axes: Iterable[str]) -> list[str]:
    names = _TABLE if layer.reads_ids else _WEIGHTS
    return [names.get(axis, "groups") for axis in layer.axes.weight if axis in axes]


def _mesh_axes(levels: Sequence[int]) -> list[str]:
    return [f"h{level + 1}" for level in levels]


def _activation(positions: Sequence[int]) -> tuple[str, ...]:
    if len(positions) == 3:
        return ("batch", "groups", "experts", "slots", "features")
    places = {0: (), 1: ("tokens",), 2: ("rows", "columns")}[len(positions)]
    return ("batch", *places, "channels")
