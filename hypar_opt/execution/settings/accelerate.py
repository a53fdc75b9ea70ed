"""Settings of Accelerate: the YAML of ``accelerate launch --config_file``.

Source: huggingface/accelerate v1.15.0: src/accelerate/commands/config/config_args.py
(``ClusterConfig``), src/accelerate/commands/launch.py (the keys of ``fsdp_config`` and
``parallelism_config``), and the rules of src/accelerate/parallelism_config.py: sizes multiply to
the processes, FSDP needs a size to shard over, and replicas of nothing sharded go with no tensor or
context parallelism.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from hypar_opt.execution.settings.framework import (
    FULL,
    NONE,
    WEIGHTS,
    Framework,
    commented,
    fully_shard_limits,
    micro_batch_of,
    mirrored,
    recomputed_blocks,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypar_opt.execution.settings.framework import TrainingRun
    from hypar_opt.plan.configuration import Configuration


class Accelerate(Framework):
    """The YAML of accelerate launch."""

    summary: ClassVar[str] = "settings for Accelerate 1.15.0, YAML for accelerate launch"
    sources: ClassVar[tuple[str, ...]] = (
        "huggingface/accelerate v1.15.0: src/accelerate/commands/config/config_args.py,"
        " src/accelerate/commands/launch.py, src/accelerate/parallelism_config.py",
    )
    elsewhere: ClassVar[str] = "the model, loaded by its tp_plan, optimizer, data and machine_rank"
    has_models: ClassVar[bool] = False

    def unexpressed(self, configuration: Configuration, run: TrainingRun) -> Iterator[str]:
        yield from fully_shard_limits(
            configuration, "dp_replicate_size", "dp_shard_size", "fsdp_reshard_after_forward: false"
        )
        if (
            configuration.dp_replicate > 1
            and configuration.dp_shard == 1
            and (configuration.tp > 1 or configuration.cp > 1)
        ):
            yield (
                f"{configuration.dp_replicate} replicas with dp_shard_size 1 and tensor or context"
                " parallelism, which ParallelismConfig refuses"
            )
        if configuration.sp:
            yield "sequence parallelism: the model's tp_plan says what is split"
        if configuration.ep > 1:
            yield f"expert parallelism {configuration.ep}"
        if configuration.recompute not in (NONE, FULL) or configuration.blocks is not None:
            yield (
                f"{recomputed_blocks(configuration, run)}: fsdp_activation_checkpointing is of"
                " every block, whole"
            )
        elif configuration.recompute == FULL and not _fsdp(configuration):
            yield f"{recomputed_blocks(configuration, run)} without FSDP: the model's"
        if configuration.cp > 1:
            yield from mirrored(configuration._replace(sp=False), run, "they")

    def document(self, configuration: Configuration, run: TrainingRun, remarks: list[str]) -> str:
        sizes = {
            "dp_replicate": configuration.dp_replicate,
            "dp_shard": configuration.dp_shard,
            "tp": configuration.tp,
            "cp": configuration.cp,
        }
        fsdp = _fsdp(configuration)
        settings: dict[str, Any] = {
            "compute_environment": "LOCAL_MACHINE",
            "distributed_type": "FSDP" if fsdp else "MULTI_GPU" if run.devices > 1 else "NO",
            "num_machines": run.nodes,
            "num_processes": run.devices,
            "mixed_precision": "no" if run.element_bytes == 4 else "bf16",
        }
        if fsdp:
            settings["fsdp_config"] = {
                "fsdp_version": 2,
                "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
                "fsdp_reshard_after_forward": WEIGHTS in configuration.zero,
                "fsdp_activation_checkpointing": configuration.recompute == FULL,
            }
        if fsdp or configuration.tp > 1:
            mesh: dict[str, Any] = {f"{name}_size": size for name, size in sizes.items()}
            if configuration.cp > 1:
                mesh["cp_comm_strategy"] = "allgather"
            prefixed = {f"parallelism_config_{name}": value for name, value in mesh.items()}
            settings["parallelism_config"] = prefixed
        more = [
            f"In your program: DataLoader(batch_size={micro_batch_of(configuration, run)}),"
            f" Accelerator(gradient_accumulation_steps={configuration.micro_batches})."
        ]
        return commented([*remarks, *more]) + _yaml(settings)


def _fsdp(configuration: Configuration) -> bool:
    """Return whether anything is sharded: over data parallelism, or the parts of sequences."""
    return configuration.dp_shard > 1 or configuration.cp > 1


def _yaml(settings: dict[str, Any]) -> str:
    """Return settings as YAML: scalars, and mappings of scalars."""
    lines = []
    for key, value in settings.items():
        if isinstance(value, dict):
            lines += [f"{key}:", *(f"  {name}: {_scalar(field)}" for name, field in value.items())]
        else:
            lines.append(f"{key}: {_scalar(value)}")
    return "\n".join(lines) + "\n"


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    # A bare no is false.
    return f"'{value}'" if str(value).lower() == "no" else str(value)
