"""Settings of Megatron-LM and of Megatron-Bridge (NeMo), which train with Megatron Core.

Source, for arguments: NVIDIA/Megatron-LM megatron/training/arguments.py@000c4ac2, with its checks:
``--overlap-param-gather`` with a distributed optimizer or Megatron-FSDP; with tensor or context
parallelism ``CUDA_DEVICE_MAX_CONNECTIONS=1``, with Megatron-FSDP not 1; ``--ckpt-format
fsdp_dtensor`` with Megatron-FSDP; ``--seq-length`` a multiple of twice the context parallelism.
``--outer-dp-sharding-strategy``, and how Megatron-FSDP shards what:
docs/user-guide/features/megatron_fsdp.md@11ceb1d2.
For attributes: NVIDIA-NeMo/Megatron-Bridge v0.3.1 src/megatron/bridge/training/config.py, whose
model and ddp have the fields of Megatron Core's core_v0.16.1
megatron/core/{model_parallel_config.py, transformer/transformer_config.py,
distributed/distributed_data_parallel_config.py}. There: ``recompute_method="block"`` is of the
first blocks, "'selective' always uses all layers", and ``cp_comm_type="all_gather"`` gathers keys
and values before attention. There, too: ``pipeline_model_parallel_layout``, whose chunks ``|``
separates: E is the embedding, ``t*3`` three layers, and L the loss; and ``recompute_num_layers`` is
of each chunk.
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar

from hypar_opt.execution.settings.framework import (
    FULL,
    GRADIENTS,
    NONE,
    NOTHING,
    SELECTIVE,
    STATE,
    Framework,
    PythonCode,
    commented,
    micro_batch_of,
    mirrored,
    module_text,
    recomputed_blocks,
)
from hypar_opt.plan.configuration import HYBRID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypar_opt.execution.settings.framework import TrainingRun
    from hypar_opt.plan.configuration import Configuration


class MegatronCore(Framework):
    """The common base of frameworks that train with Megatron Core."""

    schedules: ClassVar[tuple[str, ...]] = ("1f1b",)
    interleaving: ClassVar[str] = "virtual_pipeline_model_parallel_size"
    """The field for the chunks per stage."""

    def unexpressed(self, configuration: Configuration, run: TrainingRun) -> Iterator[str]:
        if configuration.recompute not in (NONE, SELECTIVE, FULL):
            yield recomputed_blocks(configuration, run)
        elif configuration.recompute == SELECTIVE and configuration.blocks is not None:
            yield f"{recomputed_blocks(configuration, run)}: it always uses all"
        if run.experts > 1 and configuration.tp > 1 and not configuration.sp:
            yield "experts with tensor parallelism and no sequence parallelism"
        yield from mirrored(configuration, run, "seq-length")

    def model_fields(self, configuration: Configuration, run: TrainingRun) -> dict[str, Any]:
        """Return fields of the model's configuration by name."""
        recompute, blocks = configuration.recompute, configuration.blocks
        full = recompute == FULL
        granularity = None if recompute == NONE else FULL if full else SELECTIVE
        fields: dict[str, Any] = {
            "tensor_model_parallel_size": configuration.tp,
            "context_parallel_size": configuration.cp,
            "pipeline_model_parallel_size": configuration.pp,
            "sequence_parallel": configuration.sp,
            "recompute_granularity": granularity,
            "recompute_method": ("uniform" if blocks is None else "block") if full else None,
            "recompute_num_layers": (blocks or 1) if full else None,
        }
        if configuration.cuts:
            chunks = [f"t*{count}" for count in configuration.cuts]
            fields["pipeline_model_parallel_layout"] = f"E{'|'.join(chunks)}L"
        elif configuration.interleave > 1:
            fields[self.interleaving] = configuration.interleave
        if configuration.cp > 1:
            fields["cp_comm_type"] = "all_gather"
        if run.experts > 1:
            fields["expert_model_parallel_size"] = configuration.ep
            fields["expert_tensor_parallel_size"] = configuration.tp
        return fields

    def ddp_fields(self, configuration: Configuration) -> dict[str, Any]:
        """Return fields of the configuration of data parallelism by name."""
        replicas, zero = configuration.dp_replicate, configuration.zero
        sharded = zero != NOTHING
        fsdp = zero not in (NOTHING, STATE)
        fields: dict[str, Any] = {
            "use_distributed_optimizer": sharded,
            "num_distributed_optimizer_instances": replicas if sharded else 1,
            "overlap_grad_reduce": replicas * configuration.dp_shard * configuration.cp > 1,
            "overlap_param_gather": sharded,
            "use_megatron_fsdp": fsdp,
        }
        if fsdp:
            whole = zero == GRADIENTS
            fields |= {
                "data_parallel_sharding_strategy": "optim_grads" if whole else "optim_grads_params",
                "outer_dp_sharding_strategy": "optim" if zero == HYBRID else "no_shard",
            }
        return fields


