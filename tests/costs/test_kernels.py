"""The time of kernels: a transformer's block by hand, and arrays that do not have them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.costs.kinds import kinds_of_nodes
from hypar_opt.documents.document import validate
from hypar_opt.errors import InputError
from hypar_opt.hardware.arrays import load
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.plan.strategies import strategy_pins
from hypar_opt.proofs.certificate import check_price
from hypar_opt.proofs.check.rows import price_of
from hypar_opt.sharding.passes import INFERENCE
from hypar_opt.step.work import WorkRules
from hypar_opt.studies.simulation import per_second
from hypar_opt.workload.tensors import workload_of
from tests.choices import WITH_TOKENS

PEAK, DRAM, LAUNCH = 312e12, 2e12, 5e-6


def one_device(**accelerator: Any) -> ho.Array:
    """A node of one accelerator and one beside it, so that there is a level."""
    return validate(
        ho.Array,
        {
            "name": "pair",
            "element_bytes": 2,
            "accelerator": {
                "units": 1,
                "operations": "312 TFLOPS",
                "dram_bandwidth": "2 TB/s",
                "dram_capacity": "80 GB",
                **accelerator,
            },
            "topology": {
                "kind": "nodes",
                "nodes": 1,
                "per_node": 2,
                "link": {"bandwidth": "300 GB/s"},
                "fabric": {"bandwidth": "1 GB/s"},
            },
        },
    )


KERNELS = {"gemm": 0.8, "elementwise": 0.5, "attention": "unfused", "launch": "5 us"}


@pytest.mark.parametrize("fused", [False, True])
def test_a_block_takes_its_kernels_one_after_the_other(fused: bool) -> None:
    """Megatron-LM's kernels, in bytes of an element in half precision."""
    layers, h, heads, s, b = 3, 512, 8, 256, 4
    n, d = b * s, h // heads

    def gemm(m: int, k: int, o: int, batch: int = 1) -> float:
        moved = 2 * batch * (m * k + k * o + m * o)
        return max(2 * batch * m * k * o / (0.8 * PEAK), moved / (0.5 * DRAM)) + LAUNCH

    def kernel(count: float) -> float:
        return count / (0.5 * DRAM) + LAUNCH

    products = gemm(n, h, 3 * h) + gemm(n, h, h) + gemm(n, h, 4 * h) + gemm(n, 4 * h, h)
    scores = b * heads * s * s
    if fused:
        # Two products, of which the causal mask hides half; or queries, keys, values and results.
        core, moved = 2 * scores * d / (0.4 * PEAK), 4 * n * h * 2 / (0.5 * DRAM)
        passes = [max(products * core, moved) for products in (1, 1.5, 1)]
        attention = sum(passes) + 2 * LAUNCH
    else:
        # Each pass has two products of the scores, which DRAM bounds here.
        inner = 2 * (4 * n * h + 2 * scores) / (0.5 * DRAM)
        assert inner > 2 * 2 * scores * d / (0.8 * PEAK)
        rows, once = 4 * n * h / (0.5 * DRAM), 1 / (0.5 * DRAM)
        attention = 3 * (inner + rows) + (4 + 5 + 6 + 5) * scores * once + (5 + 5 + 3) * LAUNCH
    norms = 2 * (kernel(4 * n * h) + kernel(7 * n * h))
    residuals = 2 * (kernel(7 * n * h) + kernel(8 * n * h))
    gelu = kernel(4 * 4 * n * h) + kernel(6 * 4 * n * h)
    expected = 3 * products + attention + norms + residuals + gelu

    accelerator = KERNELS | ({"attention": "fused", "flash": 0.4} if fused else {})
    steps = [
        ho.simulate(
            ho.solve(
                ho.gpt(layers=count, hidden=h, heads=heads, tokens=s, vocabulary=99, dropout=True),
                array=one_device(**accelerator),
                batch=2 * b,
                solver="data",
            )
        ).compute
        for count in (layers, layers + 1)
    ]
    assert steps[1] - steps[0] == pytest.approx(expected, rel=1e-9)


def test_the_update_reads_and_writes_every_weight_once_a_step() -> None:
    network = ho.gpt(layers=2, hidden=64, heads=4, tokens=16, vocabulary=99)
    seconds = []
    for more in ({}, {"update": "44 B"}):
        plan = ho.solve(network, array=one_device(**KERNELS, **more), batch=8, solver="data")
        seconds.append(ho.simulate(plan, micro_batches=4, shard="none").seconds)
    weights = sum(ho.Workload.of_network(network, 1).stored)
    assert seconds[1] - seconds[0] == pytest.approx(44 * weights / (0.5 * DRAM))


