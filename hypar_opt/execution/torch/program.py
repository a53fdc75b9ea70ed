"""A plan as the text of a Python file that shards a user's PyTorch model in place."""

from __future__ import annotations

import re
import textwrap
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from hypar_opt.execution.docstrings import docstring
from hypar_opt.execution.torch import shards
from hypar_opt.execution.torch.modules import BY_BATCH, REPLICATE, as_tuple, modules_of, style
from hypar_opt.execution.torch.tables import Entry, quoted, table_text
from hypar_opt.sharding.layouts import CHANNEL
from hypar_opt.version import __version__
from hypar_opt.workload.expansion import starred
from hypar_opt.workload.operators.axes import BATCH as BATCH_AXIS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hypar_opt.execution.torch.flow import Flow
    from hypar_opt.execution.torch.modules import Module
    from hypar_opt.execution.torch.stages import Pipeline
    from hypar_opt.plan.training import Training

_WIDTH = 100

_IMPORTS = {
    "import copy": "copy.",
    "import math": "math.",
    "import os": "os.",
    "from contextlib import contextmanager": "@contextmanager",
    "from functools import partial": " partial(|(partial(",
    "import torch": "torch.Tensor|torch.arange|torch.empty",
    "import torch.distributed as dist": "dist.",
    "from torch import nn": "nn.",
}
"""The imports at the top of a file, by use."""

_FROM = {
    "torch.distributed.device_mesh": ("DeviceMesh", "init_device_mesh"),
    "torch.distributed.fsdp": ("fully_shard",),
    "torch.distributed.pipelining": (
        *("PipelineStage", "Schedule1F1B", "ScheduleGPipe", "ScheduleInterleaved1F1B"),
        *("ScheduleInterleavedZeroBubble",),
    ),
    "torch.distributed.tensor": (
        *("DTensor", "Partial", "Replicate", "Shard", "distribute_module", "distribute_tensor"),
    ),
    "torch.distributed.tensor.experimental": ("implicit_replication",),
    "torch.distributed.tensor.parallel": (
        *("ColwiseParallel", "ParallelStyle", "RowwiseParallel", "SequenceParallel"),
        *("loss_parallel", "parallelize_module"),
    ),
}
"""The names that it imports of each module, if it uses them."""


def program_text(
    flow: Flow, training: Training, *, title: str, pipeline: Pipeline | None = None
) -> str:
    """Return the file that shards a model according to a plan.

    Parameters
    ----------
    title
        The first lines of its docstring.
    pipeline
        That of a plan in stages.
    """
    modules = list(modules_of(flow))
    tables = "\n".join(_tables(flow, modules, pipeline))
    parts = [tables, *_functions(flow, modules, pipeline)]
    if flow.mesh.tensor:
        on_shards = ["on shards style"] * ("OnShards(" in tables)
        parts[:0] = map(_part, ["sharded style", *on_shards, "turned style", "placed"])
    if any("_converted(" in part for part in parts):
        parts.append(_part("converted"))
    body = "\n\n\n".join(parts) + "\n"
    head = _docstring(flow, training, title, pipeline)
    return "\n".join([head, _imports(body), "", body])


def _tables(flow: Flow, modules: Sequence[Module], pipeline: Pipeline | None) -> Iterator[str]:
    """Yield the file's constants."""
    mesh, repeats = flow.mesh, flow.network.repeats

    sizes = [f"{quoted(dimension.name)}: {dimension.size}" for dimension in mesh.dimensions]
    if pipeline is not None:
        sizes.insert(0, f'"pp": {pipeline.stages.parts}')
    yield f"MESH = {{{', '.join(sizes)}}}"
    if mesh.is_permuted:
        yield f"DIGITS = {mesh.digits}  # of a process' rank"
        yield f"ORDER = {mesh.order}"
    if mesh.tensor:
        yield f"TENSOR = {as_tuple([quoted(dimension.name) for dimension in mesh.tensor])}"
    yield "\n# Classes of modules whose weights have their inputs first, not nn.Linear's outputs."
    yield 'TURNED = {"Conv1D"}'
    yield "\n# The shape of each layer's weight."
    shapes = [Entry(module.position, module.name, str(module.shape)) for module in modules]
    yield table_text("SHAPES", shapes, repeats)
    if first := [quoted(module.name) for module in modules if module.reads_first]:
        yield "\n# Tables of which the first rows are read: a model's may have more."
        yield f"READ_FIRST = {{{', '.join(first)}}}"
    if mesh.tensor:
        yield "\n# How each layer's module is split, and what it converts its input and output to."
        styles = [
            Entry(module.position, module.name, style(module))
            for module in modules
            if module.has_hook
        ]
        yield table_text("PLAN", styles, repeats)
    dimensions = ", ".join(dimension.name for dimension in mesh.dimensions)
    yield f"\n# The placements of each parameter, on {dimensions}; of those of TURNED, turned."
    yield table_text("PLACEMENTS", [*_placements(flow, modules)], repeats)
    yield from shards.tables(flow, [module.name for module in modules])
    if pipeline is not None:
        yield from pipeline.tables(flow)