class Megatron(MegatronCore):
    """Arguments of Megatron-LM's pretrain_gpt.py."""

    interleaving: ClassVar[str] = "num_virtual_stages_per_pipeline_rank"

    summary: ClassVar[str] = "settings for Megatron-LM, a shell script with its arguments"
    sources: ClassVar[tuple[str, ...]] = (
        "NVIDIA/Megatron-LM megatron/training/arguments.py@000c4ac2,"
        " docs/user-guide/features/megatron_fsdp.md@11ceb1d2",
    )
    elsewhere: ClassVar[str] = (
        "the model, optimizer and data, which are this script's own arguments, and the rendezvous,"
        " torchrun's PET_MASTER_ADDR and PET_NODE_RANK"
    )

    def document(self, configuration: Configuration, run: TrainingRun, remarks: list[str]) -> str:
        batch = {
            "micro_batch_size": micro_batch_of(configuration, run),
            "global_batch_size": run.batch,
            "seq_length": run.tokens,
            "bf16": run.element_bytes != 4,
        }
        fields = self.model_fields(configuration, run) | batch | self.ddp_fields(configuration)
        if fsdp := fields["use_megatron_fsdp"]:
            fields |= {"no_gradient_accumulation_fusion": True, "ckpt_format": "fsdp_dtensor"}
        arguments = [
            f"  --{name.replace('_', '-')}{'' if value is True else f' {quote(str(value))}'} \\"
            for name, value in fields.items()
            if value not in (False, None)
        ]
        connections = []
        if fsdp:
            connections = ["unset CUDA_DEVICE_MAX_CONNECTIONS"]
        elif configuration.tp > 1 or configuration.cp > 1:
            connections = ["export CUDA_DEVICE_MAX_CONNECTIONS=1"]
        lines = [
            *connections,
            f"torchrun --nnodes {run.nodes} --nproc-per-node {run.devices // run.nodes}"
            " pretrain_gpt.py \\",
            *arguments,
            '  "$@"',
        ]
        return "#!/bin/sh\n" + commented(remarks) + "\n".join(lines) + "\n"


class Nemo(MegatronCore):
    """A Python module whose function sets a configuration of Megatron-Bridge's."""

    summary: ClassVar[str] = "settings for NeMo's Megatron-Bridge 0.3.1, a Python module"
    sources: ClassVar[tuple[str, ...]] = (
        "NVIDIA-NeMo/Megatron-Bridge v0.3.1: src/megatron/bridge/training/config.py",
        "NVIDIA/Megatron-LM core_v0.16.1: megatron/core/model_parallel_config.py,"
        " megatron/core/transformer/transformer_config.py,"
        " megatron/core/distributed/distributed_data_parallel_config.py",
    )
    elsewhere: ClassVar[str] = "the model, optimizer and data of the recipe"

    def document(self, configuration: Configuration, run: TrainingRun, remarks: list[str]) -> str:
        fields: dict[str, Any] = {
            f"model.{name}": value for name, value in self.model_fields(configuration, run).items()
        }
        fields |= {
            "model.seq_length": run.tokens,
            "dataset.seq_length": run.tokens,
            "train.micro_batch_size": micro_batch_of(configuration, run),
            "train.global_batch_size": run.batch,
        }
        shared = self.ddp_fields(configuration)
        fields |= {f"ddp.{name}": value for name, value in shared.items()}
        # Recipes set both, and each turns the other on.
        fields["optimizer.use_distributed_optimizer"] = shared["use_distributed_optimizer"]
        if shared["use_megatron_fsdp"]:
            fields["model.gradient_accumulation_fusion"] = False
            fields["checkpoint.ckpt_format"] = "fsdp_dtensor"
        imports = ["from megatron.bridge.training.config import ConfigContainer"]
        fields["mixed_precision"] = "bf16_mixed"
        if run.element_bytes == 4:
            single = "fp32=True, params_dtype=torch.float32, pipeline_dtype=torch.float32"
            fields["mixed_precision"] = PythonCode(f"MixedPrecisionConfig({single})")
            of = "megatron.bridge.training.mixed_precision"
            imports = ["import torch", *imports, f"from {of} import MixedPrecisionConfig"]
        use = (
            "In a script of yours, which Megatron-Bridge's pretrain runs:\n\n"
            "    pretrain(configured(llama3_8b_pretrain_config()), forward_step)"
        )
        return module_text(remarks, use, imports, "cfg", "ConfigContainer", fields)