def test_an_optimizer_that_is_stated_takes_the_time_that_an_array_has_for_it() -> None:
    """As an array whose every update takes as long; another optimizer, and none, takes `update`."""
    network = ho.gpt(layers=1, hidden=64, heads=4, tokens=16, vocabulary=99)
    more = {"update": "4 B", "updates": {"adam": "44 B"}}

    def total(optimizer: str, **keys: Any) -> Any:
        asked: dict[str, Any] = {"array": one_device(**KERNELS, **keys), "batch": 8}
        plan = ho.solve(network, **asked, constraints={"optimizer": optimizer})
        check_price(plan)
        taken = plan.cost.total / per_second(plan)
        assert ho.simulate(plan).closed_form == pytest.approx(float(taken), rel=1e-6)
        return taken

    assert total("adam", **more) == total("adam", update="44 B") > total("momentum", **more)
    for other in ("momentum", "sgd"):
        assert total(other, **more) == total(other, update="4 B")


IMAGE = {"channels": 64, "height": 8, "width": 8}
CONV = {"name": "conv", "kind": "conv", "filters": 64, "kernel": 1}


def test_a_convolution_takes_its_own_part_of_the_peak_and_a_product_does_not() -> None:
    """A kernel of one pixel is a convolution still; without the key both are at `gemm`."""

    def seconds(*layers: dict[str, Any], **keys: Any) -> float:
        described = {"name": "drawn", "input": IMAGE, "layer": [*layers]}
        # A DRAM that no product waits for.
        keys |= {"gemm": 0.8, "dram_bandwidth": "1000 TB/s"}
        network = ho.Network.model_validate(described)
        plan = ho.solve(network, array=one_device(**keys), batch=8)
        assert price_of(plan) == plan.cost.total  # by the reference
        return float(plan.cost.total / per_second(plan))

    product = {"name": "fc", "kind": "fc", "units": 512}
    for layer, of_convs in ((CONV, True), (CONV | {"kernel": 3}, True), (product, False)):
        plain, slow = seconds(layer), seconds(layer, conv=0.2)
        assert slow / plain == pytest.approx(4 if of_convs else 1, rel=1e-3)
        assert seconds(layer, conv=0.8) == plain


@pytest.mark.parametrize(
    "key", ["conv", "elementwise", "flash", "launch", "host", "update", "attention"]
)
def test_a_key_of_kernels_needs_gemm(key: str) -> None:
    value = {"launch": "1 us", "host": "1 us", "update": "44 B", "attention": "fused"}.get(key, 0.5)
    with pytest.raises(InputError, match=f"{key}: goes with gemm, got utilisation"):
        one_device(utilisation=0.5, **{key: value})


def test_an_accelerator_states_one_of_three_rates() -> None:
    with pytest.raises(InputError, match="should have one of utilisation, pe_array and gemm"):
        one_device(utilisation=0.5, gemm=0.5)
    with pytest.raises(InputError, match="got none"):
        one_device()
    with pytest.raises(InputError, match="mac_count: should be 'output' with gemm"):
        one_device(gemm=0.5, mac_count="input")


def test_layers_of_the_same_tensors_and_other_kernels_are_charged_apart() -> None:
    """A gate is activated, and what it is multiplied by is not: LLaMA's were charged alike."""
    document = ho.load("llama-7b").description()
    document["block"][0]["repeat"] = 4
    network = ho.Network.model_validate(document)
    workload = Instance(network, problem_of(array=one_device(**KERNELS), batch=2)).workload
    kinds = kinds_of_nodes(workload).numbers
    at = {node.name: kind for node, kind in zip(workload.nodes, kinds.tolist(), strict=True)}
    assert at["decoder.0.gate"] != at["decoder.0.up"]
    assert at["decoder.0.gate"] == at["decoder.3.gate"]
    plan = ho.solve(network, array=one_device(**KERNELS), batch=2)
    assert plan.solver.status == "optimal"


def attending(tokens: int, **keys: Any) -> ho.Network:
    """Return one layer of causal attention, with its projections."""
    layers = [
        {"name": "qkv", "kind": "fc", "units": 768},
        {"name": "attention", "kind": "attention", "heads": 8, "causal": True, **keys},
        {"name": "proj", "kind": "fc", "units": 256},
    ]
    described = {"schema": "hypar-opt/network/2", "name": "attending", "layer": layers}
    return ho.Network.model_validate({**described, "input": {"tokens": tokens, "features": 256}})


def seen_by(first: int, end: int, window: int) -> Fraction:
    """Return the scores that some tokens see, one by one: of its own, each sees half."""
    return sum(
        (min(Fraction(2 * t + 1, 2), Fraction(window)) for t in range(first, end)), Fraction()
    )


