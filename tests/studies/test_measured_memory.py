"""The memory of published training runs, counted: what their devices held, and that they fit.

Settings and measured bytes are facts of the sources named at each table. Nothing is fitted to them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from statistics import mean
from typing import Any, NamedTuple

import pytest

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.hardware.arrays import find_array
from hypar_opt.plan.strategies import strategy_pins
from hypar_opt.simulator.device_memory import DeviceMemory
from hypar_opt.workload.operators.axes import REPLICATED
from hypar_opt.workload.parallelism import SHARDED
from tests.slow import slow_after

CAPACITY = {80: 85 * 10**9, 40: 42_300_000_000}
"""Bytes of a device that frameworks see, by the gigabytes that it is sold as."""

RESERVE = {80: 5 * 10**9, 40: 3_500_000_000}


class Run(NamedTuple):
    """A data-parallel or tensor-parallel run of a transformer, in bfloat16 with Adam."""

    layers: int
    hidden: int
    heads: int
    seq: int
    vocab: int
    mbs: int
    dp: int
    tp: int = 1
    zero: int = 0
    recompute: str = "none"
    loss: str = "in-place"
    attention: str = "fused"
    sequence_parallel: bool = False
    dropout: bool = False


def held(run: Run, network: ho.Network | None = None, **training: Any) -> DeviceMemory:
    """What a device holds in a run, by Megatron-LM's degrees."""
    if network is None:
        sizes: dict[str, Any] = {"layers": run.layers, "hidden": run.hidden, "heads": run.heads}
        own: dict[str, Any] = {"tokens": run.seq, "vocabulary": run.vocab, "dropout": run.dropout}
        network = ho.gpt(**sizes, **own)
    sizes_of_levels = (run.dp, run.tp) if run.dp > 1 and run.tp > 1 else (run.dp * run.tp,)
    pins = list(strategy_pins(network, sizes_of_levels, "megatron", run.tp))
    if run.tp > 1 and not run.sequence_parallel:
        # Norms and residuals are whole on each accelerator of a tensor-parallel group.
        last = len(sizes_of_levels)
        pins += {
            f"{re.sub(r'[.][0-9]+[.]', '.*.', layer.name)}@H{last}={REPLICATED.word}": None
            for layer in network.layers
            if REPLICATED in layer.choices.values()
        }
    plan = ho.solve(
        network,
        hierarchy=sizes_of_levels,
        whole_levels=True,
        batch=run.mbs * run.dp,
        element_bytes=2,
        reading="executed",
        choices=("data", "model", "output"),
        constraints={"fix": pins, "runnable": False},
    )
    described = find_array("h100-8").description()
    accelerator = described["accelerator"] | {"loss": run.loss, "attention": run.attention}
    if run.attention == "unfused":
        del accelerator["flash"]
    per_node = plan.accelerators // sizes_of_levels[0]
    levels = {"kind": "nodes", "nodes": sizes_of_levels[0], "per_node": per_node}
    topology = described["topology"] | levels
    own_array = {**described, "accelerator": accelerator, "topology": topology}
    own_array["whole_levels"] = True
    return ho.memory(
        plan,
        validate(ho.Array, own_array),
        optimizer="adam",
        recompute=run.recompute,
        shard=SHARDED[run.zero],
        exact_shares=True,
        **training,
    )


def llama(
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    ffn: int,
    seq: int,
    vocab: int,
    **head: Any,
) -> ho.Network:
    """A LLaMA of any sizes, whose queries, keys and values, gate and up are layers apart."""
    width = hidden // heads * kv_heads
    block = [
        {"name": "norm1", "kind": "norm", "norm": "rms"},
        {"name": "query", "kind": "fc", "units": hidden},
        {"name": "key", "kind": "fc", "inputs": ["norm1"], "units": width},
        {"name": "value", "kind": "fc", "inputs": ["norm1"], "units": width},
        {"name": "attention", "kind": "attention", "inputs": ["query", "key", "value"]}
        | {"heads": heads, "kv_heads": kv_heads, "causal": True},
        {"name": "proj", "kind": "fc", "units": hidden},
        {"name": "add1", "kind": "add", "inputs": ["input", "proj"]},
        {"name": "norm2", "kind": "norm", "norm": "rms"},
        {"name": "gate", "kind": "fc", "units": ffn, "activation": "silu"},
        {"name": "up", "kind": "fc", "inputs": ["norm2"], "units": ffn},
        {"name": "gated", "kind": "mul", "inputs": ["gate", "up"]},
        {"name": "down", "kind": "fc", "units": hidden},
        {"name": "add2", "kind": "add", "inputs": ["add1", "down"]},
    ]
    return ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": "LLaMA",
            "input": {"tokens": seq, "vocabulary": vocab},
            "layer": [
                {"name": "token", "kind": "embedding", "features": hidden},
                {"name": "norm", "kind": "norm", "inputs": ["decoder"], "norm": "rms"},
                {"name": "head", "kind": "fc", "units": vocab, **head},
                {"name": "loss", "kind": "output"},
            ],
            "block": [{"name": "decoder", "repeat": layers, "inputs": ["token"], "layer": block}],
        }
    )


