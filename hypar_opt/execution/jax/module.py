"""A plan's training step as the text of a Python module that needs only jax."""

from __future__ import annotations

import ast
import math
import textwrap
from typing import TYPE_CHECKING

from hypar_opt.errors import HyparError
from hypar_opt.execution.docstrings import docstring
from hypar_opt.execution.jax import texts
from hypar_opt.execution.jax.run_again import loss_lines
from hypar_opt.execution.jax.steps import Lines
from hypar_opt.execution.jax.values import quoted
from hypar_opt.execution.jax.weights import (
    biases_of,
    inputs_of,
    targets_of,
    trained_of,
    weights_of,
)
from hypar_opt.version import __version__
from hypar_opt.workload.parallelism import SHARDED
from hypar_opt.workload.repeats import SINGLE_PASS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hypar_opt.execution.jax.tensors import ShardedNetwork, StoredTensor
    from hypar_opt.execution.jax.weights import StepInput

_WIDTH = 100

_TYPES = {
    2: ("bfloat16", "jnp.bfloat16"),
    8: ("float64", 'jnp.float64\njax.config.update("jax_enable_x64", True)'),
}
_SINGLE = ("float32", "jnp.float32")
"""Element types by size in bytes: their names, and their text in the module."""


def module_text(
    sharded: ShardedNetwork,
    *,
    title: str,
    alone: bool = False,
    not_kept: Sequence[str] = (),
    remarks: Sequence[str] = (),
    element_bytes: int = 4,
) -> str:
    """Return a module with the mesh, the shardings and the training step of a plan.

    Parameters
    ----------
    title
        The first line of its docstring.
    alone
        Compute the loss on one device, as a reference: only `loss` may then be called.
    not_kept
        Parts of the model that the network lacks, for the docstring.
    remarks
        Sentences on how the model was read, for the docstring.
    element_bytes
        The plan's: 2 makes a step in bfloat16, 8 in float64, anything else in float32.
    """
    operations = texts.operations()
    lines = Lines(sharded, frozenset(operations), alone=alone)
    loss = textwrap.indent("\n".join(loss_lines(lines)), "    ")
    loss = "\n".join(part.rstrip() for part in loss.splitlines())
    called = _called(loss, operations)
    parts = {
        _STEP: texts.step(),
        "LEVELS = ...": f"LEVELS = {sharded.names(range(sharded.levels))}",
        "SIZES = ...": f"SIZES = {sharded.hierarchy.sizes}",
        _IMAGES: _images(sharded),
        "WEIGHTS = ...": f"WEIGHTS = {_weights_table(sharded, alone=alone)}",
        "INPUTS_GIVEN = ...": f"INPUTS_GIVEN = {_given_table(sharded, inputs_of(sharded)[0])}",
        "TARGETS = ...": f"TARGETS = {_given_table(sharded, targets_of(sharded))}",
        "# The operations\n": called,
        "    return jnp.zeros(())  # the step": loss,
        "DTYPE = ...": f"DTYPE = {_TYPES.get(element_bytes, _SINGLE)[1]}",
    }
    repeats = sharded.program.workload.repeats
    if not alone and repeats != SINGLE_PASS:
        gathers = any(weights.over("weights") for weights in weights_of(sharded).values())
        all_of = any(first is not None for first in repeats.recomputed.values())
        by_op = bool(repeats.by_op)
        if gathers or all_of or by_op:
            # What follows the operations calls one of them.
            called = _called(f"{loss}\n    apart", operations)
            more = texts.sharded() * gathers, *texts.again(all_of=all_of, by_op=by_op)
            called = "\n\n\n".join((called.rstrip(), *(text.rstrip() for text in more if text), ""))
        parts |= _trained(sharded) | {"# The operations\n": called}
    if "partial(" not in called:
        parts["from functools import partial\n"] = ""
    if "@dataclass" not in called:
        parts["from dataclasses import dataclass\n"] = ""
    said = {
        "How the model was read": remarks,
        "Not kept of the model": not_kept,
        "Not as in the plan": sharded.differences,
    }
    header = _header(sharded, title, said, element_bytes)
    program = texts.filled(texts.program(), parts)
    main = texts.main(biases=bool(biases_of(sharded)))
    return "\n\n".join((header + program, texts.collectives(), main))


_IMAGES = """
# The image in each place of the batch, whose parts are padded to be equal; -1 for padding.
IMAGES = ...
"""
"""The constant of a padded batch, in the template."""


def _images(sharded: ShardedNetwork) -> str:
    if sharded.padding is None:
        return ""
    images = ", ".join(map(str, sharded.padding.images.tolist()))
    lines = textwrap.indent(textwrap.fill(f"{images},", _WIDTH - 4), "    ")
    return _IMAGES.replace("...", f"(\n{lines}\n)  # fmt: skip")


_STEP = "# The training step\n"
"""The place of the functions of a step, in the template."""


