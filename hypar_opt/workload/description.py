"""A network's layers with their sizes, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hypar_opt.results import Column, Columns
from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network


DESCRIBED = Columns(
    *(Column(name, type=str) for name in ("name", "source", "digest")),
    Column("batch", type=int),
    Column("layers", type=list[Mapping[str, Any]]),
    Column("total", type=Mapping[str, int]),
)
"""The types of a description."""


def describe(network: Network, batch: int) -> dict[str, Any]:
    """Return the shapes and sizes of a network's tensors, for a batch, as plain data."""
    workload = workload_of(network, batch)
    first, names = workload.shared, network.source_names
    layers = [
        {
            "name": layer.name,
            "kind": layer.kind,
            "input": layer.input,
            "weight": layer.weight,
            "output": layer.output,
            "pooled": layer.pooled,
            "weights": weights,
            "feature_map": elements,
            "macs": layer.macs,
            "inputs": [names[source] for source in read],
        }
        for layer, weights, elements, read in zip(
            workload.layers,
            workload.weights[first:],
            workload.pooled[first:],
            network.sources,
            strict=True,
        )
    ]
    parameters = (
        layer.parameters(maps) - (layer.weights(maps) if layer.shares_weights_with else 0)
        for layer, maps in zip(network.layers, network.maps(), strict=True)
    )
    total = {
        "weights": sum(workload.stored),
        "feature_map": sum(workload.pooled),
        "macs": sum(layer.macs for layer in workload.layers),
        "parameters": sum(parameters),
    }
    head = {"name": network.name, "source": network.source, "digest": network.digest()}
    return {**head, "batch": workload.batch, "layers": layers, "total": total}
