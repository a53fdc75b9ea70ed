"""A plan's shardings by name, for other frameworks: which mesh axis splits which dimension.

Arrays are described as a program stores them: an axis that levels split becomes one dimension per
level, of its parts, and one for the rest, so that every mesh axis splits a dimension of its own.
Those of a step in micro-batches are of one of them; what data parallelism shards of weights is
divided over the mesh axes over which their gradient is all-reduced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypar_opt.execution.export import sharded_plan
from hypar_opt.execution.jax.tensors import StoredTensor
from hypar_opt.execution.jax.weights import (
    bias_of,
    biases_of,
    inputs_of,
    stored_tensors,
    targets_of,
    weights_of,
)
from hypar_opt.workload.operands import operands_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.execution.jax.axes import StoredAxis
    from hypar_opt.execution.jax.tensors import ShardedNetwork
    from hypar_opt.execution.jax.weights import StoredWeights
    from hypar_opt.plan.plan import Plan
    from hypar_opt.sharding.conversions import Layouts
    from hypar_opt.workload.operators.base import Operator

SCHEMA = "hypar-opt/shardings/1"

_WEIGHTS = {
    "k": "rows",
    "l": "columns",
    "i": "inputs",
    "o": "outputs",
    "s": "scale and shift",
    "c": "channels",
    "x": "experts",
    "X": "outputs",
}
_TABLE = _WEIGHTS | {"i": "vocabulary", "o": "features", "t": "tokens"}
"""Names of the dimensions of weights, and of an embedding's, by axis."""


def shardings(plan: Plan) -> dict[str, Any]:
    """Return a plan's shardings by name, as plain data: ``hypar-opt/shardings/1``.

    Raises
    ------
    HyparError
        As `sharded_plan`.
    """
    sharded = sharded_plan(plan)
    layers = sharded.network.layers
    operators = {layer.name: layer for layer in layers}
    positions = dict(zip(operators, map(_activation, sharded.positions), strict=True))
    own = biases_of(sharded)
    biases = {
        layer.name: _trained(own[bias_of(layer.name)], ["outputs"])
        for layer in layers
        if layer.has_bias
    }
    return {
        "schema": SCHEMA,
        "network": sharded.network.name,
        "batch": plan.batch,
        **({"training": plan.training.stated} if plan.training.unlike_defaults else {}),
        "mesh": dict(zip(_mesh_axes(range(sharded.levels)), sharded.hierarchy.sizes, strict=True)),
        "layers": {layer.name: _layer(sharded, position) for position, layer in enumerate(layers)},
        "inputs": {
            name: _array(one.tensor, _activation(sharded.input_positions))
            for name, one in inputs_of(sharded)[0].items()
        },
        "weights": {
            name: _trained(one, _weights(operators[name]))
            for name, one in weights_of(sharded).items()
        },
        **({"biases": biases} if biases else {}),
        "tensors": {
            name: _array(tensor, positions[name])
            for name, tensor in stored_tensors(sharded).items()
        },
        "targets": {
            name: _array(one.tensor, positions[name]) for name, one in targets_of(sharded).items()
        },
    }


def _layer(sharded: ShardedNetwork, position: int) -> dict[str, Any]:
    """Return a layer's choice at each level, and the layouts that it reads and writes."""
    node, layer = position + sharded.shared, sharded.network.layers[position]
    program, axes = sharded.program, _mesh_axes(range(sharded.levels))

    def named(layouts: Layouts) -> dict[str, str]:
        return dict(zip(axes, layouts, strict=True))

    inputs = range(1, len(operands_of(sharded.network)[position]))
    others = [program.read_as(node, number) for number in inputs]
    differ = any(layouts != program.read[node] for layouts in others)
    return {
        "kind": layer.kind,
        "choices": dict(zip(axes, program.words(node), strict=True)),
        "reads": named(program.read[node]),
        **({"reads_others": list(map(named, others))} if differ else {}),
        "writes": named(program.written[node]),
    }


def _trained(one: StoredWeights, names: Sequence[str]) -> dict[str, Any]:
    return {**_array(one.tensor, names), "all_reduced": _mesh_axes(one.reduced)}


def _array(tensor: StoredTensor, names: Sequence[str]) -> dict[str, Any]:
    """Return an array's dimensions, its stored shape, and what each mesh axis splits."""
    splits = {axis: n for n, axis in enumerate(tensor.mesh_axes) if axis is not None}
    levels = next(dim.hierarchy.levels for dim in tensor.dims if not isinstance(dim, int))
    return {
        "dims": [_dimension(*of) for of in zip(names, tensor.dims, strict=False)],
        "shape": list(tensor.shape),
        "split": {name: splits.get(name) for name in _mesh_axes(range(levels))},
    }


def _dimension(name: str, dim: StoredAxis | int) -> dict[str, Any]:
    if isinstance(dim, int):
        return {"name": name, "size": dim}
    return {
        "name": name,
        "size": dim.size,
        "levels": _mesh_axes(dim.split),
        "segments": list(dim.segments),
    }


def _weights(layer: Operator) -> list[str]:
    names = _TABLE if layer.reads_ids else _WEIGHTS
    return [names.get(axis, axis) for axis in layer.axes.weight if axis != "g"]


def _mesh_axes(levels: Sequence[int]) -> list[str]:
    return [f"h{level + 1}" for level in levels]


def _activation(positions: Sequence[int]) -> tuple[str, ...]:
    if len(positions) == 3:
        return ("batch", "groups", "experts", "slots", "features")
    places = {0: (), 1: ("tokens",), 2: ("rows", "columns")}[len(positions)]
    return ("batch", *places, "channels")
