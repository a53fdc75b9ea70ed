"""The calculated time of a measured step: a network, its machine, and its degrees."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hypar_opt.costs.stage_messages import tied_reductions
from hypar_opt.documents.files import is_standard_input
from hypar_opt.errors import HyparError, InputError
from hypar_opt.instance.stage import stage_context
from hypar_opt.models import find_network
from hypar_opt.models.gpt import gpt
from hypar_opt.plan.megatron import gathered_again, roles
from hypar_opt.plan.problem import ArrayRecord
from hypar_opt.plan.strategies import all_degrees, expert_parallelism, pins_within
from hypar_opt.planning.solve import solve
from hypar_opt.simulator.pipeline import pipeline_step
from hypar_opt.simulator.pipeline_order import in_flight, orders
from hypar_opt.studies.memory import memory
from hypar_opt.studies.simulation import RunArguments, simulated_passes, simulated_times
from hypar_opt.studies.validation.machines import array_of
from hypar_opt.studies.validation.rows import (
    FURTHER_SHAPE,
    GATED_COLUMNS,
    NOT_MODELLED,
    NUMBERS,
    SETTINGS,
    SHAPE,
    TRUTHS,
    UNKNOWN,
    WORDS,
    setting,
)
from hypar_opt.studies.validation.staged import schedule_of, stages_of_row
from hypar_opt.workload.operators.attention import HEADS
from hypar_opt.workload.operators.axes import DATA_CHOICE, EXPERTS, REPLICATED
from hypar_opt.workload.parallelism import CHOICES, SHARDED
from hypar_opt.workload.sequence_length import with_tokens
from hypar_opt.workload.stages import kinds_of_layers, stage_of
from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from hypar_opt.costs.stage_messages import TiedReduction
    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.plan import Plan
    from hypar_opt.simulator.pipeline import StagePasses
    from hypar_opt.simulator.step import StepTimes
    from hypar_opt.studies.validation.machines import Machines
    from hypar_opt.studies.validation.rows import Row
    from hypar_opt.workload.network import Network

HALF_PRECISION = ("fp16", "bf16", "amp_fp16", "amp_bf16")
ELEMENT_BYTES = 2

MAX_LAYERS = 10_000
"""The maximum layers of a network, blocks expanded: some seconds per row."""

_LAYERS_OF_A_BLOCK = 9
"""The minimum layers of a GPT's block."""


Thing = TypeVar("Thing")
_Keyed = tuple["Hashable", Thing]
"""A value shared by several rows, with its cache key."""


class NotModelledError(HyparError):
    """The error of a measured step of a kind that is not modelled; the message says which."""


class CalculatedStep(NamedTuple):
    """A calculated step: its seconds, and the bytes of an accelerator."""

    seconds: float
    bytes: int


@contextmanager
def _not_modelled() -> Iterator[None]:
    """Turn a refusal inside into the reason why a step is not modelled."""
    try:
        yield
    except NotModelledError:
        raise
    except InputError as error:
        where = f"{error.where}: " if error.where else ""
        raise NotModelledError(f"{where}{error.problem}") from None
    except HyparError as error:
        raise NotModelledError(str(error)) from None


