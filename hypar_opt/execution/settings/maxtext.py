"""Settings of MaxText: a YAML file over its base.yml.

A mesh has an axis for each dimension, inside a node (``ici_``) and between nodes (``dcn_``); the
products are the devices of a node and the nodes. The rules of its logical axes shard weights over
``fsdp``, ``context`` and ``expert``, and with ``shard_optimizer_over_data`` the optimizer's state
over ``data``, too.

Source: AI-Hypercomputer/maxtext src/maxtext/configs/base.yml@e6b06efc (keys, ``logical_axis_rules``
and remat policies), src/maxtext/configs/types.py@a2a238f3 (``base_config``, and the batch: of a
device, times the devices, times the accumulation).
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING, Any, ClassVar

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
    commented,
    of_blocks,
)
from hypar_opt.plan.configuration import HYBRID

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypar_opt.execution.settings.framework import TrainingRun
    from hypar_opt.plan.configuration import Configuration

_POLICIES = {FULL: "full", SELECTIVE: "minimal", NONE: "minimal_with_context"}
"""The policy nearest to each kind of recomputation."""


class MaxText(Framework):
    """A YAML file over MaxText's base.yml."""

    summary: ClassVar[str] = "settings for MaxText, YAML over its base.yml"
    sources: ClassVar[tuple[str, ...]] = (
        "AI-Hypercomputer/maxtext src/maxtext/configs/base.yml@e6b06efc,"
        " src/maxtext/configs/types.py@a2a238f3",
    )
    elsewhere: ClassVar[str] = "model_name, hardware, attention, optimizer, data"

    def unexpressed(self, own: Configuration, run: TrainingRun) -> Iterator[str]:
        if own.zero == GRADIENTS:
            yield "gradients sharded and weights whole (ZeRO-2)"
        elif own.zero in (NOTHING, STATE) and max(own.cp, own.ep) > 1:
            yield "weights whole in context or expert parallelism: both axes shard them"
        if own.zero == STATE and own.dp_replicate > 1:
            yield f"{own.dp_replicate} replicas of a sharded state: it is sharded over all"
        if own.recompute == NONE:
            yield (
                "no recomputation: with minimal_with_context norms and activations are computed"
                " again"
            )
        elif own.recompute == SELECTIVE:
            yield (
                f"{of_blocks(own, run)}: with minimal norms and activations are computed again, too"
            )
        elif own.blocks is not None or own.recompute != FULL:
            yield f"{of_blocks(own, run)}: layers are scanned, all alike"
        if own.tp > 1 and not own.sp:
            yield (
                "tensor parallelism that leaves norms whole: the axis tensor splits them by"
                " feature, tensor_sequence by token"
            )
        axes = _axes(own)
        if axes is None and own.zero in (WEIGHTS, HYBRID):
            yield (
                f"expert parallelism {own.ep} of a part of cp {own.cp} and dp_shard"
                f" {own.dp_shard}: it is of one of them"
            )
        elif axes and _inside(axes, run) is None:
            yield f"degrees that do not fill nodes of {run.per_node}"
        if own.cp > 1 and run.tokens % (2 * own.cp):
            yield f"{run.tokens:,} tokens: they should be a multiple of {2 * own.cp}"
        if int(run.devices * _per_device(own, run)) * own.micro_batches != run.batch:
            yield f"{_per_device(own, run)!r} sequences per device, which are rounded down"

    def document(self, own: Configuration, run: TrainingRun, remarks: list[str]) -> str:
        axes = _axes(own) or _axes(own._replace(ep=1))
        assert axes is not None
        inside = _inside(axes, run) or dict.fromkeys(axes, 1)
        settings: dict[str, Any] = {
            "base_config": "base.yml",
            "per_device_batch_size": _per_device(own, run),
            "gradient_accumulation_steps": own.micro_batches,
            "max_target_length": run.tokens,
            "dtype": ELEMENTS.get(run.element_bytes, ELEMENTS[2]),
            "remat_policy": _POLICIES.get(own.recompute, "full"),
            "shard_optimizer_over_data": own.zero in (STATE, GRADIENTS, HYBRID),
        }
        if own.cp > 1:
            settings["context_parallel_strategy"] = "all_gather"
        if axes["expert"] > 1:
            of_tokens = own.cp > 1
            settings["expert_shard_attention_option"] = "context" if of_tokens else "fsdp"
        for name, degree in axes.items():
            settings[f"ici_{name}_parallelism"] = inside[name]
            settings[f"dcn_{name}_parallelism"] = degree // inside[name]
        return commented(remarks) + "".join(f"{k}: {v}\n" for k, v in settings.items())


def _axes(own: Configuration) -> dict[str, int] | None:
    """Return the degree of each axis, the innermost first; None if experts are of two of them."""
    context, shards, replicas = own.cp, own.dp_shard, own.dp_replicate
    if own.zero in (STATE, GRADIENTS):
        # The axis fsdp shards weights.
        shards, replicas = 1, replicas * shards
    of_one = context if own.cp > 1 else shards
    if of_one % own.ep:
        return None
    if own.cp > 1:
        context //= own.ep
    else:
        shards //= own.ep
    return {
        "tensor_sequence" if own.sp else "tensor": own.tp,
        "expert": own.ep,
        "context": context,
        "fsdp": shards,
        "data": replicas,
    }


def _inside(axes: dict[str, int], run: TrainingRun) -> dict[str, int] | None:
    """Return how much of each axis is inside a node; None if the nodes are not filled in order."""
    room = min(run.per_node, run.devices)
    inside = {}
    for name, degree in axes.items():
        inside[name] = gcd(degree, room)
        room //= inside[name]
        if room > 1 and inside[name] < degree:
            return None
    return inside if room == 1 else None


def _per_device(own: Configuration, run: TrainingRun) -> int | float:
    """Return the sequences of a micro-batch by devices."""
    sequences = run.batch // own.micro_batches
    return sequences // run.devices if sequences % run.devices == 0 else sequences / run.devices
