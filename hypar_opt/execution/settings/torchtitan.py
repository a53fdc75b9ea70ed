"""Settings of torchtitan: a Python module, as its release 0.3.0 is configured.

Releases up to 0.2.2 read TOML; since then a configuration is a function that returns a
``Trainer.Config``, which ``--module`` and ``--config`` name.

Source: pytorch/torchtitan v0.3.0: torchtitan/config/configs.py (``TrainingConfig``,
``ParallelismConfig``), torchtitan/distributed/activation_checkpoint.py (``FullAC``, and None for
none), torchtitan/distributed/parallel_dims.py (what degrees multiply to), torchtitan/trainer.py
(``seq_len_divisor``, the global batch, and CUDA graphs with expert parallelism).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from hypar_opt.execution.settings.framework import (
    ELEMENTS,
    FULL,
    NONE,
    NOTHING,
    SELECTIVE,
    WEIGHTS,
    Framework,
    PythonCode,
    micro_batch_of,
    mirrored,
    module_text,
    of_blocks,
    of_fully_shard,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypar_opt.execution.settings.framework import TrainingRun
    from hypar_opt.plan.configuration import Configuration


class Torchtitan(Framework):
    """A Python module whose function sets a configuration of torchtitan's."""

    summary: ClassVar[str] = "settings for torchtitan 0.3.0, a Python module"
    sources: ClassVar[tuple[str, ...]] = (
        "pytorch/torchtitan v0.3.0: torchtitan/config/configs.py,"
        " torchtitan/distributed/activation_checkpoint.py",
    )
    elsewhere: ClassVar[str] = "model_spec, optimizer, data, compilation"

    def unexpressed(self, own: Configuration, run: TrainingRun) -> Iterator[str]:
        replicas, shards = "data_parallel_replicate_degree", "data_parallel_shard_degree"
        yield from of_fully_shard(own, replicas, shards, 'fsdp_reshard_after_forward = "never"')
        if own.recompute == SELECTIVE:
            yield (
                f"{of_blocks(own, run)}, of attention: SelectiveAC keeps attention, and computes"
                " every second matrix product again"
            )
        elif own.blocks is not None:
            yield f"{of_blocks(own, run)}: FullAC wraps every block"
        elif own.recompute not in (NONE, FULL):
            yield of_blocks(own, run)
        if run.experts > 1 and own.tp > 1:
            yield (
                f"experts split by tensor parallelism {own.tp}: expert_parallel_degree covers"
                " its ranks, too"
            )
        elif own.ep > _most_experts(own):
            yield (
                f"expert parallelism {own.ep} beside whole weights: it takes its ranks from"
                f" {shards}"
            )
        yield from mirrored(own, run, "seq_len")

    def document(self, own: Configuration, run: TrainingRun, remarks: list[str]) -> str:
        experts = own.ep if own.ep <= _most_experts(own) else 1
        full = own.recompute == FULL
        settings: dict[str, Any] = {
            "training.local_batch_size": micro_batch_of(own, run),
            "training.global_batch_size": run.batch,
            "training.seq_len": run.tokens,
            "training.mixed_precision_param": ELEMENTS.get(run.element_bytes, ELEMENTS[2]),
            "parallelism.data_parallel_replicate_degree": own.dp_replicate,
            "parallelism.data_parallel_shard_degree": own.dp_shard,
            "parallelism.fsdp_reshard_after_forward": "always" if WEIGHTS in own.zero else "never",
            "parallelism.tensor_parallel_degree": own.tp,
            "parallelism.enable_sequence_parallel": own.sp,
            "parallelism.context_parallel_degree": own.cp,
            "parallelism.expert_parallel_degree": experts,
            "parallelism.pipeline_parallel_degree": 1,
        }
        if experts > 1:
            # Its dispatch of tokens waits for the host.
            settings["training.disable_cuda_graphs"] = True
        settings["activation_checkpoint"] = PythonCode("FullAC.Config()" if full else "None")
        imports = ["from torchtitan.trainer import Trainer"]
        if full:
            imports.insert(0, "from torchtitan.distributed.activation_checkpoint import FullAC")
        use = (
            "In a module of yours, which torchtitan's --module and --config name:\n\n"
            "    def run():\n        return configured(your_config())"
        )
        return module_text(remarks, use, imports, "config", "Trainer.Config", settings)


def _most_experts(own: Configuration) -> int:
    """Return the degree of expert parallelism at most: what is not replicas."""
    return own.cp * own.tp * (1 if own.zero == NOTHING else own.dp_shard)