def _placements(flow: Flow, modules: Sequence[Module]) -> Iterator[Entry]:
    """Yield each parameter's placements on the whole mesh."""
    words = shards.sharding_words(flow)
    for module in modules:
        along = BY_BATCH if words[module.name] != "none" else REPLICATE
        data = (along,) if flow.mesh.data else ()
        yield Entry(module.position, f"{module.name}.weight", as_tuple((*data, *module.weight)))
        if module.has_bias:
            yield Entry(module.position, f"{module.name}.bias", as_tuple((*data, *module.vector)))


def _functions(flow: Flow, modules: Sequence[Module], pipeline: Pipeline | None) -> Iterator[str]:
    """Yield the texts of the file's functions."""
    mesh = flow.mesh
    yield _part("permuted mesh" if mesh.is_permuted else "mesh")
    in_chunks = pipeline is not None
    steps = ["parallelize", *["parallelize: modules of chunk"] * in_chunks, "parallelize: shapes"]
    steps += [*["parallelize: shapes of chunk"] * in_chunks, "parallelize: weights"]
    steps += ["parallelize: first rows"] * any(module.reads_first for module in modules)
    steps.append("parallelize: refusal")
    if mesh.tensor:
        steps.append("parallelize: tensor")
    way, some_whole = shards.of(flow), shards.shards_partially(flow)
    if way is not None:
        by_layer = " by layer" * (way == "by layer")
        steps.append(f"parallelize: shard{by_layer}")
        steps += ["parallelize: units of chunk"] * in_chunks
        steps.append(f"parallelize: unit{by_layer}")
    yield _parts(*steps, "parallelize: end").replace("RESHARD", str(way == "weights"))
    if pipeline is not None:
        yield from _pipeline_functions(pipeline, borders=bool(mesh.tensor))
    if mesh.tensor:
        yield _part("sharded: loss" if _splits_loss(flow) else "sharded")
    tied = ["reduce: add tied"] * (pipeline is not None and bool(pipeline.stages.tied))
    if (way is None or some_whole) and mesh.dimensions:
        which = "both" if mesh.tensor and mesh.data else "tensor" if mesh.tensor else "data"
        reduce = _parts(f"reduce: {which}", *tied)
        if some_whole:
            condition = "if parameter.grad is not None"
            reduce = reduce.replace(condition, f"{condition} and not _is_sharded(parameter)")
        yield reduce
        if mesh.tensor:
            yield _part("scattered")
    elif tied:
        yield _parts("reduce: tied", *tied)
    if tied:
        yield _part("tied")
    if way == "by layer":
        chunk = ["parameters of chunk"] * in_chunks
        yield _parts("parameters of layers", *chunk, "parameters of module")


def _pipeline_functions(pipeline: Pipeline, *, borders: bool) -> Iterator[str]:
    """Yield the texts of the functions of a pipeline."""
    tied = ["chunks: tied"] * bool(pipeline.stages.tied)
    yield _parts("chunks", *["chunks: borders"] * borders, "chunks: end", *tied, "chunks: copy")
    if borders:
        yield _part("borders")
    takes = "stages[0]" if pipeline.schedule in ("1F1B", "GPipe") else "stages"
    schedule = _part("schedule").replace("SCHEDULE", f"Schedule{pipeline.schedule}")
    yield schedule.replace("STAGES", takes)


def _splits_loss(flow: Flow) -> bool:
    """Whether a loss is computed of logits that are split by vocabulary."""
    return any(
        CHANNEL in layer_flow.reads[0]
        for layer, layer_flow in zip(flow.network.layers, flow.layers, strict=True)
        if layer.ends and layer_flow.reads
    )


def _docstring(flow: Flow, training: Training, title: str, pipeline: Pipeline | None) -> str:
    uses = ['    mesh = device_mesh("cuda")', "    parallelize(model, mesh)"]
    step = [
        "    loss = ...  # the mean over this process' part of the batch",
        "    loss.backward()",
    ]
    model = "model"
    if pipeline is not None:
        model = "own"
        uses[1:] = ["    own = chunks(model, mesh)", "    passes = schedule(own, mesh, loss)"]
        step = ["    passes.step(*inputs, target=targets)  # of the first stage, of the last one"]
    if flow.mesh.tensor:
        step = ["    with sharded():", *("    " + line for line in step)]
    unsharded = shards.of(flow) is None or shards.shards_partially(flow)
    if (unsharded and flow.mesh.dimensions) or (pipeline is not None and pipeline.stages.tied):
        step.append(f"    reduce_gradients({model}, mesh)")
    titled = ("\n".join(_filled(line)) for line in title.splitlines())
    words = [*titled, "", *uses, *step, "", *_notes(flow, training, pipeline)]
    words += [f"Written by hypar-opt {__version__}, tested with torch 2.13.", ""]
    return docstring("\n".join(words)) + "\n"


