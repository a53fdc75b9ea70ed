"""Readers of settings: what a framework would take from them, as a configuration and its batch.

Each reads the text with a parser of its format, and no more than the framework's own names.
"""

from __future__ import annotations

import ast
import json
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]

from hypar_opt.execution.settings import TrainingRun
from hypar_opt.plan.configuration import Configuration

Values = dict[str, Any]


class Trained(NamedTuple):
    """What settings say is trained."""

    configuration: Configuration
    micro_batch: int
    batch: int
    devices: int
    tokens: int


def assignments(text: str) -> Values:
    """Return what a Python module's function sets, by attribute; calls as text."""
    (function,) = [x for x in ast.parse(text).body if isinstance(x, ast.FunctionDef)]
    (parameter,) = [x.arg for x in function.args.args]
    values: Values = {}
    for line in function.body:
        if isinstance(line, ast.Assign):
            (target,) = line.targets
            name = ast.unparse(target).removeprefix(f"{parameter}.")
            try:
                value = ast.literal_eval(line.value)
            except ValueError:
                value = ast.unparse(line.value)
            assert values.setdefault(name, value) is value, f"{name} is set twice"
    return values


def arguments(text: str) -> Values:
    """Return the arguments of a shell script's only command, with torchrun's and the environment.

    Those of torchrun begin with ``torchrun.``, and variables with ``$``.
    """
    values: Values = {}
    joined = text.replace("\\\n", " ")
    for words in (shlex.split(line, comments=True) for line in joined.splitlines()):
        if words[:1] == ["export"]:
            name, _, value = words[1].partition("=")
            values[f"${name}"] = value
        elif words[:1] == ["unset"]:
            values[f"${words[1]}"] = None
        elif words:
            script = words.index("pretrain_gpt.py")
            assert (words[0], words[-1]) == ("torchrun", "$@")
            for prefix, part in (("torchrun.", words[1:script]), ("", words[script + 1 : -1])):
                for n, word in enumerate(part):
                    if word.startswith("--"):
                        has = n + 1 < len(part) and not part[n + 1].startswith("--")
                        setting: str | bool = part[n + 1] if has else True
                        name = prefix + word.removeprefix("--")
                        assert name not in values, f"{name} is said twice"
                        values[name] = int(setting) if str(setting).isdigit() else setting
    return values


def flat(values: Values) -> Values:
    """Return values of nested mappings by path, with dots."""
    paths: Values = {}
    for name, value in values.items():
        inner = flat(value) if isinstance(value, dict) else None
        paths |= {name: value} if inner is None else {f"{name}.{x}": v for x, v in inner.items()}
    return paths


def json_values(text: str) -> Values:
    return flat(json.loads(text))


def yaml_values(text: str) -> Values:
    return flat(yaml.safe_load(text))


PARSERS: dict[str, Callable[[str], Values]] = {
    "torchtitan": assignments,
    "megatron": arguments,
    "nemo": assignments,
    "deepspeed": json_values,
    "maxtext": yaml_values,
    "accelerate": yaml_values,
}


def framework_values(values: Values) -> Values:
    """Return the framework's own values: those that a table of keys has."""
    return {k: v for k, v in values.items() if not k.startswith(("$", "torchrun."))}


def torchtitan(values: Values, run: TrainingRun) -> Trained:
    def of(name: str) -> Any:
        return values[f"parallelism.{name}"]

    replicas, shards = of("data_parallel_replicate_degree"), of("data_parallel_shard_degree")
    cp, tp, ep = (of(f"{name}_parallel_degree") for name in ("context", "tensor", "expert"))
    always = of("fsdp_reshard_after_forward") == "always"
    zero = ("weights" if always else "gradients") if shards * cp > 1 else "none"
    local, batch = values["training.local_batch_size"], values["training.global_batch_size"]
    accumulated, rest = divmod(batch, local * replicas * shards)
    assert rest == 0
    again = "none" if values["activation_checkpoint"] is None else "full"
    configuration = Configuration(
        replicas, shards, cp, tp, ep, of("enable_sequence_parallel"), accumulated, again, None, zero
    )
    return Trained(configuration, local, batch, configuration.devices, values["training.seq_len"])


def _megatron_core(of: Callable[[str], Any], run: TrainingRun) -> Trained:
    cp, tp = of("context_parallel_size"), of("tensor_model_parallel_size")
    data, rest = divmod(run.devices, cp * tp * of("pipeline_model_parallel_size"))
    assert rest == 0
    instances = of("num_distributed_optimizer_instances")
    if of("use_megatron_fsdp"):
        strategy = of("data_parallel_sharding_strategy")
        zero = {"optim_grads": "gradients", "optim_grads_params": "weights"}[strategy]
        zero = "state+weights" if of("outer_dp_sharding_strategy") == "optim" else zero
    else:
        zero = "state" if of("use_distributed_optimizer") else "none"
        instances = data if zero == "none" else instances
    shards, rest = divmod(data, instances)
    assert rest == 0
    accumulated, rest = divmod(of("global_batch_size"), of("micro_batch_size") * data)
    assert rest == 0
    again, blocks = of("recompute_granularity") or "none", None
    if of("recompute_method") == "block":
        blocks = of("recompute_num_layers")
    experts = of("expert_model_parallel_size") or 1
    assert of("expert_tensor_parallel_size") in (None, False, tp)
    sp = bool(of("sequence_parallel"))
    configuration = Configuration(
        instances, shards, cp, tp, experts, sp, accumulated, again, blocks, zero
    )
    batch, local = of("global_batch_size"), of("micro_batch_size")
    return Trained(configuration, local, batch, run.devices, of("seq_length"))


