"""Settings of torchtitan: a Python module, as its release 0.3.0 is configured.

Releases up to 0.2.2 read TOML; since then a configuration is a function that returns a
``Trainer.Config``, which ``--module`` and ``--config`` name.

Source: pytorch/torchtitan v0.3.0: torchtitan/config/configs.py (``TrainingConfig``,
``ParallelismConfig``), torchtitan/distributed/activation_checkpoint.py (``FullAC``, and None for
none), torchtitan/distributed/parallel_dims.py (what degrees multiply to), torchtitan/trainer.py
(``seq_len_divisor``, the global batch, and CUDA graphs with expert parallelism). For stages:
pytorch/torchtitan torchtitan/config/configs.py@0014ac2c (``pipeline_parallel_schedule``,
``pipeline_parallel_microbatch_size``, ``module_fqns_per_model_part``) and
torchtitan/distributed/pipeline_parallel.py@02ef790c: micro-batches are parts of the local batch,
and a decoder's modules are ``tok_embeddings``, ``layers.0``, ..., ``norm`` and ``output``.
"""

from __future__ import annotations

from itertools import islice
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
    blocks_of_chunks,
    fully_shard_limits,
    micro_batch_of,
    mirrored,
    module_text,
    recomputed_blocks,
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
    schedules: ClassVar[tuple[str, ...]] = ("1f1b", "gpipe")

    def unexpressed(self, configuration: Configuration, run: TrainingRun) -> Iterator[str]:
        replicas, shards = "data_parallel_replicate_degree", "data_parallel_shard_degree"
        yield from fully_shard_limits(
            configuration, replicas, shards, 'fsdp_reshard_after_forward = "never"'
        )
        if configuration.recompute == SELECTIVE:
            yield (
                f"{recomputed_blocks(configuration, run)}, of attention: SelectiveAC keeps"
                " attention, and computes every second matrix product again"
            )
        elif configuration.blocks is not None:
            yield f"{recomputed_blocks(configuration, run)}: FullAC wraps every block"
        elif configuration.recompute not in (NONE, FULL):
            yield recomputed_blocks(configuration, run)
        if run.experts > 1 and configuration.tp > 1:
            yield (
                f"experts split by tensor parallelism {configuration.tp}: expert_parallel_degree"
                " covers its ranks, too"
            )
        elif configuration.ep > _max_expert_degree(configuration):
            yield (
                f"expert parallelism {configuration.ep} beside whole weights: it takes its ranks"
                f" from {shards}"
            )
        yield from mirrored(configuration, run, "seq_len")

    def document(self, configuration: Configuration, run: TrainingRun, remarks: list[str]) -> str:
        experts = configuration.ep if configuration.ep <= _max_expert_degree(configuration) else 1
        reshard = "always" if WEIGHTS in configuration.zero else "never"
        full = configuration.recompute == FULL
        settings: dict[str, Any] = {
            "training.local_batch_size": micro_batch_of(configuration, run),
            "training.global_batch_size": run.batch,
            "training.seq_len": run.tokens,
            "training.mixed_precision_param": ELEMENTS.get(run.element_bytes, ELEMENTS[2]),
            "parallelism.data_parallel_replicate_degree": configuration.dp_replicate,
            "parallelism.data_parallel_shard_degree": configuration.dp_shard,
            "parallelism.fsdp_reshard_after_forward": reshard,
            "parallelism.tensor_parallel_degree": configuration.tp,
            "parallelism.enable_sequence_parallel": configuration.sp,
            "parallelism.context_parallel_degree": configuration.cp,
            "parallelism.expert_parallel_degree": experts,
            "parallelism.pipeline_parallel_degree": configuration.pp,
        }
        if configuration.pp > 1:
            # Its local batch covers all micro-batches.
            micro_batch = micro_batch_of(configuration, run)
            order = "GPipe" if run.schedule == "gpipe" else "1F1B"
            if configuration.interleave > 1:
                order = "Interleaved1F1B"
            settings |= {
                "training.local_batch_size": micro_batch * configuration.micro_batches,
                "parallelism.pipeline_parallel_schedule": order,
                "parallelism.pipeline_parallel_microbatch_size": micro_batch,
                "parallelism.module_fqns_per_model_part": _modules(configuration, run),
            }
        if experts > 1:
            # Its dispatch of tokens waits for the host.
            settings["training.disable_cuda_graphs"] = True
        settings["activation_checkpoint"] = PythonCode("FullAC.Config()" if full else "None")
        imports = ["from torchtitan.trainer import Trainer"]
        if full:
            imports.insert(0, "from torchtitan.distributed.activation_checkpoint import FullAC")
        use = (
            "Call it from the module that torchtitan's --module and --config name:\n\n"
            "    def run():\n        return configured(your_config())"
        )
        return module_text(remarks, use, imports, "config", "Trainer.Config", settings)


def _modules(configuration: Configuration, run: TrainingRun) -> list[list[str]]:
    """Return the modules of each chunk, as torchtitan's decoders call them."""
    numbers = iter(range(run.layers))
    chunks = [
        [f"layers.{number}" for number in islice(numbers, count)]
        for count in blocks_of_chunks(configuration, run)
    ]
    chunks[0].insert(0, "tok_embeddings")
    chunks[-1] += ["norm", "output"]
    return chunks


def _max_expert_degree(configuration: Configuration) -> int:
    """Return the largest degree of expert parallelism: the ranks that are not replicas."""
    shards = 1 if configuration.zero == NOTHING else configuration.dp_shard
    return configuration.cp * configuration.tp * shards
