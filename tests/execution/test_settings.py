"""Settings of frameworks: legal keys, and what a framework reads from them is the configuration."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import hypar_opt as ho
from hypar_opt.errors import HyparError
from hypar_opt.execution.settings import FRAMEWORKS, TrainingRun, framework
from hypar_opt.execution.settings.framework import FULL, plain
from hypar_opt.models import find_network
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.configuration import Configuration, shardings_of
from hypar_opt.planning.priced import plan_of_configuration
from hypar_opt.workload.parallelism import RECOMPUTED
from tests import slow
from tests.cli.shell import command
from tests.execution.settings_keys import KEYS
from tests.execution.settings_readers import PARSERS, READERS, Values, framework_values

NAMES = ("LLaMA 2 70B", 'a "quoted" name', "it's \\ back", "two\nlines # $(x) `y`", '"""', "模型")
FACTORS = (1, 1, 1, 1, 2, 2, 3, 4, 8)


def drawn(random: random.Random) -> tuple[Configuration, TrainingRun]:
    """Return a configuration of any factors, words and sizes, and what it trains."""
    replicas, shards, cp, tp = (random.choice(FACTORS) for _ in range(4))
    experts = random.choice((1, 1, 8, 24))
    ep = random.choice([n for n in (1, cp, cp * shards, 2, shards) if (shards * cp) % n == 0])
    layers = random.choice((1, 4, 80))
    blocks = random.choice((None, None, None, 0, 1, layers // 2, layers))
    micro_batches = random.choice((1, 1, 2, 6))
    tokens = random.choice((4096, 4096, 9216, 197)) * random.choice((1, cp * tp))
    configuration = Configuration(
        *(replicas, shards, cp, tp, ep, random.random() < 0.5, micro_batches),
        *(random.choice((*RECOMPUTED, FULL)), blocks),
    )
    some = (*shardings_of(configuration), "state", "gradients")
    configuration = configuration._replace(zero=random.choice(some))
    devices = configuration.devices
    run = TrainingRun(
        batch=replicas * shards * micro_batches * random.choice((1, 1, 2, 3)),
        tokens=tokens,
        devices=devices,
        layers=layers,
        per_node=random.choice([n for n in (1, 4, 8, devices) if devices % n == 0]),
        experts=experts,
        element_bytes=random.choice((2, 2, 2, 2, 4, 1)),
        images=random.random() < 0.1,
        name=random.choice(NAMES),
    )
    return configuration, run


class Case(NamedTuple):
    """A configuration, and its settings for a framework."""

    configuration: Configuration
    run: TrainingRun
    lacks: list[str]
    text: str
    values: Values


@cache
def cases(name: str) -> list[Case]:
    generator = random.Random(43)
    drawn_cases = []
    for _ in range(4000 if slow.ALL else 400):
        pair = drawn(generator)
        text = FRAMEWORKS[name].settings(*pair)
        drawn_cases.append(Case(*pair, FRAMEWORKS[name].lacks(*pair), text, PARSERS[name](text)))
    return drawn_cases


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_key_is_the_frameworks_and_every_value_legal(name: str) -> None:
    seen: Counter[str] = Counter()
    for case in cases(name):
        for key, value in framework_values(case.values).items():
            legal = KEYS[name][key]
            if isinstance(legal, tuple):
                assert value in legal, (key, value)
            else:
                assert isinstance(value, (int, float) if legal is float else legal), (key, value)
                if legal is int:
                    assert int(str(value)) >= 1, key
                    assert not isinstance(value, bool), key
            seen[key] += 1
    # So that a key of the table that nothing writes is noticed.
    assert KEYS[name].keys() - seen.keys() <= {"ici_tensor_parallelism", "dcn_tensor_parallelism"}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_reads_the_configuration_where_it_lacks_nothing(name: str) -> None:
    """So that nothing is lost or said otherwise: degrees, batch, ZeRO, recomputation, tokens."""
    read_back = 0
    for configuration, run, left_out, _, values in cases(name):
        if left_out:
            continue
        expected = plain(configuration, run)
        trained = READERS[name](values, run)
        if name == "accelerate":  # whose micro-batches are the program's
            expected = expected._replace(micro_batches=0)
        assert trained.configuration == expected
        data = expected.dp_replicate * expected.dp_shard
        micro_batch = run.batch // data
        if name != "accelerate":
            micro_batch //= expected.micro_batches
        assert trained[1:] == (micro_batch, run.batch, run.devices, run.tokens)
        read_back += 1
    assert read_back >= 10


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_what_is_left_out_stands_in_a_comment_line_by_line(name: str) -> None:
    for _, _, left_out, text, _ in cases(name):
        text = in_a_line(text)
        assert text.count("Not expressed: ") == len(left_out)
        assert len({*left_out}) == len(left_out)
        for lack in left_out:
            assert lack.isprintable()
            quoted = lack.replace('"', '\\"') if name == "deepspeed" else lack
            assert in_a_line(f"Not expressed: {quoted}.") in text


def in_a_line(text: str) -> str:
    return " ".join(text.replace("#", " ").split())


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_equal_configurations_have_equal_settings(name: str) -> None:
    """As ZeRO over one part, replicas that are unsharded parts, all blocks of n."""
    run = TrainingRun(batch=64, tokens=4096, devices=16, layers=4, experts=1)
    pairs = [
        (Configuration(dp_shard=16), Configuration(dp_replicate=16)),
        (Configuration(dp_shard=16, ep=4), Configuration(dp_shard=16)),
        (Configuration(dp_shard=16, sp=False), Configuration(dp_shard=16, sp=True)),
        (Configuration(dp_shard=16, recompute="full", blocks=0), Configuration(dp_shard=16)),
        (
            Configuration(dp_shard=16, recompute="full", blocks=4),
            Configuration(dp_shard=16, recompute="full"),
        ),
        (
            Configuration(dp_shard=16, zero="state+weights"),
            Configuration(dp_shard=16, zero="weights"),
        ),
        (Configuration(tp=16, zero="weights"), Configuration(tp=16)),
        (
            Configuration(dp_replicate=16, zero="state+weights"),
            Configuration(dp_shard=16, zero="state"),
        ),
    ]
    for one, other in pairs:
        assert FRAMEWORKS[name].settings(one, run) == FRAMEWORKS[name].settings(other, run)
        assert FRAMEWORKS[name].lacks(one, run) == FRAMEWORKS[name].lacks(other, run)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_refuses_no_settings_that_lack_nothing(name: str) -> None:
    """By its own rules, as its source states them."""
    for case in cases(name):
        if not case.lacks:
            RULES[name](case.values, case.run)


def of_torchtitan(values: Values, run: TrainingRun) -> None:
    """Check rules of torchtitan/trainer.py and parallel_dims.py, v0.3.0."""
    degree = {k.removeprefix("parallelism."): v for k, v in values.items()}
    tp, cp = degree["tensor_parallel_degree"], degree["context_parallel_degree"]
    shards, ep = degree["data_parallel_shard_degree"], degree["expert_parallel_degree"]
    sp = tp if degree["enable_sequence_parallel"] else 1
    assert values["training.seq_len"] % (sp * (2 * cp if cp > 1 else 1)) == 0
    assert shards * cp * tp % ep == 0
    assert degree["data_parallel_replicate_degree"] * shards * cp * tp == run.devices
    # validation.py of the main branch: mixtures of experts need ep >= tp.
    assert run.experts == 1 or ep >= tp
    assert (ep > 1) == values.get("training.disable_cuda_graphs", False)


def of_megatron(values: Values, run: TrainingRun) -> None:
    """Check rules of megatron/training/arguments.py@000c4ac2, validate_args."""
    tp, cp = values["tensor-model-parallel-size"], values["context-parallel-size"]
    fsdp, connections = values.get("use-megatron-fsdp"), values.get("$CUDA_DEVICE_MAX_CONNECTIONS")
    if values.get("overlap-param-gather"):
        assert values.get("use-distributed-optimizer") or fsdp
        assert values.get("overlap-grad-reduce")
    if fsdp:
        assert connections != "1"
        assert values["ckpt-format"] == "fsdp_dtensor"
        assert values["no-gradient-accumulation-fusion"]
        # fully_shard.py, core_v0.16.1: the outer parts shard where the inner ones do fully.
        assert values["outer-dp-sharding-strategy"] == "no_shard" or (
            values["data-parallel-sharding-strategy"] == "optim_grads_params"
        )
    else:
        assert connections == ("1" if tp > 1 or cp > 1 else None)
        assert values.get("ckpt-format") != "fsdp_dtensor"
    if cp > 1:
        assert values["seq-length"] % (2 * cp) == 0
    assert tp > 1 or "sequence-parallel" not in values
    of_recomputation(values, "-", run)
    if "expert-model-parallel-size" in values:
        experts = values["expert-model-parallel-size"] * values["expert-tensor-parallel-size"]
        parts = run.devices // experts
        assert run.devices % experts == 0
        assert parts % values["num-distributed-optimizer-instances"] == 0
        assert tp == 1 or values["sequence-parallel"]


def of_recomputation(values: Values, dash: str, run: TrainingRun) -> None:
    """Check rules of megatron/core/transformer/transformer_config.py, core_v0.16.1."""
    granularity, method, layers = (
        values.get(f"recompute{dash}{name}")
        for name in ("granularity", "method", f"num{dash}layers")
    )
    if granularity == "full":
        assert method in ("block", "uniform")
        assert 1 <= (layers or 0) <= run.layers
    else:
        assert method is None
        assert layers is None


def of_nemo(values: Values, run: TrainingRun) -> None:
    """Check rules of src/megatron/bridge/training/config.py, v0.3.1, ConfigContainer.validate."""
    model = {k.removeprefix("model."): v for k, v in values.items() if k.startswith("model.")}
    cp, tp = model["context_parallel_size"], model["tensor_model_parallel_size"]
    assert cp == 1 or model["seq_length"] % (2 * cp) == 0
    assert tp > 1 or not model["sequence_parallel"]
    of_recomputation(model, "_", run)
    if values["ddp.use_megatron_fsdp"]:
        assert values["checkpoint.ckpt_format"] == "fsdp_dtensor"
        assert not model["gradient_accumulation_fusion"]
    if values["ddp.overlap_param_gather"]:
        assert values["ddp.use_distributed_optimizer"]


def of_deepspeed(values: Values, run: TrainingRun) -> None:
    """Check rules of deepspeed/runtime/config.py and module_inject/auto_ep_folding.py, v0.19.8."""
    tp, ep = (
        values.get("tensor_parallel.autotp_size", 1),
        values.get("expert_parallel.autoep_size", 1),
    )
    micro, steps = values["train_micro_batch_size_per_gpu"], values["gradient_accumulation_steps"]
    # Of all ranks: where they are not all of data parallelism, it should not be stated.
    assert (
        values.get("train_batch_size", micro * steps * run.devices) == micro * steps * run.devices
    )
    assert ("train_batch_size" in values) == (tp == 1)
    assert ep == 1 or (tp == 1 and run.devices % ep == 0)
    assert "zero_optimization.zero_hpz_partition_size" not in values


def of_maxtext(values: Values, run: TrainingRun) -> None:
    """Check rules of src/maxtext/configs/base.yml@e6b06efc: products are those of the devices."""
    inside = prod(v for k, v in values.items() if k.startswith("ici_"))
    nodes = prod(v for k, v in values.items() if k.startswith("dcn_"))
    assert (inside, inside * nodes) == (min(run.per_node, run.devices), run.devices)
    batch = int(run.devices * values["per_device_batch_size"])
    assert batch * values["gradient_accumulation_steps"] == run.batch


def of_accelerate(values: Values, run: TrainingRun) -> None:
    """Check rules of src/accelerate/parallelism_config.py, v1.15.0."""
    names = ("dp_replicate", "dp_shard", "tp", "cp")
    sizes = {
        name: values.get(f"parallelism_config.parallelism_config_{name}_size", 1) for name in names
    }
    fsdp = values["distributed_type"] == "FSDP"
    if any(key.startswith("parallelism_config.") for key in values):
        assert prod(sizes.values()) == values["num_processes"] == run.devices
    alone = sizes["dp_replicate"] > 1 and sizes["dp_shard"] == 1
    assert not (alone and (sizes["tp"] > 1 or sizes["cp"] > 1))
    assert not fsdp or sizes["dp_shard"] > 1 or sizes["cp"] > 1
    assert (values["distributed_type"] == "NO") == (run.devices == 1)


RULES = {
    "torchtitan": of_torchtitan,
    "megatron": of_megatron,
    "nemo": of_nemo,
    "deepspeed": of_deepspeed,
    "maxtext": of_maxtext,
    "accelerate": of_accelerate,
}


def test_each_framework_has_words_for_what_its_users_run() -> None:
    """FSDP everywhere; TP with sequence parallelism, k of n blocks and ZeRO's stages where said."""
    run = TrainingRun(batch=64, tokens=4096, devices=64, layers=80)
    fsdp = Configuration(dp_shard=64, recompute="full", zero="weights")
    tp = Configuration(dp_shard=32, tp=2, recompute="full", zero="weights")
    hybrid = Configuration(dp_replicate=8, dp_shard=8, recompute="full", zero="weights")
    usual = {
        "fsdp": fsdp,
        "tp": tp,
        "cp": tp._replace(dp_shard=16, cp=2),
        "k of n": tp._replace(blocks=20),
        "hybrid": hybrid,
        "state": fsdp._replace(zero="state"),
        "gradients": fsdp._replace(zero="gradients"),
        "hybrid state": hybrid._replace(zero="state+weights"),
    }
    trains = {
        name: [
            which
            for which, configuration in usual.items()
            if not FRAMEWORKS[name].lacks(configuration, run)
        ]
        for name in FRAMEWORKS
    }
    assert trains == {
        "torchtitan": ["fsdp", "tp", "cp", "hybrid", "gradients"],
        "megatron": [*usual],
        "nemo": [*usual],
        "deepspeed": [],  # recomputation is the model's
        "maxtext": ["fsdp", "tp", "cp", "hybrid", "state", "hybrid state"],
        "accelerate": ["fsdp", "hybrid", "gradients"],
    }
    again = {
        which: configuration._replace(recompute="none", sp=False)
        for which, configuration in usual.items()
    }
    stages = [
        which
        for which, configuration in again.items()
        if not FRAMEWORKS["deepspeed"].lacks(configuration, run)
    ]
    assert stages == ["fsdp", "tp", "k of n", "state", "gradients"]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_no_framework_replicates_key_value_heads(name: str) -> None:
    run = TrainingRun(batch=64, tokens=4096, devices=64, layers=80, kv_heads=4)
    configurations = {tp: Configuration(dp_shard=64 // tp, tp=tp) for tp in (4, 8)}
    named = {
        tp: [lack for lack in FRAMEWORKS[name].lacks(configurations[tp], run) if "heads" in lack]
        for tp in configurations
    }
    lack = "4 key-value heads in tp of 8: it does not replicate the projections of a head"
    assert named == {4: [], 8: [lack]}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"devices": 8}, "degrees should have 8 accelerators in all, got 16"),
        ({"batch": 24}, "micro_batches: dp x micro_batches = 16 should divide the batch of 24"),
    ],
)
def test_degrees_that_are_not_the_runs_are_refused(changed: dict[str, Any], message: str) -> None:
    run = TrainingRun(batch=64, tokens=4096, devices=16, layers=4)._replace(**changed)
    with pytest.raises(HyparError, match=message):
        FRAMEWORKS["torchtitan"].settings(Configuration(dp_shard=16), run)


