"""Settings of DeepSpeed: its JSON.

Source: deepspeedai/DeepSpeed v0.19.8: deepspeed/runtime/config.py (``train_batch_size`` should be
the micro-batch times the accumulation times the ranks, those of AutoTP included),
deepspeed/runtime/zero/config.py, deepspeed/runtime/tensor_parallel/config.py,
deepspeed/runtime/precision_config.py, deepspeed/module_inject/auto_ep_folding.py (experts are not
split by tensor parallelism), and deepspeed/runtime/engine.py: AutoTP trains with every stage of
ZeRO, and MiCS, the hybrid sharding, is gone.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from hypar_opt.execution.settings.framework import (
    NONE,
    WEIGHTS,
    Framework,
    micro_batch_of,
    recomputed_blocks,
)
from hypar_opt.plan.configuration import HYBRID
from hypar_opt.workload.parallelism import SHARDED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypar_opt.execution.settings.framework import TrainingRun
    from hypar_opt.plan.configuration import Configuration


class DeepSpeed(Framework):
    """DeepSpeed's JSON."""

    summary: ClassVar[str] = "settings for DeepSpeed 0.19.8, its JSON"
    sources: ClassVar[tuple[str, ...]] = (
        "deepspeedai/DeepSpeed v0.19.8: deepspeed/runtime/config.py,"
        " deepspeed/runtime/zero/config.py, deepspeed/runtime/tensor_parallel/config.py,"
        " deepspeed/module_inject/auto_ep_config.py",
    )
    elsewhere: ClassVar[str] = "the model, its tokens, optimizer and data"
    has_models: ClassVar[bool] = False
    schedules: ClassVar[tuple[str, ...]] = ("1f1b",)

    def unexpressed(self, configuration: Configuration, run: TrainingRun) -> Iterator[str]:
        if configuration.zero == HYBRID:
            yield (
                "weights gathered from a part of data parallelism: with zero_hpz_partition_size"
                " the forward pass gathers them from all"
            )
        elif configuration.dp_replicate > 1 and configuration.dp_shard * configuration.cp > 1:
            yield f"{configuration.dp_replicate} replicas of what is sharded: ZeRO shards over all"
        if configuration.cp > 1:
            yield (
                f"context parallelism {configuration.cp}: sequence_parallel_size is of Ulysses,"
                " which the model's attention calls"
            )
        if configuration.sp:
            yield "sequence parallelism: AutoTP leaves norms whole"
        if configuration.tp > 1 and configuration.ep > 1:
            yield (
                f"experts split by tensor parallelism {configuration.tp}:"
                " expert_tensor_parallel_size is 1"
            )
        if configuration.pp > 1:
            yield (
                f"{configuration.pp} pipeline stages, which are the model's:"
                f" PipelineModule(num_stages={configuration.pp}, partition_method=...)"
            )
        if configuration.interleave > 1:
            yield f"{configuration.interleave} chunks per stage: a stage has one"
        if configuration.recompute != NONE:
            yield (
                f"{recomputed_blocks(configuration, run)}: the model's, as its"
                " gradient_checkpointing_enable"
            )

    def document(self, configuration: Configuration, run: TrainingRun, remarks: list[str]) -> str:
        stage = SHARDED.index(WEIGHTS if configuration.zero == HYBRID else configuration.zero)
        zero: dict[str, Any] = {"stage": stage}
        if stage:
            zero["overlap_comm"] = True
        if (
            configuration.zero == HYBRID
            and configuration.tp * configuration.cp * configuration.ep == 1
        ):
            zero["zero_hpz_partition_size"] = configuration.dp_shard
        batch = {"train_batch_size": run.batch}
        if configuration.tp > 1:
            batch = {}
            said = (
                "train_batch_size is DeepSpeed's own: it counts ranks of tensor parallelism, too."
            )
            remarks = [*remarks, said]
        settings: dict[str, Any] = {
            "_comment": remarks,
            **batch,
            "train_micro_batch_size_per_gpu": micro_batch_of(configuration, run),
            "gradient_accumulation_steps": configuration.micro_batches,
            "bf16": {"enabled": run.element_bytes != 4},
            "zero_optimization": zero,
        }
        if configuration.tp > 1:
            settings["tensor_parallel"] = {"autotp_size": configuration.tp}
        if configuration.cp > 1:
            settings["sequence_parallel_size"] = configuration.cp
            settings["data_parallel_size"] = configuration.dp_replicate * configuration.dp_shard
        if configuration.ep > 1:
            settings["expert_parallel"] = {"enabled": True, "autoep_size": configuration.ep}
        return json.dumps(settings, indent=2) + "\n"
