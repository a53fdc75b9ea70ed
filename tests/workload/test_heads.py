"""What attention of today's dense language models has besides: norms of heads."""

from __future__ import annotations

from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.execution.scale_down import scaled_down
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.plan.megatron import tensor_parallelism
from hypar_opt.workload.operators.attention import Attention
from hypar_opt.workload.operators.norm import Norm
from hypar_opt.workload.parallelism import CHOICES

TOKENS, SIZE, HEADS, KV = 8, 4, 8, 4


def block(*, normed: bool = True, norm: str = "rms", **attention: Any) -> ho.Network:
    """Return attention with its projections, as Qwen3's: its queries and keys have norms."""
    width = HEADS * SIZE

    def fc(name: str, heads: int, *inputs: str) -> dict[str, Any]:
        own = {"inputs": list(inputs)} if inputs else {}
        return {"name": name, "kind": "fc", "units": heads * SIZE, **own}

    def of_heads(name: str, read: str, heads: int) -> dict[str, Any]:
        return {"name": name, "kind": "norm", "norm": norm, "heads": heads, "inputs": [read]}

    norms = [of_heads("q_norm", "q", HEADS), of_heads("k_norm", "k", KV)] if normed else []
    reads = ["q_norm", "k_norm", "v"] if normed else ["q", "k", "v"]
    keys = {"heads": HEADS, "kv_heads": KV, "causal": True, "inputs": reads, **attention}
    layers = [
        *(fc(name, heads, "input") for name, heads in (("q", HEADS), ("k", KV), ("v", KV))),
        *norms,
        {"name": "attention", "kind": "attention", **keys},
        fc("o", HEADS),
    ]
    given = {"tokens": TOKENS, "features": width}
    return ho.Network.model_validate(
        {"schema": "hypar-opt/network/2", "name": "block", "input": given, "layer": layers}
    )


MEGATRON = ["q=output", "k=output", "v=output", "attention=heads", "o=model"]


def by_heads(network: ho.Network, levels: int) -> ho.Plan:
    """Return the plan of tensor parallelism."""
    norms = [f"{own.name}=heads" for own in network.layers if own.kind == "norm"]
    pins = {"fix": [*MEGATRON, *norms]}
    of: dict[str, Any] = {"batch": 4, "levels": levels, "reading": "executed", "choices": CHOICES}
    return ho.solve(network, **of, constraints=pins)


@pytest.mark.parametrize("norm", ["rms", "layer"])
@pytest.mark.parametrize("levels", [1, 2])
def test_of_heads_that_are_split_the_gradient_of_the_scale_alone_is_exchanged(
    norm: str, levels: int
) -> None:
    """A ring's all-reduce of n parts moves 2 (n - 1) times what is reduced."""
    plain, normed = (by_heads(block(normed=own, norm=norm), levels) for own in (False, True))
    learned = SIZE * (2 if norm == "layer" else 1)
    assert (
        normed.cost.total - plain.cost.total
        == 2 * 2 * (2**levels - 1) * learned * normed.element_bytes
    )
    assert ho.run(normed).agrees


def test_a_norm_of_heads_has_the_parameters_of_one_head() -> None:
    learned = {
        norm: [
            layer.parameters(maps)
            for layer, maps in zip(own.layers, own.maps(), strict=True)
            if layer.kind == "norm"
        ]
        for norm, own in ((norm, block(norm=norm)) for norm in ("rms", "layer"))
    }
    assert learned == {"rms": [SIZE, SIZE], "layer": [2 * SIZE, 2 * SIZE]}


def test_tensor_parallelism_splits_norms_of_heads_with_attention() -> None:
    words = tensor_parallelism(block())
    assert words == dict(own.split("=") for own in MEGATRON) | {
        "q_norm": "heads",
        "k_norm": "heads",
    }


def test_a_small_network_has_norms_of_its_own_heads() -> None:
    small = scaled_down(block(), 4, Hierarchy((2, 2))).network
    heads = {own.name: own.heads for own in small.layers if isinstance(own, Norm | Attention)}
    groups = next(own.kv_heads for own in small.layers if isinstance(own, Attention))
    assert heads["q_norm"] == heads["attention"]
    assert heads["k_norm"] == groups


def test_one_head_is_a_norm_of_all_features() -> None:
    """A default that is written out leaves the same network."""
    norms: list[dict[str, Any]] = [{}, {"heads": 1}]
    first, second = (
        ho.Network.model_validate(
            {
                "schema": "hypar-opt/network/2",
                "name": "norm",
                "input": {"tokens": 2, "features": 4},
                "layer": [{"name": "n", "kind": "norm", "norm": "rms", **keys}],
            }
        )
        for keys in norms
    )
    assert first == second