def test_an_unknown_framework_is_refused_by_name() -> None:
    with pytest.raises(HyparError, match="unknown framework 'megatrom': did you mean megatron"):
        framework("megatrom")


GPT = "gpt:layers=4,hidden=64,heads=8,tokens=64,vocabulary=256"


@pytest.mark.parametrize(
    "configuration",
    [
        Configuration(1, 4, 1, 2, zero="weights", recompute="full", blocks=3),
        Configuration(2, 2, 1, 2, micro_batches=2, zero="state+weights"),
        Configuration(1, 2, 2, 2, sp=False, zero="state"),
    ],
)
def test_a_plan_of_a_configuration_is_exported_as_its_settings(
    configuration: Configuration, tmp_path: Path
) -> None:
    described = find_network(GPT)
    problem = problem_of(described, array="h100-8", batch=32)
    plan = plan_of_configuration(described, problem, configuration)
    run = TrainingRun(32, 64, 8, 4, 8, 1, plan.element_bytes, 8, name=described.name)
    assert TrainingRun.of(plan) == run
    ho.write_plan(plan, tmp_path / "plan.json")
    for name in FRAMEWORKS:
        done = command(["export", "plan.json", "--to", name], tmp_path)
        assert (done.status, done.output) == (0, FRAMEWORKS[name].settings(configuration, run))


