"""A staged plan as a PyTorch pipeline: its schedule, chunks of modules, and messages.

Inside, all stages are on one mesh, below the dimension ``pp``: so they are one program, as a plan
without stages is, and names of modules say which stage each of them is in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypar_opt.errors import RefusedError
from hypar_opt.execution.torch.modules import REPLICATE, as_tuple, modules_of, placements
from hypar_opt.execution.torch.rules import has_module
from hypar_opt.execution.torch.shards import sharding_words
from hypar_opt.execution.torch.tables import quoted
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.plan.micro_batch import micro_batch_of
from hypar_opt.plan.plan import columns_of
from hypar_opt.plan.stored_layouts import rows_with_stored, tensor_columns
from hypar_opt.sharding.program import Program
from hypar_opt.workload.parallelism import choices_below_h1
from hypar_opt.workload.patterns import words_by_layer
from hypar_opt.workload.stages import cuts_between_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypar_opt.execution.torch.flow import Flow
    from hypar_opt.plan.plan import Plan
    from hypar_opt.plan.stages import Stages
    from hypar_opt.sharding.conversions import Layouts

_SCHEDULES = {"1f1b": "1F1B", "gpipe": "GPipe", "zb-h1": "InterleavedZeroBubble"}
"""The names of schedules in ``torch.distributed.pipelining``; of one chunk a device
InterleavedZeroBubble has the passes of ZB-H1, in its order."""


@dataclass(frozen=True)
class Pipeline:
    """A staged plan in the terms of PyTorch's pipelining.

    Parameters
    ----------
    schedule
        Its name there.
    modules
        The modules of each chunk: the outermost ones that have no layer of another chunk, and the
        items of lists one by one.
    """

    stages: Stages
    schedule: str
    micro_batches: int
    modules: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, plan: Plan, stages: Stages) -> Pipeline:
        """Return the pipeline of a plan.

        Raises
        ------
        HyparError
            If a stage begins inside a block, has no module or reads ids, or if PyTorch's schedule
            takes no such number of micro-batches.
        """
        micro_batches = plan.training.micro_batches or 1
        schedule = _SCHEDULES[plan.training.schedule]
        _check_micro_batches(schedule, stages, micro_batches)
        if stages.chunks > 1:
            schedule = f"Interleaved{schedule}"
        _check_borders(stages)
        _check_ties(plan, stages)
        return cls(stages, schedule, micro_batches, _modules(stages))

    def tables(self, flow: Flow) -> Iterator[str]:
        """Yield the constants of a file: the pipeline, tied weights, and what crosses borders."""
        yield "\n# A stage is a chunk of the model on one process of pp; modules are each chunk's."
        yield "PIPELINE = {"
        yield f'    "degree": {self.stages.parts},'
        yield f'    "schedule": {quoted(self.schedule)},'
        yield f'    "micro_batches": {self.micro_batches},'
        yield f'    "chunks": {self.stages.chunks},'
        yield '    "modules": ['
        for names in self.modules:
            yield f"        [{', '.join(map(quoted, names))}],"
        yield "    ],"
        begins = (f'{quoted(names[0])}: "BEGINNING"' for names in self.modules[1:])
        yield f'    "split_spec": {{{", ".join(begins)}}},'
        yield "}"
        if self.stages.tied:
            yield "\n# Weights that stages share: the layer that has each, by its stage."
            yield "TIED = ["
            for by_stage in _tied(self.stages):
                entries = (f"{part}: {quoted(name)}" for part, name in by_stage.items())
                yield f"    {{{', '.join(entries)}}},"
            yield "]"
        if flow.mesh.tensor:
            yield "\n# The placements of what each chunk but the last sends to the next one."
            yield "SENT = ["
            for border in self.stages.borders:
                layouts = flow.layers[border.writer].leaves
                yield f"    {as_tuple(placements(layouts, border.map))},"
            yield "]"

    def exchanged_whole(self, flow: Flow) -> list[str]:
        """Return the replicated layers that share weights with other stages."""
        names = [name for by_stage in _tied(self.stages) for name in by_stage.values()]
        words, weights = (
            sharding_words(flow),
            {module.name: module.weight for module in modules_of(flow)},
        )
        whole = {name for name in names if REPLICATE in weights[name]}
        if flow.mesh.data:
            whole |= {name for name in names if words[name] == "none"}
        return [name for name in names if name in whole]


def program_inside(plan: Plan) -> Program:
    """Return one program of all stages of a plan, on the accelerators of one stage."""
    network, levels = plan.network.description, plan.levels - 1
    choices = choices_below_h1(plan.choices)
    problem = plan.problem.model_copy(update={"choices": choices})
    workload = micro_batch_of(problem, network, shared_tensors=True)
    stored = {name: layouts[1:] for name, layouts in (plan.layouts or {}).items()}
    columns = columns_of(plan.parallelism[1:], network.words(choices))
    rows = rows_with_stored(workload, columns, tensor_columns(workload, stored, levels))
    return Program(workload, rows, Hierarchy(plan.hierarchy.sizes[1:]), joined=plan.joins_levels)


def sent(plan: Plan, stages: Stages) -> Mapping[int, Layouts]:
    """Return the layouts, at each level below H1, of messages between chunks."""
    writers = (border.writer for border in stages.borders)
    return {writer: (plan.layouts or {})[plan.layers[writer]][1:] for writer in writers}


def _check_micro_batches(schedule: str, stages: Stages, count: int) -> None:
    """Check that PyTorch's schedule accepts the number of micro-batches."""
    if schedule == "1F1B" and count < stages.parts:
        raise RefusedError(
            f"PyTorch's Schedule1F1B takes {stages.parts} micro-batches or more for"
            f" {stages.parts} stages, got {count}; gpipe takes any"
        )
    rounds = max(1, count // stages.parts)
    if schedule == "InterleavedZeroBubble" and count % rounds:
        raise RefusedError(
            f"PyTorch's ScheduleInterleavedZeroBubble takes micro-batches in multiples of"
            f" {rounds} for {stages.parts} stages, got {count}"
        )


def _check_borders(stages: Stages) -> None:
    """Check that every chunk begins where a module does."""
    network = stages.network
    between = {*cuts_between_blocks(network)}
    for layers in stages.layers[1:]:
        name = network.layers[layers.start].name
        if layers.start not in between:
            raise RefusedError(
                f"a stage begins with layer {name!r}, inside a block, and PyTorch's have whole"
                " modules: stages that are cut between blocks have a file"
            )
        for position in layers:
            layer = network.layers[position]
            if layer.reads_ids:
                raise RefusedError(
                    f"layer {layer.name!r} reads ids, which PyTorch's pipelining hands to the first"
                    " stage alone"
                )


def _check_ties(plan: Plan, stages: Stages) -> None:
    """Check that a device's chunks share no weights, and that shared ones are sharded equally."""
    layers = stages.network.layers
    chunk = {
        layers[n].name: c for c, chunk_layers in enumerate(stages.layers) for n in chunk_layers
    }
    for layer in layers:
        owner = layer.shares_weights_with
        if owner is None or chunk[owner] == chunk[layer.name]:
            continue
        if (chunk[owner] - chunk[layer.name]) % stages.parts == 0:
            raise RefusedError(
                f"layers {owner!r} and {layer.name!r} share a weight in two chunks of one stage,"
                " and the file for PyTorch adds up those of different stages alone"
            )
    shard = words_by_layer(plan.training.shard, plan.layers, "shard")
    words = dict(zip(plan.layers, shard, strict=True))
    for tied in _tied(stages):
        if len({words[name] or "none" for name in tied.values()}) > 1:
            raise RefusedError(
                f"layers {' and '.join(map(repr, tied.values()))} share a weight in several stages,"
                " and are not sharded alike, as PyTorch would need them"
            )


def _modules(stages: Stages) -> tuple[tuple[str, ...], ...]:
    """Return the modules of each chunk."""
    layers = stages.network.layers
    inside = [
        tuple(dict.fromkeys(layers[n].module for n in chunk if has_module(layers[n])))
        for chunk in stages.layers
    ]
    chunks: dict[str, set[int]] = {}
    lists = set()
    for number, names in enumerate(inside):
        for name in names:
            *outer, last = _paths(name)
            for path in (*outer, last):
                chunks.setdefault(path, set()).add(number)
            parts = name.split(".")[1:]
            lists |= {path for path, item in zip(outer, parts, strict=True) if item.isdecimal()}
    outermost = []
    for chunk, names in zip(stages.layers, inside, strict=True):
        if not names:
            raise RefusedError(
                f"the stage of layer {layers[chunk.start].name!r} has no module with weights"
            )
        paths = (
            next((p for p in _paths(name) if len(chunks[p]) == 1 and p not in lists), name)
            for name in names
        )
        outermost.append(tuple(dict.fromkeys(paths)))
    return tuple(outermost)


def _paths(name: str) -> list[str]:
    """Return the names of the modules that one is in, outermost first, and its own."""
    parts = name.split(".")
    return [".".join(parts[: n + 1]) for n in range(len(parts))]


def _tied(stages: Stages) -> Iterator[dict[int, str]]:
    """Yield the layers that share a weight, one of each stage that holds it."""
    part, layers = stages.part_of_layers, stages.network.layers
    for tied in stages.tied:
        by_stage: dict[int, str] = {}
        for n in (tied.owner, *tied.users):
            by_stage.setdefault(part[n], layers[n].name)
        yield by_stage
