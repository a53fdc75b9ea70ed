"""Settings of MaxText: a YAML file over its base.yml.

A mesh has an axis for each dimension, inside a node (``ici_``) and between nodes (``dcn_``); the
products are the devices of a node and the nodes. The rules of its logical axes shard weights over
``fsdp``, ``context`` and ``expert``, and with ``shard_optimizer_over_data`` the optimizer's state
over ``data``, too.

Source: AI-Hypercomputer/maxtext src/maxtext/configs/base.yml@e6b06efc (keys, ``logical_axis_rules``
and remat policies), src/maxtext/configs/types.py@a2a238f3 (``base_config``, and the batch: of a
device, times the devices, times the accumulation; stages, times their repeats, times the layers
of one are all layers, and micro-batches are a multiple of stages).
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any, ClassVar

from hypar_opt.errors import HyparError
from hypar_opt.execution.settings.framework import (
    ELEMENTS,
    FULL,
    GRADIENTS,
    NONE,
    NOTHING,
    SELECTIVE,
    STATE,
    WEIGHTS,
    Framework,
    blocks_of_chunks,
    commented,
    recomputed_blocks,
)
from hypar_opt.plan.configuration import HYBRID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypar_opt.execution.settings.framework import TrainingRun
    from hypar_opt.plan.configuration import Configuration

_POLICIES = {FULL: "full", SELECTIVE: "minimal", NONE: "minimal_with_context"}
"""The policy nearest to each kind of recomputation."""

_UNEQUAL = "stages of {} blocks: all have as many"


class MaxText(Framework):
    """A YAML file over MaxText's base.yml."""

    summary: ClassVar[str] = "settings for MaxText, YAML over its base.yml"
    sources: ClassVar[tuple[str, ...]] = (
        "AI-Hypercomputer/maxtext src/maxtext/configs/base.yml@e6b06efc,"
        " src/maxtext/configs/types.py@a2a238f3",
    )
    elsewhere: ClassVar[str] = "model_name, hardware, attention, optimizer, data"
    schedules: ClassVar[tuple[str, ...]] = ("gpipe",)

    def unexpressed(self, configuration: Configuration, run: TrainingRun) -> Iterator[str]:
        if configuration.zero == GRADIENTS:
            yield "gradients sharded and weights whole (ZeRO-2)"
        elif configuration.zero in (NOTHING, STATE) and max(configuration.cp, configuration.ep) > 1:
            yield "weights whole in context or expert parallelism: both axes shard them"
        if configuration.zero == STATE and configuration.dp_replicate > 1:
            yield (
                f"{configuration.dp_replicate} replicas of a sharded state: it is sharded over all"
            )
        if configuration.recompute == NONE:
            yield (
                "no recomputation: with minimal_with_context norms and activations are computed"
                " again"
            )
        elif configuration.recompute == SELECTIVE:
            yield (
                f"{recomputed_blocks(configuration, run)}: with minimal norms and activations are"
                " computed again, too"
            )
        elif configuration.blocks is not None or configuration.recompute != FULL:
            yield f"{recomputed_blocks(configuration, run)}: layers are scanned, all alike"
        if configuration.tp > 1 and not configuration.sp:
            yield (
                "tensor parallelism that leaves norms whole: the axis tensor splits them by"
                " feature, tensor_sequence by token"
            )
        axes = _axes(configuration)
        if axes is None and configuration.zero in (WEIGHTS, HYBRID):
            yield (
                f"expert parallelism {configuration.ep} of a part of cp {configuration.cp} and"
                f" dp_shard {configuration.dp_shard}: it is of one of them"
            )
        elif axes and _inside(axes, run) is None:
            yield f"degrees that do not fill nodes of {run.per_node}"
        if configuration.cp > 1 and run.tokens % (2 * configuration.cp):
            yield f"{run.tokens:,} tokens: they should be a multiple of {2 * configuration.cp}"
        if configuration.cuts:
            yield _UNEQUAL.format("+".join(map(str, configuration.cuts)))
        if configuration.micro_batches % configuration.pp:
            yield (
                f"{configuration.micro_batches} micro-batches: they should be a multiple of"
                f" {configuration.pp} stages"
            )
        sequences = _per_device(configuration, run)
        if int(run.devices * sequences) * configuration.micro_batches != run.batch:
            yield f"{sequences!r} sequences per device, which are rounded down"

    def document(self, configuration: Configuration, run: TrainingRun, remarks: list[str]) -> str:
        if configuration.cuts:  # no key comes near an uneven number of layers
            unequal = _UNEQUAL.format("+".join(map(str, configuration.cuts)))
            raise HyparError(f"{type(self).__name__} has no {unequal}")
        axes = _axes(configuration) or _axes(configuration._replace(ep=1))
        assert axes is not None
        inside = _inside(axes, run) or dict.fromkeys(axes, 1)
        settings: dict[str, Any] = {
            "base_config": "base.yml",
            "per_device_batch_size": _per_device(configuration, run),
            "gradient_accumulation_steps": configuration.micro_batches,
            "max_target_length": run.tokens,
            "dtype": ELEMENTS.get(run.element_bytes, ELEMENTS[2]),
            "remat_policy": _POLICIES.get(configuration.recompute, "full"),
            "shard_optimizer_over_data": configuration.zero in (STATE, GRADIENTS, HYBRID),
        }
        if configuration.cp > 1:
            settings["context_parallel_strategy"] = "all_gather"
        if axes["expert"] > 1:
            of_tokens = configuration.cp > 1
            settings["expert_shard_attention_option"] = "context" if of_tokens else "fsdp"
        if configuration.pp > 1:
            chunks = blocks_of_chunks(configuration, run)
            settings |= {
                # Its micro-batches are the pipeline's.
                "per_device_batch_size": run.batch / run.devices,
                "gradient_accumulation_steps": 1,
                "num_pipeline_microbatches": configuration.micro_batches,
                "num_layers_per_pipeline_stage": chunks[0],
                "num_pipeline_repeats": configuration.interleave,
            }
        for name, degree in axes.items():
            settings[f"ici_{name}_parallelism"] = inside[name]
            settings[f"dcn_{name}_parallelism"] = degree // inside[name]
        return commented(remarks) + "".join(f"{k}: {v}\n" for k, v in settings.items())


