"""The layer graph and the tensors on it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from tests.strategies.networks import networks


@given(networks(), st.integers(1, 2**31 - 1))
def test_tensors_of_a_batch(network: ho.Network, batch: int) -> None:
    one, many = (ho.Workload.of(ho.layer_graph(network), size) for size in (1, batch))
    assert many.weights == one.weights
    assert many.pooled == tuple(batch * size for size in one.pooled)
    assert many.outputs == tuple(batch * size for size in one.outputs)
    assert many.boundary_sizes == many.pooled[:-1]
    for layer in many.layers:
        assert layer.input[0] == layer.output[0] == layer.pooled[0] == batch
        assert layer.gradient == layer.weight
        assert layer.error == layer.pooled
        assert layer.input_error == layer.input


def test_the_largest_sizes_overflow_nothing() -> None:
    most = 2**31 - 1
    layers = [{"name": f"fc{n}", "kind": "fc", "units": most} for n in range(3)]
    network = ho.Network.model_validate(
        {"name": "huge", "input": {"features": most}, "layer": layers}
    )
    workload = ho.Workload.of(ho.layer_graph(network), most)
    assert workload.weights == (most**2,) * 3
    assert workload.layers[0].macs == most**3
    plan = ho.solve(network, batch=most, levels=64)
    # 2W or 2F an element a level of one group, twice as much at the next, 64 times
    assert plan.cost.baselines.data == 3 * 2 * 4 * most**2 * (2**64 - 1)


def test_any_graph_of_layers_has_shapes() -> None:
    """Two branches of one layer: more than the format describes, no more than a graph."""
    network = ho.load("sfc")
    graph = ho.layer_graph(network)
    fc1 = graph.nodes["fc1"]["maps"]
    graph.remove_edge("fc2", "fc3")
    graph.add_edge("fc1", "fc3", boundary=fc1.pooled)
    workload = ho.Workload.of(graph, 2)
    edges = [
        (workload.layers[b.source].name, workload.layers[b.target].name)
        for b in workload.boundaries
    ]
    assert sorted(edges) == [("fc1", "fc2"), ("fc1", "fc3"), ("fc3", "fc4")]
    assert workload.boundary_sizes == (2 * 8192,) * 3


def test_a_learned_table_is_no_embedding_of_as_many_words() -> None:
    """Tokens split its rows; the words of an embedding are whole in each part of tokens."""
    words = {"name": "words", "kind": "embedding", "inputs": ["input"], "features": 4}
    rows = {"name": "rows", "kind": "embedding", "inputs": [], "vocabulary": 9, "features": 4}
    for order in ([words, rows], [rows, words]):
        layers = [*order, {"name": "sum", "kind": "add", "inputs": ["words", "rows"]}]
        network = ho.Network.model_validate(
            {"schema": "hypar-opt/network/2", "name": "n", "input": {"tokens": 9, "vocabulary": 9}}
            | {"layer": layers}
        )
        workload = ho.Workload.of(ho.layer_graph(network), 2)
        splits = {layer.name: set(layer.operator.splits) for layer in workload.layers}
        assert splits["words"] - splits["rows"] == {"output"}