def _small(vocab: int, dp: int, tp: int, zero: int, **more: Any) -> Run:
    return Run(12, 512, 8, 1024, vocab, 4, dp, tp, zero, dropout=True, **more)


UNFUSED, FULL = {"attention": "unfused"}, {"recompute": "full"}
MEGATRON: Mapping[str, tuple[Run, float]] = {
    "te_tp1_pp1_dist_optimizer_fim_dataset": (_small(50304, 8, 1, 1, **UNFUSED), 4.7024),
    "te_tp1_pp1_uniform_full_recompute": (_small(50304, 8, 1, 0, **UNFUSED, **FULL), 2.5341),
    "te_tp4_pp1_dist_optimizer": (_small(50688, 2, 4, 1, **UNFUSED), 1.5434),
    "tp1_pp1_dist_optimizer_overlap": (_small(50304, 8, 1, 1, **UNFUSED), 4.736),
    "te_tp1_pp1_resume_dist_optimizer": (_small(50304, 8, 1, 1), 2.7117),
    "te_tp1_pp1_resume_uniform_full_recompute": (_small(50304, 8, 1, 0, **FULL), 2.5362),
    "te_tp2_pp1_multi_dist_optimizer_instances": (_small(50432, 4, 2, 1), 1.6775),
    "te_tp2_zp_z3_resume_fsdp": (_small(50432, 4, 2, 3), 1.4631),
    "te_tp4_pp1_resume_dist_optimizer": (_small(50688, 2, 4, 1), 1.0358),
    "te_tp4_pp1_resume_qk_layernorm": (_small(50688, 2, 4, 0), 1.1611),
}
"""Runs of Megatron-LM's own tests and the largest gigabytes that PyTorch allocated.

Source: NVIDIA/Megatron-LM at d98e8a64, tests/functional_tests/test_cases/gpt, the
golden_values_dev_dgx_*.json beside each model_config.yaml: dense, bfloat16, no stages.
"""


def test_megatrons_runs_hold_what_they_were_measured_to() -> None:
    """Within 8 % in the mean, and none is counted more than 20 % above what it took."""
    errors = [held(run).tensors / (gigabytes * 1e9) - 1 for run, gigabytes in MEGATRON.values()]
    assert mean(map(abs, errors)) < 0.08
    assert max(errors) < 0.2


SIMUMAX = {
    (12, 8192, 64, 8, 28672): {2: 65.16, 4: 41.95, 8: 30.38},
    (4, 16384, 128, 16, 53248): {2: 87.61, 4: 56.79, 8: 41.41},
}
"""LLaMA 3 of 70B and 405B, cut to a few layers, on eight B200: gigabytes allocated at most, by
degrees of tensor parallelism, with sequence parallelism and a distributed optimizer.

Source: MooreThreads/SimuMax at 4dcaae5, docs/b200/b200_release_v1.2_summary.json.
"""