def _trained(sharded: ShardedNetwork) -> dict[str, str]:
    """Return the parts of a module whose step repeats passes or shards weights.

    Raises
    ------
    HyparError
        If weights do not divide into equal shards.
    """
    repeats, weights = sharded.program.workload.repeats, weights_of(sharded)
    for name, stored in weights.items():
        size, parts = math.prod(stored.part), sharded.hierarchy.parts(stored.scattered)
        if size % parts:
            raise HyparError(
                f"layer {name!r}: its {size:,} weights do not divide into {parts} equal shards,"
                " which a program in JAX needs"
            )
    rows = "".join(f"    {quoted(name)}: {stored.part},\n" for name, stored in weights.items())
    shared = "".join(
        f"    {quoted(name)}: {_words(stored.shard)},\n" for name, stored in weights.items()
    )
    constants = {
        "MICRO_BATCHES = ...": f"MICRO_BATCHES = {repeats.micro_batches}",
        "SHARDED = ...": f"SHARDED = {{\n{shared}}}" if shared else "SHARDED: dict = {}",
        "PARTS = ...": f"PARTS = {{\n{rows}}}" if rows else "PARTS: dict = {}",
    }
    step = texts.filled(texts.trained(), constants)
    return {
        _STEP: step,
        "out_specs=(P(), specs[0])": "out_specs=results(function, specs[0])",
    }


def _words(shard: Sequence[str]) -> str:
    """Return what is shared out across each level, or the word of all."""
    if len({*shard}) > 1:
        return f"({', '.join(map(quoted, shard))})"
    return quoted(shard[0] if shard else SHARDED[0])


def _header(
    sharded: ShardedNetwork, title: str, notes: Mapping[str, Sequence[str]], element_bytes: int
) -> str:
    hierarchy = sharded.hierarchy
    devices, places, input_note = hierarchy.accelerators, "tokens", ""
    if sharded.splits_images:
        places = "rows, its columns"
        input_note = (
            " The input is given whole along rows, or columns, where windows read beyond a part of"
            " it: each device cuts out its own."
        )
    arrays = textwrap.fill(
        f"{sharded.axes_description} Along its batch, its {places} and its channels an array has a"
        " dimension for each axis, which is 1 where the axis never splits them, so that a"
        f" PartitionSpec says which axis splits what. Exchanges are explicit.{input_note}",
        _WIDTH - 4,
    )
    if sharded.padding is not None:
        arrays += "\n\n" + textwrap.fill(sharded.padding.said, _WIDTH - 4)
    kind = _TYPES.get(element_bytes, _SINGLE)[0]
    counted = "" if element_bytes in (2, 4, 8) else f"; the plan counts {element_bytes} byte each"
    words = f"""{title}

A training step on {devices} devices, as hypar-opt {__version__} planned it. Run this file, or call
`step` from your own: it needs jax alone. Without {devices} accelerators it takes virtual devices
of the processor.

{arrays}
Elements are of {kind}{counted}.
"""
    for heading, phrases in notes.items():
        if phrases:
            words += f"\n{heading}:\n\n"
            words += "".join(
                textwrap.fill(f"- {phrase}", _WIDTH - 4, subsequent_indent="  ") + "\n"
                for phrase in phrases
            )
    return f"{docstring(words)}\n\n"


def _called(loss: str, functions: Mapping[str, str]) -> str:
    """Return the operations that a text calls, and those that these call."""
    wanted: list[str] = []
    waiting = _names_in(ast.parse(f"def loss():\n{loss}"))
    while waiting:
        name = waiting.pop()
        if name in functions and name not in wanted:
            wanted.append(name)
            waiting |= _names_in(ast.parse(functions[name]))
    return "\n\n\n".join(functions[name] for name in functions if name in wanted) + "\n\n\n"


def _names_in(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _weights_table(sharded: ShardedNetwork, *, alone: bool) -> str:
    rows = {}
    for name, weights in trained_of(sharded).items():
        stored = _array(sharded, weights.tensor)
        levels = weights.over("weights")
        if levels and not alone:
            size = math.prod(weights.part) // sharded.hierarchy.parts(levels)
            stored = [f"({size * sharded.hierarchy.accelerators},)", "P(LEVELS)"]
        rows[name] = [*stored, sharded.names(weights.reduced), str(weights.summed)]
    return _table(rows)


def _given_table(sharded: ShardedNetwork, inputs: Mapping[str, StepInput]) -> str:
    rows, count = {}, sharded.program.workload.repeats.micro_batches
    for name, step_input in inputs.items():
        array = _array(sharded, step_input.tensor, *[count] * (count > 1))
        rows[name] = [*array, str(step_input.below)]
    return _table(rows)


def _array(sharded: ShardedNetwork, tensor: StoredTensor, *first: int) -> list[str]:
    """Return the text of an array's shape and of its sharding.

    Parameters
    ----------
    first
        Dimensions before those of the tensor.
    """
    levels = [*(None for _ in first), *tensor.levels]
    while levels and levels[-1] is None:
        levels.pop()
    spec = ", ".join("None" if level is None else sharded.axis(level) for level in levels)
    return [str((*first, *tensor.shape)), f"P({spec})"]


def _table(rows: Mapping[str, list[str]]) -> str:
    """Return the text of a table, one row per line; long rows are broken."""
    lines = []
    for name, values in rows.items():
        line = f"    {quoted(name)}: ({', '.join(values)}),"
        if len(line) > _WIDTH:
            parts = "".join(f"        {value},\n" for value in values)
            line = f"    {quoted(name)}: (\n{parts}    ),"
        lines.append(line)
    return "\n".join(["{", *lines, "}"]) if rows else "{}"