def test_a_plan_that_is_no_configuration_is_refused_by_name(tmp_path: Path) -> None:
    of_model = ho.solve("lenet-c", levels=2, constraints={"fix": ("fc1=model",)})
    inference = ho.solve(GPT, levels=1, inference=True, reading="executed")
    for plan, message in (
        (of_model, "no configuration: fc1, H1 is model"),
        (inference, "cannot export an inference plan"),
    ):
        ho.write_plan(plan, tmp_path / "plan.json")
        for name in FRAMEWORKS:
            done = command(["export", "plan.json", "--to", name, "-o", "settings"], tmp_path)
            assert (done.status, done.errors.count("\n")) == (2, 1)
            assert message in done.errors
            assert not (tmp_path / "settings").exists()


STAGED = Configuration(dp_shard=2, tp=2, pp=4, micro_batches=8, zero="state")
OF_STAGES = TrainingRun(batch=64, tokens=64, devices=16, layers=12)


@pytest.mark.parametrize(
    ("name", "changed", "expected"),
    [
        ("megatron", {}, {"pipeline-model-parallel-size": 4}),
        ("megatron", {"interleave": 3}, {"num-virtual-stages-per-pipeline-rank": 3}),
        (
            "megatron",
            {"cuts": (3, 4, 3, 2)},
            {"pipeline-model-parallel-layout": "Et*3|t*4|t*3|t*2L"},
        ),
        ("nemo", {"interleave": 3}, {"model.virtual_pipeline_model_parallel_size": 3}),
        (
            "nemo",
            {"cuts": (3, 4, 3, 2)},
            {"model.pipeline_model_parallel_layout": "Et*3|t*4|t*3|t*2L"},
        ),
        (
            "torchtitan",
            {"cuts": (1, 9, 1, 1)},
            {
                "parallelism.pipeline_parallel_degree": 4,
                "parallelism.pipeline_parallel_schedule": "1F1B",
                # Micro-batches are parts of the local batch.
                "parallelism.pipeline_parallel_microbatch_size": 4,
                "training.local_batch_size": 32,
                "parallelism.module_fqns_per_model_part": [
                    ["tok_embeddings", "layers.0"],
                    [f"layers.{n}" for n in range(1, 10)],
                    ["layers.10"],
                    ["layers.11", "norm", "output"],
                ],
            },
        ),
        (
            "torchtitan",
            {"interleave": 3},
            {"parallelism.pipeline_parallel_schedule": "Interleaved1F1B"},
        ),
        (
            "maxtext",
            {"interleave": 3},
            {
                "num_pipeline_microbatches": 8,
                "num_layers_per_pipeline_stage": 1,
                "num_pipeline_repeats": 3,
                "gradient_accumulation_steps": 1,
                "per_device_batch_size": 4.0,
            },
        ),
    ],
)
def test_stages_are_in_the_words_of_each_framework(
    name: str, changed: dict[str, Any], expected: Values
) -> None:
    values = PARSERS[name](FRAMEWORKS[name].settings(STAGED._replace(**changed), OF_STAGES))
    assert {key: values[key] for key in expected} == expected