@pytest.mark.parametrize("window", [1, 100, 255, 256, 1000])
def test_fused_kernels_compute_the_scores_of_a_window(window: int) -> None:
    """And unfused ones all scores, as under a causal mask."""

    def computing(**keys: Any) -> list[float]:
        # A DRAM that no product waits for.
        fast = {"gemm": 0.8, "dram_bandwidth": "1000000 TB/s"}
        return [
            ho.simulate(
                ho.solve(network, array=one_device(**fast, attention=how), batch=8, solver="data")
            ).compute
            for how in ("fused", "unfused")
            for network in [attending(256, **keys)]
        ]

    (fused, unfused), (whole, same) = computing(window=window), computing()
    per_score = 3.5 * 2 * 4 * 8 * 64 / (0.8 * PEAK)  # of 4 sequences and 8 heads of 32 features
    less = float(seen_by(0, 256, 256) - seen_by(0, 256, window))
    assert whole - fused == pytest.approx(less * per_score, rel=1e-5)
    assert unfused == same


def test_a_soft_cap_is_an_activation_of_the_scores_of_unfused_kernels() -> None:
    """It reads and writes them, and backward reads an error, too; fused kernels have it on chip."""
    b, heads, s = 4, 8, 256

    def step(how: str, **keys: Any) -> Any:
        array = one_device(**KERNELS | {"attention": how})
        return ho.simulate(ho.solve(attending(s, **keys), array=array, batch=2 * b, solver="data"))

    for how, quarters, launches in (("unfused", 8 + 12, 2), ("fused", 0, 0)):
        more = step(how, softcap=50.0).compute - step(how).compute
        moved = quarters / 4 * 2 * b * heads * s * s / (0.5 * DRAM)
        assert more == pytest.approx(moved + launches * LAUNCH, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(
    ("loss", "fused", "quarters", "launches"),
    [
        ("softmax", "eager", 8 + 12, 2),
        ("softmax", "in-place", 8 + 12, 2),
        ("softmax", "fused", 0, 0),
        ("none", "eager", 8 + 12, 2),
    ],
)
def test_a_soft_cap_is_an_activation_of_logits_unless_the_loss_is_fused(
    loss: str, fused: str, quarters: int, launches: int
) -> None:
    def compute(**keys: Any) -> float:
        layers = [
            {"name": "head", "kind": "fc", "units": 512},
            {"name": "loss", "kind": "output", "loss": loss, **keys},
        ]
        described = {"schema": "hypar-opt/network/2", "name": "head", "layer": layers}
        network = ho.Network.model_validate({**described, "input": {"tokens": 64, "features": 32}})
        array = one_device(**KERNELS, loss=fused)
        plan = ho.solve(network, array=array, batch=8, solver="data")
        check_price(plan)
        return float(ho.simulate(plan).compute)

    more = compute(softcap=30.0) - compute()
    moved = quarters / 4 * 2 * 4 * 64 * 512 / (0.5 * DRAM)
    assert more == pytest.approx(moved + launches * LAUNCH, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("window", [None, 1, 96, 500, 520, 1031])
@pytest.mark.parametrize("tokens", [1024, 1032])
def test_the_part_of_a_sequence_that_sees_most_counts(tokens: int, window: int | None) -> None:
    """Of 1,024 tokens sixteen chunks are equal, so that each part has one of either end.

    Without a window the last of eight parts in order sees 15/8 of the mean.
    """
    network = attending(tokens, **({"window": window} if window else {}))
    chunk = tokens // 16 if tokens == 1024 else tokens // 8
    seen = [seen_by(first, first + chunk, window or tokens) for first in range(0, tokens, chunk)]
    each = [one + seen[-1 - n] for n, one in enumerate(seen[:8])] if tokens == 1024 else seen
    longest = 8 * max(each) / sum(seen)
    if window is None:
        assert longest == (1 if tokens == 1024 else Fraction(15, 8))
    fix = strategy_pins(network, (2, 2, 2), "context", 8)
    plan = ho.solve(
        network,
        batch=4,
        array="h100-8",
        choices=WITH_TOKENS,
        search="joint",
        constraints={"fix": fix},
        micro_batches=1,
        recompute="none",
        shard="none",
        overlap="none",
    )
    assert price_of(plan) == plan.cost.total
    workload = workload_of(network, 4, plan.choices, shared_tensors=True)
    accelerator = load("h100-8").accelerator
    rules = WorkRules(
        plan.hierarchy, by_largest_shard=True, skips_masked=accelerator.attention != "unfused"
    )
    position = [node.kind for node in workload.nodes].index("attention")
    nodes = np.array([position])
    states = [np.array(row)[None, nodes] for row in rows_of_plan(plan, workload)]
    macs = workload.nodes[position].macs
    (kernel,) = rules.kernels(workload, nodes, states, INFERENCE)
    assert kernel.macs.tolist() == [math.ceil(macs * longest)]