def test_shards_of_what_several_layers_read_are_what_llamas_were_measured_to_hold() -> None:
    """Within 3 % in the mean, 4.3 at most; of 70B, within a half."""
    errors = {}
    for (layers, hidden, heads, kv_heads, ffn), measured in SIMUMAX.items():
        for tp, gigabytes in measured.items():
            vocab = -(-128257 // (128 * tp)) * 128 * tp
            network = llama(layers, hidden, heads, kv_heads, ffn, 4096, vocab)
            run = Run(layers, hidden, heads, 4096, vocab, 1, 8 // tp, tp, 1)
            run = run._replace(sequence_parallel=True)
            again, once = (held(run, network, gather=word).tensors for word in ("again", "once"))
            assert again < once
            errors[layers, tp] = again / (gigabytes * 1e9) - 1
    assert mean(map(abs, errors.values())) < 0.03
    assert max(map(abs, errors.values())) < 0.045
    assert max(abs(errors[12, tp]) for tp in (2, 4, 8)) < 0.006


LARGEST = {2: 3, 4: 9, 8: 18, 16: 40, 32: 90}
"""The largest micro-batch of a LLaMA of 3.57B that ran in 80 GB, by degrees of tensor parallelism.

Source: huggingface/nanotron, scripts/scaling_benchmarks.py; the ultrascale playbook, 2025.
"""


@pytest.mark.parametrize("tp", LARGEST)
def test_the_largest_micro_batches_that_ran_fit(tp: int) -> None:
    network = llama(28, 3072, 32, 32, 8192, 4096, 131072, tied="token")
    run = Run(28, 3072, 32, 4096, 131072, LARGEST[tp], 1, tp, sequence_parallel=True)
    assert held(run, network, gather="again").tensors < CAPACITY[80] - RESERVE[80]
    if tp == 32:  # whole on each accelerator it would take twice what there is
        assert held(run, network, gather="once").tensors > 2 * CAPACITY[80]


FITTED = {
    "Pythia 70M": (40, Run(6, 512, 8, 2048, 50432, 32, 32, 1, 1, "full")),
    "Pythia 160M": (40, Run(12, 768, 12, 2048, 50432, 32, 32, 1, 1, "full")),
    "Pythia 410M": (40, Run(24, 1024, 16, 2048, 50432, 32, 32, 1, 1, "full")),
    "Pythia 2.8B": (40, Run(32, 2560, 32, 2048, 50432, 16, 64, 1, 1, "full")),
    "llm.c 350M": (80, Run(24, 1024, 16, 1024, 50304, 64, 8, 1, 1, loss="fused")),
}
"""Runs on A100, and what these are sold as.

Source: EleutherAI/pythia, models/*/pythia-*.yml (GPT-NeoX, whose loss is Megatron-LM's);
karpathy/llm.c, scripts/run_gpt2_350M.sh.
"""


@pytest.mark.parametrize("name", FITTED)
def test_runs_that_fitted_their_devices_are_counted_to_fit(name: str) -> None:
    sold, run = FITTED[name]
    assert held(run).tensors < CAPACITY[sold] - RESERVE[sold]


FSDP = [
    (80, 48, 7168, 56, 8192, 1, 8, "full", 3),
    (80, 48, 7168, 56, 2048, 3, 8, "full", 3),
    (80, 48, 7168, 56, 512, 12, 8, "full", 3),
    (40, 40, 5120, 40, 4096, 2, 8, "full", 3),
    (40, 40, 5120, 40, 1024, 8, 8, "full", 3),
    (40, 32, 2560, 20, 2048, 6, 32, "none", 3),
    (40, 32, 2560, 20, 2048, 5, 8, "none", 3),
    (40, 32, 2560, 20, 512, 20, 8, "none", 3),
    (40, 24, 2048, 16, 2048, 10, 64, "none", 3),
    (40, 32, 2560, 20, 2048, 6, 128, "none", 3),
    (80, 32, 4096, 32, 2048, 6, 8, "none", 3),
    (80, 24, 2048, 16, 2048, 20, 32, "none", 3),
    (40, 24, 1536, 12, 8192, 3, 8, "none", 3),
    (40, 24, 1536, 12, 2048, 12, 8, "none", 3),
    (40, 24, 1536, 12, 512, 48, 8, "none", 3),
    (40, 24, 1536, 12, 2048, 12, 32, "none", 3),
    (40, 24, 1024, 16, 2048, 18, 16, "none", 3),
    (40, 24, 1024, 16, 2048, 18, 64, "none", 3),
    (40, 24, 1536, 12, 2048, 12, 128, "none", 3),
    (80, 40, 5120, 40, 16384, 3, 8, "full", 3),
    (80, 24, 1536, 12, 16384, 3, 8, "none", 3),
    (80, 24, 1536, 12, 4096, 12, 8, "none", 3),
    (80, 24, 1536, 12, 1024, 48, 8, "none", 3),
    (40, 24, 2048, 16, 16384, 1, 8, "none", 3),
    (80, 32, 2560, 20, 4096, 5, 8, "none", 3),
    (80, 32, 2560, 20, 1024, 20, 8, "none", 3),
    (40, 24, 2048, 16, 4096, 4, 8, "none", 3),
    (40, 24, 2048, 16, 1024, 16, 8, "none", 3),
    (80, 24, 1536, 12, 2048, 24, 16, "none", 3),
    (40, 32, 2560, 20, 8192, 1, 8, "none", 3),
    (40, 40, 5120, 40, 2048, 10, 16, "full", 3),
    (40, 24, 2048, 16, 2048, 8, 16, "none", 3),
    (80, 40, 5120, 40, 2048, 2, 8, "none", 3),
    (40, 24, 1024, 16, 16384, 2, 8, "none", 3),
    (40, 24, 1024, 16, 4096, 8, 8, "none", 3),
    (40, 24, 1024, 16, 1024, 32, 8, "none", 3),
    (80, 40, 5120, 40, 4096, 10, 8, "full", 3),
    (80, 24, 2048, 16, 16384, 2, 8, "none", 3),
    (80, 40, 5120, 40, 1024, 40, 8, "full", 3),
    (40, 32, 4096, 32, 4096, 6, 8, "full", 3),
    (40, 32, 4096, 32, 1024, 24, 8, "full", 3),
    (40, 80, 8192, 64, 2048, 2, 64, "full", 3),
    (80, 24, 1024, 16, 65536, 1, 8, "none", 3),
    (40, 48, 7168, 56, 2048, 4, 32, "full", 3),
    (80, 24, 1024, 16, 16384, 4, 8, "none", 3),
    (80, 24, 1024, 16, 4096, 16, 8, "none", 3),
    (80, 24, 1024, 16, 1024, 64, 8, "none", 3),
    (80, 32, 4096, 32, 2048, 6, 256, "none", 3),
    (40, 40, 5120, 40, 2048, 16, 64, "full", 3),
    (80, 40, 5120, 40, 32768, 1, 8, "full", 3),
    (80, 32, 2560, 20, 16384, 1, 8, "none", 3),
    (80, 32, 2560, 20, 2048, 8, 128, "none", 2),
    (80, 24, 2048, 16, 4096, 7, 8, "none", 3),
    (80, 24, 2048, 16, 2048, 14, 8, "none", 3),
    (80, 24, 2048, 16, 512, 56, 8, "none", 3),
    (80, 32, 2560, 20, 2048, 8, 512, "none", 2),
    (80, 80, 8192, 64, 2048, 8, 64, "full", 3),
    (40, 32, 4096, 32, 16384, 1, 8, "full", 3),
    (80, 48, 7168, 56, 2048, 14, 32, "full", 3),
    (40, 32, 4096, 32, 2048, 16, 16, "full", 3),
    (80, 32, 4096, 32, 65536, 1, 8, "full", 3),
    (80, 32, 4096, 32, 32768, 2, 8, "full", 3),
    (80, 32, 4096, 32, 8192, 8, 8, "full", 3),
    (80, 24, 2048, 16, 2048, 12, 256, "none", 2),
    (40, 32, 4096, 32, 2048, 18, 64, "full", 3),
    (80, 80, 8192, 64, 2048, 8, 128, "full", 3),
    (80, 40, 5120, 40, 2048, 2, 32, "none", 3),
    (80, 32, 2560, 20, 2048, 6, 32, "none", 3),
    (40, 12, 768, 12, 2048, 26, 8, "none", 3),
    (40, 12, 768, 12, 512, 104, 8, "none", 3),
    (40, 12, 768, 12, 2048, 26, 32, "none", 3),
    (40, 12, 768, 12, 2048, 26, 128, "none", 3),
    (80, 24, 2048, 16, 1024, 18, 8, "none", 3),
    (40, 32, 2560, 20, 32768, 1, 8, "full", 3),
    (80, 80, 8192, 64, 2048, 8, 512, "full", 3),
    (40, 12, 768, 12, 8192, 5, 8, "none", 3),
    (80, 32, 2560, 20, 65536, 1, 8, "full", 3),
    (80, 40, 5120, 40, 2048, 16, 128, "full", 3),
    (80, 40, 5120, 40, 2048, 16, 512, "full", 3),
    (40, 12, 768, 12, 32768, 1, 8, "none", 3),
    (80, 12, 768, 12, 65536, 1, 8, "none", 3),
    (80, 12, 768, 12, 16384, 4, 8, "none", 3),
    (80, 12, 768, 12, 4096, 16, 8, "none", 3),
    (80, 12, 768, 12, 2048, 32, 8, "none", 3),
    (80, 12, 768, 12, 512, 128, 8, "none", 3),
    (80, 48, 7168, 56, 2048, 8, 256, "full", 3),
    (80, 24, 2048, 16, 65536, 1, 8, "full", 3),
    (40, 24, 1536, 12, 32768, 1, 8, "full", 3),
    (80, 24, 1536, 12, 65536, 1, 8, "full", 3),
]
"""Runs of llm-foundry with FSDP, whose loss is fused: gigabytes that the device is sold as, layers,
hidden, heads, tokens, sequences of a micro-batch, devices, recomputation and the stage of ZeRO; the
fullest first.

Source: mosaicml/llm-foundry, scripts/train/benchmarking/README.md.
"""


NAMES = "sold", "layers", "hidden", "heads", "seq", "mbs", "dp", "recompute", "zero"


@pytest.mark.parametrize(NAMES, slow_after(8, FSDP))
def test_all_runs_of_llm_foundry_fit(
    sold: int,
    layers: int,
    hidden: int,
    heads: int,
    seq: int,
    mbs: int,
    dp: int,
    recompute: str,
    zero: int,
) -> None:
    run = Run(layers, hidden, heads, seq, 50368, mbs, dp, 1, zero, recompute, "fused")
    assert held(run).tensors < CAPACITY[sold] - RESERVE[sold]