def test_stages_that_a_framework_lacks_are_named() -> None:
    (stages,) = [
        lack for lack in FRAMEWORKS["deepspeed"].lacks(STAGED, OF_STAGES) if "stages" in lack
    ]
    assert "PipelineModule(num_stages=4" in stages
    assert "4 pipeline stages in the order 1f1b: it has gpipe" in FRAMEWORKS["maxtext"].lacks(
        STAGED, OF_STAGES
    )
    six = FRAMEWORKS["maxtext"].lacks(STAGED._replace(micro_batches=6), OF_STAGES)
    assert "6 micro-batches: they should be a multiple of 4 stages" in six
    late = OF_STAGES._replace(schedule="zb-h1")
    assert "4 pipeline stages in the order zb-h1: it has 1f1b" in FRAMEWORKS["megatron"].lacks(
        STAGED, late
    )
    with pytest.raises(HyparError, match="Accelerate has no pipeline stages, got pp 4"):
        FRAMEWORKS["accelerate"].settings(STAGED, OF_STAGES)
    cut = STAGED._replace(cuts=(4, 4, 3, 1))
    with pytest.raises(HyparError, match=r"MaxText has no stages of 4\+4\+3\+1 blocks: all have"):
        FRAMEWORKS["maxtext"].settings(cut, OF_STAGES)
    assert "stages of 4+4+3+1 blocks: all have as many" in FRAMEWORKS["maxtext"].lacks(
        cut, OF_STAGES
    )
