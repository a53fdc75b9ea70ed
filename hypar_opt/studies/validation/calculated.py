"""The calculated time of a measured step: a GPT, its machine, and Megatron-LM's degrees."""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

from hypar_opt.errors import HyparError, InputError
from hypar_opt.models.gpt import gpt
from hypar_opt.pipeline import solve
from hypar_opt.plan.strategies import strategy_pins
from hypar_opt.studies.simulation import RunArguments, simulate, simulated_seconds
from hypar_opt.studies.validation.machines import array_of
from hypar_opt.studies.validation.rows import SETTINGS, UNKNOWN, WORDS, setting
from hypar_opt.workload.operators.axes import REPLICAS
from hypar_opt.workload.parallelism import CHOICES, SHARDED

if TYPE_CHECKING:
    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.plan import Plan
    from hypar_opt.simulator.result import StepResult
    from hypar_opt.studies.validation.machines import Machines
    from hypar_opt.studies.validation.rows import Row
    from hypar_opt.workload.network import Network

HALF_PRECISION = ("fp16", "bf16", "amp_fp16", "amp_bf16")
ELEMENT_BYTES = 2


class NotModelledError(HyparError):
    """A measured step is of a kind that is not calculated; the message says which."""


def step_of(row: Row, machines: Machines) -> StepResult:
    """Return the simulated step of a row's settings.

    Raises
    ------
    NotModelledError
        Saying what is not modelled.
    """
    plan, array, run = _asked(row, machines)
    return simulate(plan, array, **run)


def seconds_of(row: Row, machines: Machines) -> float:
    """Return the seconds of `step_of`, without what else a step says."""
    plan, array, run = _asked(row, machines)
    return simulated_seconds(plan, array, **run)


def _asked(row: Row, machines: Machines) -> tuple[Plan, Array, RunArguments]:
    """Return the plan of a row's settings, its array, and how its step trains."""
    _check(row, machines)
    flash = setting(row, "attention") == "flash"
    # Sharded gradients and weights are of FSDP, which runs exchanges beside the computation; else
    # all gradients are reduced after the last micro-batch, as one tensor.
    of_fsdp, early = row["zero"] > 1, row.get("early_stop", "")
    keys = {"overlap": "gradient"} if of_fsdp else {"bucket": "1 TB"}
    try:
        array = array_of(machines, row["machine"], row["gpus"], fused=flash, **keys)
    except InputError as error:
        raise NotModelledError(f"{error.where}: {error.problem}") from None
    plan = _plan(_network(row), array.hierarchy().sizes, row["tp"], sequence_parallel=row["sp"])
    run = RunArguments(
        micro_batches=row["gbs"] // (row["mbs"] * row["dp"]),
        recompute=setting(row, "recompute"),
        shard=SHARDED[row["zero"]],  # ZeRO's stages in their order
        early_stop=of_fsdp if early in UNKNOWN else early,
        # Sequence parallelism splits tokens evenly; here images stand for them.
        exact_shares=True,
    )
    # The same choices for another batch; of the plan's cost nothing is read.
    return plan.model_copy(update={"batch": row["gbs"]}), array, run


def _check(row: Row, machines: Machines) -> None:
    missing = [name for name in SETTINGS if row[name] in UNKNOWN]
    if missing:
        raise NotModelledError(f"{missing[0]}: is not stated")
    if row["machine"] not in machines:
        raise NotModelledError(f"machine: {row['machine']!r} is not described")
    for name, words in WORDS.items():
        if setting(row, name) not in words:
            wanted = f"{', '.join(words[:-1])} or {words[-1]}"
            raise NotModelledError(f"{name}: should be {wanted}, got {row[name]!r}")
    if setting(row, "precision") not in HALF_PRECISION:
        raise NotModelledError(f"precision: {row['precision']!r} is not one of half precision")
    if row["pp"] > 1:
        raise NotModelledError(f"pp: pipeline stages are not modelled, here {row['pp']}")
    if row["tp"] * row["dp"] != row["gpus"]:
        degrees = f"tp {row['tp']} times dp {row['dp']}"
        raise NotModelledError(f"gpus: should be {degrees}, got {row['gpus']}")
    if row["gbs"] % (row["mbs"] * row["dp"]):
        raise NotModelledError(
            f"gbs: should be whole micro-batches of mbs {row['mbs']} times dp {row['dp']}, got"
            f" {row['gbs']}"
        )


def _network(row: Row) -> Network:
    try:
        return _gpt(
            **{name: row[name] for name in ("layers", "hidden", "heads")},
            tokens=row["seq"],
            vocabulary=row["vocab"],
            dropout=setting(row, "attention") == "megatron",
        )
    except HyparError as error:
        raise NotModelledError(str(error)) from None


_gpt = lru_cache(maxsize=64)(gpt)


@lru_cache(maxsize=64)
def _plan(
    network: Network, sizes: tuple[int, ...], degree: int, *, sequence_parallel: bool
) -> Plan:
    """Return the plan of tensor parallelism inside data parallelism, on levels of some parts."""
    outer = next((n for n in range(len(sizes) + 1) if prod(sizes[n:]) == degree), None)
    if outer is None:
        raise NotModelledError(f"tp: should be the parts of inner levels of {sizes}, got {degree}")
    pins = list(strategy_pins(network, sizes, "megatron", degree))
    if not sequence_parallel:
        # Norms and residuals are whole on each accelerator of a tensor-parallel group.
        whole = {
            re.sub(r"[.]\d+[.]", ".*.", layer.name)
            for layer in network.layers
            if REPLICAS in layer.choices.values()
        }
        levels = range(outer + 1, len(sizes) + 1)
        pins += [f"{name}@H{n}={REPLICAS.word}" for name in sorted(whole) for n in levels]
    return solve(
        network,
        hierarchy=sizes,
        whole_levels=True,
        batch=prod(sizes),
        element_bytes=ELEMENT_BYTES,
        choices=CHOICES,
        reading="executed",
        constraints={"fix": pins, "optimizer": "adam"},
    )