class Calculator:
    """Calculates measured steps; shares what several of them have in common.

    Parameters
    ----------
    folder
        The folder of the network files that rows name.
    """

    def __init__(self, folder: Path = Path()) -> None:
        self._folder = folder
        self._networks: dict[Hashable, Network] = {}
        self._arrays: dict[Hashable, Array] = {}
        self._plans: dict[Hashable, Plan] = {}
        self._times: dict[Hashable, StepTimes] = {}
        self._passes: dict[Hashable, StagePasses] = {}
        self._bytes: dict[Hashable, int] = {}

    def step(self, row: Row, machines: Machines) -> CalculatedStep:
        """Return the step of a row's settings.

        Raises
        ------
        NotModelledError
            With what is not modelled.
        """
        case = self._row_stages(row, machines)
        # Of equal stages, later ones hold less.
        fullest = max(map(self._device_bytes, case.stages))
        return CalculatedStep(self._seconds(case), fullest)

    def seconds(self, row: Row, machines: Machines) -> float:
        """Return the seconds of `step` alone."""
        return self._seconds(self._row_stages(row, machines))

    def _seconds(self, case: _CalculatedRow) -> float:
        count = case.stages[0].run["micro_batches"]
        with _not_modelled():
            if len(case.stages) == 1:
                return self._cached(self._times, case.stages[0], simulated_times).of(count)
            passes = [self._cached(self._passes, stage, simulated_passes) for stage in case.stages]
            return pipeline_step(passes, case.schedule, count, tied=case.tied).seconds

    def _cached(
        self, cache: dict[Hashable, Thing], stage: _RowStage, simulated: Callable[..., Thing]
    ) -> Thing:
        """Return a stage's simulation, for any number of micro-batches, cached."""
        if stage.key not in cache:
            cache[stage.key] = simulated(stage.plan, stage.array, **stage.run)
        return cache[stage.key]

    def _device_bytes(self, stage: _RowStage) -> int:
        """Return the bytes of memory of a stage's accelerator."""
        key = (*stage.key, stage.has_several, stage.plan.problem.in_flight)
        if key not in self._bytes:
            run: dict[str, Any] = {k: v for k, v in stage.run.items() if k != "early_stop"}
            with _not_modelled():
                self._bytes[key] = memory(stage.plan, stage.array, **run).total
        return self._bytes[key]

    def _row_stages(self, row: Row, machines: Machines) -> _CalculatedRow:
        """Return the plans of a row's settings, their arrays, and how its step trains."""
        check_modelled(row, machines)
        zero, early = row.get("zero", ""), row.get("early_stop", "")
        shard = row.get("shard", "") or SHARDED[zero]  # ZeRO's stages in their order
        # Sharded gradients and weights mean FSDP, which overlaps exchanges with computation;
        # otherwise all gradients are reduced after the last micro-batch, as one bucket.
        is_fsdp = any(word in shard for word in SHARDED[2:])
        keys: dict[str, Any] = {"overlap": "prefetch"} if is_fsdp else {"bucket": "1 TB"}
        flash = setting(row, "attention") != "megatron"
        run = RunArguments(
            micro_batches=row["gbs"] // (row["mbs"] * row["dp"]),
            recompute=setting(row, "recompute"),
            shard=shard,
            early_stop=is_fsdp if early == "" else early,
            # Sequence parallelism splits tokens evenly, which the plan expresses as a split of the
            # batch.
            exact_shares=True,
        )
        if (reduced := row.get("reduce", "")) != "":
            run["reduce_bytes"] = reduced
        with _not_modelled():
            name, count = row["machine"], row["gpus"]
            array_key = count, flash, is_fsdp, repr(machines[name])
            if array_key not in self._arrays:
                self._arrays[array_key] = array_of(machines, name, count, fused=flash, **keys)
            network, array = self._network(row), (array_key, self._arrays[array_key])
            _check_split(row, network[1])
            if row["pp"] == 1:
                return _CalculatedRow((self._stage(row, network, array, run),))
            if count == row["pp"]:
                part = array_of(machines, name, 1, fused=flash, **keys)
            else:
                part = array[1].part(row["pp"])
            return self._in_stages(row, network, array, ArrayRecord.of(part), run)

    def _stage(
        self, row: Row, network: _Keyed[Network], array: _Keyed[Array], run: RunArguments
    ) -> _RowStage:
        """Return the plan of a stage, or of a network without any, on its accelerators."""
        plan_key, plan = self._plan(row, network, array[1].hierarchy().sizes)
        if row["sp"] and row["tp"] > 1 and (again := gathered_again(network[1])):
            run = RunArguments(**run, gather=again)
        trained = (run.get(name) for name in ("shard", "recompute", "early_stop", "reduce_bytes"))
        # The same choices for another batch; of the plan's cost nothing is read.
        plan = plan.model_copy(update={"batch": row["gbs"]})
        return _RowStage((plan_key, array[0], row["mbs"], *trained), plan, array[1], run)

    def _in_stages(
        self,
        row: Row,
        network: _Keyed[Network],
        array: _Keyed[Array],
        part: ArrayRecord,
        run: RunArguments,
    ) -> _CalculatedRow:
        """Return the plans of a row's stages; equal stages share one.

        Parameters
        ----------
        part
            The part of the array that each stage has.
        """
        (network_key, whole), (array_key, machine) = network, array
        count, parts, schedule = run["micro_batches"], row["pp"], schedule_of(row)
        stages = stages_of_row(whole, row, count)
        # Stages of whole nodes have equal links; others as in the first node.
        size = part.description.interconnect.accelerators
        positions = max(1, machine.description()["topology"]["per_node"] // size)
        inside = [machine.stage_link(number, parts) for number in range(positions)]
        links = [inside[number % len(inside)] for number in range(parts)]
        kinds = kinds_of_layers(whole)
        stages_by_key: dict[Hashable, _RowStage] = {}
        stages_in_order = []
        for number, order in enumerate(orders(schedule, parts, count, stages.chunks)):
            chunks, sides = stages.chunks_of(number), (links[number - 1], links[number])
            key = tuple(kinds[chunk.start : chunk.stop] for chunk in chunks), sides
            if key not in stages_by_key:
                stage_network = stage_of(whole, chunks)
                on = (array_key, parts, sides), part.description
                stage = self._stage(row, ((network_key, key[0]), stage_network), on, run)
                kept_batches = in_flight(order, [len(chunk) for chunk in chunks])
                update: dict[str, Any] = {
                    "stage": stage_context(whole, stage_network, chunks, kept_batches, *sides)
                }
                if part.description.levels:
                    update |= {"array": part, "placement": part.description.placement}
                stages_by_key[key] = stage._replace(plan=stage.plan.model_copy(update=update))
            stages_in_order.append(stages_by_key[key])
        reduced = run.get("reduce_bytes", ELEMENT_BYTES)
        # Replicas of Megatron-LM each reduce all that they hold.
        tied = tied_reductions(stages, machine, reduced, copies=size // row["tp"])
        return _CalculatedRow(tuple(stages_in_order), schedule, tied)

    def _network(self, row: Row) -> tuple[Hashable, Network]:
        """Return a row's network, and its key."""
        name = row.get("network", "")
        shape_columns = *SHAPE, *FURTHER_SHAPE, *GATED_COLUMNS, "positions", "dropout", "attention"
        key = name, *(row.get(column, "") for column in shape_columns)
        if key not in self._networks:
            self._networks[key] = self._named(name, row) if name else _gpt_of_row(row)
        return key, self._networks[key]

    def _named(self, name: str, row: Row) -> Network:
        """Return a network of the zoo, of a file beside that of the rows, or of ``gpt:``'s keys."""
        if is_standard_input(name):
            raise NotModelledError(f"network: should be a name or a file, got {name!r}")
        beside = [self._folder / folder / name for folder in ("", "networks")]
        files = [
            path.with_name(path.name + end)
            for path in beside
            for end in ("", ".toml")
            if path.with_name(path.name + end).is_file()
        ]
        try:
            network = find_network(files[0] if files else name)
            if len(network.layers) > MAX_LAYERS:
                raise HyparError(_too_many(f"{len(network.layers):,} layers"))
            tokens = row.get("seq", "")
            return network if tokens == "" else with_tokens(network, tokens)
        except HyparError as error:
            # Without the list of all networks, which does not belong in a reason.
            raise NotModelledError(f"network: {str(error).partition(' known: ')[0]}") from None

    def _plan(self, row: Row, network: _Keyed[Network], sizes: tuple[int, ...]) -> _Keyed[Plan]:
        """Return the plan of tensor inside context inside data parallelism, and its key.

        Parameters
        ----------
        sizes
            The parts of each level.
        """
        degrees = row["tp"], row.get("cp", "") or 1, row.get("ep", "") or 1
        how = row["sp"], setting(row, "optimizer") or "adam"
        key = network[0], sizes, degrees, how
        if key not in self._plans:
            self._plans[key] = _plan(
                *(network[1], sizes, *degrees), sequence_parallel=how[0], optimizer=how[1]
            )
        return key, self._plans[key]


def _plan(
    network: Network,
    sizes: tuple[int, ...],
    tp: int,
    cp: int = 1,
    ep: int = 1,
    *,
    sequence_parallel: bool,
    optimizer: str = "adam",
) -> Plan:
    """Return the plan of tensor inside context inside data parallelism, on levels of some parts.

    Experts are split between parts that split the batch.
    """
    inner_parts, within, shown = all_degrees(sizes), 1, ""
    for name, degree in (("tp", tp), ("cp", cp), ("ep", ep)):
        within, shown = within * degree, f"{shown} times {name} {degree}" if shown else f"tp {tp}"
        if within not in inner_parts:
            got = tp if name == "tp" else shown
            parts = f"should be the parts of inner levels of {sizes}"
            raise NotModelledError(f"{name}: {parts}, got {got}")
    choices = CHOICES + ("tokens",) * (cp > 1) + ("experts",) * (ep > 1)
    pins: list[str] = []
    if within > 1:
        of_experts = ep > 1 and expert_parallelism(network)  # not of each stage
        degrees = {"expert": ep if of_experts else 1, "context": cp, "megatron": tp}
        inner = {name: degree for name, degree in degrees.items() if degree > 1}
        pins += pins_within(network, sizes, inner)
        workload = workload_of(network, 1, choices, shared_tensors=True)
        layers = [*zip(network.layers, roles(network, workload)[workload.shared :], strict=True)]
        above = {degree: len(sizes) - inner_parts.index(degree) for degree in (within, tp * cp, tp)}
        # Norms, residuals and messages are whole, or split by token, for which images stand.
        nodes = [
            node.name
            for node, role in layers
            if tp > 1 and REPLICATED in node.choices.values() and role.tp == REPLICATED.word
        ]
        word = DATA_CHOICE.word if sequence_parallel else REPLICATED.word
        pins += _named(nodes, word, range(above[tp], len(sizes)))
        for word in (DATA_CHOICE.word, EXPERTS.word) if of_experts else ():
            experts = [
                x.name
                for x, role in layers
                if (role.ep or DATA_CHOICE.word) == word and not x.axes.weight
            ]
            pins += _named(experts, word, range(above[within], above[tp * cp]))
    return solve(
        network,
        # Where nothing but the batch is split there is nothing to search.
        solver=None if pins else "data",
        hierarchy=sizes,
        whole_levels=True,
        batch=prod(sizes),
        element_bytes=ELEMENT_BYTES,
        choices=choices,
        reading="executed",
        constraints={"fix": pins, "optimizer": optimizer},
    )


def _named(names: Sequence[str], word: str, levels: Iterable[int]) -> Iterator[str]:
    """Yield pins of layers at some levels, ``*`` for the number of a block."""
    for name in sorted({re.sub(r"[.]\d+[.]", ".*.", name) for name in names}):
        yield from (f"{name}@H{level + 1}={word}" for level in levels)


class _RowStage(NamedTuple):
    """The plan of a stage (or of an unstaged network), its array and its run's settings.

    Parameters
    ----------
    key
        Equal for steps that differ only in the number of micro-batches.
    """

    key: tuple[Hashable, ...]
    plan: Plan
    array: Array
    run: RunArguments

    @property
    def has_several(self) -> bool:
        """Whether gradients of several micro-batches are added up."""
        return self.run["micro_batches"] > 1


class _CalculatedRow(NamedTuple):
    """The inputs of the simulation of a row's step.

    Parameters
    ----------
    stages
        In order; a single one for an unstaged network.
    schedule
        Of their passes.
    tied
        Sums of gradients of weights that several have.
    """

    stages: tuple[_RowStage, ...]
    schedule: str = ""
    tied: tuple[TiedReduction, ...] = ()


def _gpt_of_row(row: Row) -> Network:
    """Return the GPT of a row's sizes."""
    further: dict[str, Any] = {
        column: row[column] for column in FURTHER_SHAPE if row.get(column, "") != ""
    }
    further |= {column: row[column] for column in GATED_COLUMNS if row.get(column, "") != ""}
    dropout = row.get("dropout", "")
    return gpt(
        **{name: row[name] for name in ("layers", "hidden", "heads")},
        tokens=row["seq"],
        vocabulary=row["vocab"],
        dropout=setting(row, "attention") == "megatron" if dropout == "" else dropout > 0,
        rotary=setting(row, "positions") == "rotary",
        **further,
    )


def check_modelled(row: Row, machines: Machines) -> None:
    """Check that a row's settings are stated, and are modelled.

    Raises
    ------
    NotModelledError
        With the column.
    """
    for name in SETTINGS:
        _check_stated(row, name)
    _check_shape(row)
    for name in (*NUMBERS, *TRUTHS, "zero", "dropout", "cuts"):
        value = row.get(name, "")
        if value == "?":
            raise NotModelledError(f"{name}: is not stated")
        if name == "cuts":
            continue
        if isinstance(value, str) and value:
            kind = "true or false" if name in TRUTHS else "a number"
            raise NotModelledError(f"{name}: should be {kind}, got {value!r}")
    if row["machine"] not in machines:
        raise NotModelledError(f"machine: {row['machine']!r} is not described")
    for name, words in WORDS.items():
        value = setting(row, name)
        if row.get(name, "") in UNKNOWN:
            if row.get(name, "") == "?":
                raise NotModelledError(f"{name}: is not stated")
        elif value not in words:
            wanted = f"{', '.join(words[:-1])} or {words[-1]}"
            raise NotModelledError(f"{name}: should be {wanted}, got {row[name]!r}")
    if setting(row, "precision") not in HALF_PRECISION:
        raise NotModelledError(f"precision: {row['precision']!r} is not one of half precision")
    if row["pp"] == 1:
        for name in ("interleave", "cuts", "schedule", "balance"):
            if row.get(name, "") not in ("", 1):
                raise NotModelledError(f"{name}: should be empty without stages, got {row[name]!r}")
    for name, why in NOT_MODELLED.items():
        if row.get(name, "") not in ("", 1):
            raise NotModelledError(f"{name}: {why}, here {row[name]}")
    if not row.get("shard", ""):
        _check_stated(row, "zero")
    degrees = {name: row.get(name, "") or 1 for name in ("tp", "cp", "pp", "dp")}
    if prod(degrees.values()) != row["gpus"]:
        some = {
            name: degree for name, degree in degrees.items() if name in ("tp", "dp") or degree > 1
        }
        wanted = " times ".join(f"{name} {degree}" for name, degree in some.items())
        raise NotModelledError(f"gpus: should be {wanted}, got {row['gpus']}")
    if row["dp"] % (ep := row.get("ep", "") or 1):
        raise NotModelledError(f"ep: should divide dp {row['dp']}, got {ep}")
    if row["gbs"] % (row["mbs"] * row["dp"]):
        raise NotModelledError(
            f"gbs: should be whole micro-batches of mbs {row['mbs']} times dp {row['dp']}, got"
            f" {row['gbs']}"
        )


def _check_split(row: Row, network: Network) -> None:
    """Check that a network has the axes that its row's degrees split."""
    attention = any(HEADS in layer.splits.values() for layer in network.layers)
    for name in ("tp", "cp"):
        if row.get(name, "") not in ("", 1) and not attention:
            raise NotModelledError(f"{name}: should be 1 for a network without attention")
    if row.get("ep", "") not in ("", 1) and not expert_parallelism(network):
        raise NotModelledError("ep: should be 1 for a network without experts")


def _check_stated(row: Row, name: str) -> None:
    if row.get(name, "") in UNKNOWN:
        raise NotModelledError(f"{name}: is not stated")


def _check_shape(row: Row) -> None:
    """Check that a network is stated once: by ``network``, or by its sizes."""
    name = row.get("network", "")
    if name == "?":
        raise NotModelledError("network: is not stated")
    if not name:
        for column in SHAPE:
            _check_stated(row, column)
        layers = row["layers"]
        if isinstance(layers, int) and layers * _LAYERS_OF_A_BLOCK > MAX_LAYERS:
            raise NotModelledError(f"layers: {_too_many(f'{layers:,} blocks')}")
        return
    sizes = (
        *(column for column in SHAPE if column != "seq"),
        *FURTHER_SHAPE,
        *GATED_COLUMNS,
        "positions",
    )
    for column in sizes:
        if row.get(column, "") != "":
            problem = f"should be empty where network names one, got {row[column]!r}"
            raise NotModelledError(f"{column}: {problem}")


def _too_many(what: str) -> str:
    return f"{what} are not calculated, but networks of at most {MAX_LAYERS:,} layers"