def _notes(flow: Flow, training: Training, pipeline: Pipeline | None) -> Iterator[str]:
    """Yield notes for users of the file: the batch, and differences from the plan."""
    mesh, micro = flow.mesh, training.micro_batches or 1
    share = f"1/{mesh.data.size} of" if mesh.data else "all of"
    part = 'mesh.get_local_rank("dp") says which' if mesh.data else "every process the same"
    images = f"{flow.program.workload.batch} images or sequences"
    times = f"each of {micro} micro-batches of {images}" if micro > 1 else f"a batch of {images}"
    stage = ' mesh.get_local_rank("pp") is its stage.' * (pipeline is not None)
    yield from _filled(f"A process computes {share} {times}; {part}.{stage}")
    yield ""
    notes = differences(flow, training)
    if pipeline is not None and (tied := pipeline.exchanged_whole(flow)):
        notes[_WHOLE_TIED] = tied
    if notes:
        yield "What is not as in the plan:"
        yield ""
    for phrase, layers in notes.items():
        named = f"{', '.join(layers)}: " if layers else ""
        yield from _filled(f"- {named}{phrase}", "  ")
    if not notes:
        yield from _filled("Only gradients of biases move in addition to what the plan counts.")
    yield ""


def differences(flow: Flow, training: Training) -> dict[str, list[str]]:
    """Return the differences from a plan, as phrases, each with the layers concerned."""
    phrases: dict[str, list[str]] = {}
    way, words = shards.of(flow), shards.sharding_words(flow)
    for layer, layer_flow in zip(flow.network.layers, flow.layers, strict=True):
        by_batch = any(choice.axis == BATCH_AXIS for choice in layer_flow.choices)
        weighty = bool(layer.axes.weight)
        replicated = words[layer.name] != "none" and by_batch and weighty
        more = [_REPLICATED] * replicated
        more += [_ALIKE] * (words[layer.name] != words[layer.module])
        more += [_STATE] * (way == "by layer" and weighty and words[layer.name] == "state")
        for phrase in (*layer_flow.differences, *more):
            phrases.setdefault(phrase, []).append(layer.name)
    named = {phrase: starred(names, flow.network.repeats) for phrase, names in phrases.items()}
    if training.recompute not in (None, "none"):
        which = training.recompute if isinstance(training.recompute, str) else "by layer"
        named[f"recomputation ({which}) is left to torch.utils.checkpoint"] = []
    if training.gather not in (None, "once"):
        named["what several layers read is gathered once, and kept as they read it"] = []
    if training.reduce_bytes is not None:
        named["gradients are reduced in the elements that they have"] = []
    if way == "state":
        named[_STATE] = []
    if way is None and training.shard not in (None, "none"):
        named["nothing is sharded: no level has data parallelism alone"] = []
    return named


_WHOLE_TIED = (
    "each replica exchanges the whole gradient of the weight that stages share, not a part"
)
_STATE = "fully_shard splits gradients too, not the optimizer's state alone"
_ALIKE = "its weight is sharded as the first part of the one that it is a part of"
_REPLICATED = "its weight is sharded on dp alone, and replicated where others are split"


def _filled(text: str, hanging: str = "") -> list[str]:
    return textwrap.wrap(text, _WIDTH - 4, subsequent_indent=hanging, break_on_hyphens=False)


def _imports(body: str) -> str:
    """Return the imports of a file."""
    first = [line for line, uses in _IMPORTS.items() if any(u in body for u in uses.split("|"))]
    standard = [line for line in first if "torch" not in line]
    lines = [*standard, ""] if standard else []
    lines += [line for line in first if "torch" in line]
    words = {*re.findall(r"\w+", body)}
    for module, names in _FROM.items():
        used = [name for name in names if name in words]
        line = f"from {module} import {', '.join(used)}"
        if used and len(line) > _WIDTH:
            line = f"from {module} import (\n" + "".join(f"    {name},\n" for name in used) + ")"
        lines += [line] if used else []
    return "\n".join(lines) + "\n"


@lru_cache
def _template() -> Mapping[str, str]:
    """Return the parts of the text around a plan, by name."""
    text = (Path(__file__).parent / "program.py.txt").read_text()
    _, *parts = re.split(r"^# --- (.+)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], (part.rstrip("\n") for part in parts[1::2]), strict=True))


def _part(name: str) -> str:
    return _template()[name]


def _parts(*names: str) -> str:
    return "\n".join(map(_part, names))