def megatron(values: Values, run: TrainingRun) -> Trained:
    trained = _megatron_core(lambda name: values.get(name.replace("_", "-")), run)
    devices = values["torchrun.nnodes"] * values["torchrun.nproc-per-node"]
    return trained._replace(devices=devices)


def nemo(values: Values, run: TrainingRun) -> Trained:
    assert values["ddp.use_distributed_optimizer"] == values["optimizer.use_distributed_optimizer"]
    assert values["model.seq_length"] == values["dataset.seq_length"]

    def of(name: str) -> Any:
        return next(
            (values[f"{x}.{name}"] for x in ("model", "train", "ddp") if f"{x}.{name}" in values),
            None,
        )

    return _megatron_core(of, run)


def deepspeed(values: Values, run: TrainingRun) -> Trained:
    tp = values.get("tensor_parallel.autotp_size", 1)
    cp = values.get("sequence_parallel_size", 1)
    data, rest = divmod(run.devices, tp * cp)
    assert rest == 0
    zero = ("none", "state", "gradients", "weights")[values["zero_optimization.stage"]]
    replicas, shards = (data, 1) if zero == "none" else (1, data)
    ep = values.get("expert_parallel.autoep_size", 1)
    local, accumulated = (
        values["train_micro_batch_size_per_gpu"],
        values["gradient_accumulation_steps"],
    )
    batch = local * accumulated * data
    assert values.get("train_batch_size", batch) == batch
    configuration = Configuration(
        replicas, shards, cp, tp, ep, False, accumulated, "none", None, zero
    )
    return Trained(configuration, local, batch, run.devices, run.tokens)


def maxtext(values: Values, run: TrainingRun) -> Trained:
    def of(axis: str) -> int:
        return int(
            values.get(f"ici_{axis}_parallelism", 1) * values.get(f"dcn_{axis}_parallelism", 1)
        )

    inside = [v for k, v in values.items() if k.startswith("ici_")]
    nodes = [v for k, v in values.items() if k.startswith("dcn_")]
    devices = 1
    for degree in (*inside, *nodes):
        devices *= degree
    replicas, shards, cp, ep = of("data"), of("fsdp"), of("context"), of("expert")
    if values.get("expert_shard_attention_option") == "context":
        cp *= ep
    else:
        shards *= ep
    whole_state = not values["shard_optimizer_over_data"]
    zero = "none" if shards * cp == 1 else "weights"
    if not whole_state:
        zero = "state" if zero == "none" else "state+weights"
    if zero == "state":
        replicas, shards = 1, replicas
    accumulated = values["gradient_accumulation_steps"]
    micro = int(devices * values["per_device_batch_size"])  # as its config rounds
    configuration = Configuration(
        *(replicas, shards, cp, of("tensor") * of("tensor_sequence"), ep),
        of("tensor_sequence") > 1,
        accumulated,
        "full",
        None,
        zero,
    )
    parts = configuration.dp_replicate * configuration.dp_shard
    assert micro % parts == 0
    tokens = values["max_target_length"]
    return Trained(configuration, micro // parts, micro * accumulated, devices, tokens)


def accelerate(values: Values, run: TrainingRun) -> Trained:
    def of(name: str) -> int:
        return int(values.get(f"parallelism_config.parallelism_config_{name}_size", 1))

    replicas, shards, cp, tp = (of(name) for name in ("dp_replicate", "dp_shard", "cp", "tp"))
    devices = values["num_processes"]
    zero = "none"
    if values["distributed_type"] == "FSDP":
        again = values["fsdp_config.fsdp_reshard_after_forward"]
        zero = "weights" if again else "gradients"
    elif tp == 1:
        replicas = devices
    full = values.get("fsdp_config.fsdp_activation_checkpointing", False)
    data = replicas * shards
    accumulated = 0
    configuration = Configuration(
        replicas, shards, cp, tp, 1, False, accumulated, "full" if full else "none", None, zero
    )
    return Trained(configuration, run.batch // data, run.batch, devices, run.tokens)


READERS: dict[str, Callable[[Values, TrainingRun], Trained]] = {
    function.__name__: function
    for function in (torchtitan, megatron, nemo, deepspeed, maxtext, accelerate)
}