def _axes(configuration: Configuration) -> dict[str, int] | None:
    """Return the degree of each axis, the innermost first.

    None if expert parallelism does not divide the axis that it is a part of.
    """
    context, shards, replicas = configuration.cp, configuration.dp_shard, configuration.dp_replicate
    if configuration.zero in (STATE, GRADIENTS):
        # The axis fsdp shards weights.
        shards, replicas = 1, replicas * shards
    of_one = context if configuration.cp > 1 else shards
    if of_one % configuration.ep:
        return None
    if configuration.cp > 1:
        context //= configuration.ep
    else:
        shards //= configuration.ep
    return {
        "tensor_sequence" if configuration.sp else "tensor": configuration.tp,
        "expert": configuration.ep,
        "context": context,
        "fsdp": shards,
        "data": replicas,
        **({"pipeline": configuration.pp} if configuration.pp > 1 else {}),
    }


def _inside(axes: dict[str, int], run: TrainingRun) -> dict[str, int] | None:
    """Return each axis's degree inside a node; None if the axes do not fill nodes in order."""
    room = min(run.per_node, run.devices)
    inside = {}
    for name, degree in axes.items():
        inside[name] = gcd(degree, room)
        room //= inside[name]
        if room > 1 and inside[name] < degree:
            return None
    return inside if room == 1 else None


def _per_device(configuration: Configuration, run: TrainingRun) -> int | float:
    """Return the sequences of a micro-batch per device."""
    sequences = run.batch // configuration.micro_batches
    return sequences // run.devices if sequences % run.devices == 0 else sequences / run.devices
