"""The modules of a plan: the placements of their weights, inputs and outputs, and their styles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypar_opt.execution.torch.rules import has_module
from hypar_opt.sharding.layouts import BATCH, PARTIAL, TOKEN, WHOLE
from hypar_opt.workload.operators.maps import TokenMap

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hypar_opt.execution.torch.flow import Flow, LayerFlow
    from hypar_opt.sharding.conversions import Layouts
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.operators.maps import Map

REPLICATE, BY_BATCH = "Replicate()", "Shard(0)"

_VECTOR, _OF_HEAD = ("c",), ("e",)
"""The axes of a norm's scale: of channels, or of those of a head."""

_TABLE, _MATRIX, _KERNEL = ("i", "o"), ("o", "i"), ("o", "i", "k", "l")
_TRANSPOSED = ("i", "o", "k", "l")
"""The axes of weights in PyTorch's order: of embeddings, products, convolutions and transposed
ones."""

Placements = tuple[str, ...]
"""A placement for each dimension of tensor parallelism, in DTensor's words."""


@dataclass(frozen=True)
class Module:
    """The PyTorch module of a layer with weights, or of several layers with one weight.

    Parameters
    ----------
    position
        That of its first layer.
    axes, shape
        The axes and shape of its weight, in PyTorch's order.
    reads_first
        Whether it is a table of which the first rows are read, so that it may have more.
    has_bias
        Whether it has one, or is a norm that learns a shift.
    arrives
        The placements of its input before they are converted to ``input``.
    computes
        Those of its output before they are converted to ``output``.
    on_shards
        Whether DTensor has no rule for it, as for convolutions and norms of groups, or one that
        gathers, as for a product whose tokens are split.
    """

    position: int
    name: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    reads_first: bool
    has_bias: bool
    weight: Placements
    arrives: Placements
    input: Placements
    computes: Placements
    output: Placements
    on_shards: bool

    @property
    def has_hook(self) -> bool:
        """Whether a hook converts what it reads and writes."""
        return self.axes != _OF_HEAD

    @property
    def vector(self) -> Placements:
        """The placements of its bias, or of a norm's scale and shift."""
        return tuple(placement if placement == BY_BATCH else REPLICATE for placement in self.weight)


def modules_of(flow: Flow) -> Iterator[Module]:
    """Yield the modules of a plan, in the order of its layers."""
    workload = flow.program.workload
    maps = tuple(flow.network.maps())
    for position, (layer, layer_flow) in enumerate(
        zip(flow.network.layers, flow.layers, strict=True)
    ):
        parts = flow.parts_of_weight(position)
        if not has_module(layer) or position != parts[0]:
            continue
        sizes = workload.layers[position].sizes
        axes = _axes(layer, sizes)
        if len(parts) > 1:
            axes["o"] = sum(_axes(layer, workload.layers[n].sizes)["o"] for n in parts)
        names = tuple(axes)
        weight = _weight(names, layer_flow, flow.is_shared_whole(position))
        read, written = maps[position].input, maps[position].pooled
        yield Module(
            position=position,
            name=layer.module,
            axes=names,
            shape=tuple(axes.values()),
            reads_first=getattr(layer, "is_table", False),
            has_bias=sizes.get("s") == 2 or layer.has_bias,
            weight=weight,
            arrives=placements(
                layer_flow.arrives[0] if layer_flow.arrives else (WHOLE,) * len(weight), read
            ),
            input=placements(
                layer_flow.reads[0] if layer_flow.reads else (WHOLE,) * len(weight), read
            ),
            computes=placements(layer_flow.writes, written),
            output=placements(layer_flow.leaves, written),
            on_shards=names in (_KERNEL, _TRANSPOSED)
            or (names == _MATRIX and TOKEN in layer_flow.reads[0])
            or bool(getattr(layer, "groups", None)),
        )


def _axes(layer: Operator, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the axes of a module's weight, in PyTorch's order, and their sizes."""
    weight = layer.axes.weight
    if "o" not in weight:  # a norm's scale, which has as many values as its shift
        if "c" in weight:
            return {"c": sizes["c"] * sizes.get("g", 1)}
        return {"e": sizes["e"]}
    # A table's rows are its first axis, as a product's outputs are.
    if layer.reads_ids:
        return dict(zip(_TABLE, (sizes[axis] for axis in weight), strict=True))
    order = _TRANSPOSED if getattr(layer, "transposed", None) else _KERNEL
    groups = sizes.get("g", 1)
    return {
        axis: sizes[axis] * (groups if axis == order[0] else 1) for axis in order if axis in weight
    }


def _weight(axes: tuple[str, ...], layer_flow: LayerFlow, whole: Sequence[bool]) -> Placements:
    return tuple(
        f"Shard({axes.index(choice.axis)})" if choice.axis in axes and not shared else REPLICATE
        for choice, shared in zip(layer_flow.choices, whole, strict=True)
    )


def placements(layouts: Layouts, over: Map) -> Placements:
    """Return the placements of a feature map: of tokens features come last, else second."""
    channels = "Shard(-1)" if isinstance(over, TokenMap) else "Shard(1)"
    by_layout = {WHOLE: REPLICATE, BATCH: BY_BATCH, TOKEN: "Shard(1)", PARTIAL: "Partial()"}
    return tuple(by_layout.get(layout, channels) for layout in layouts)


def style(module: Module) -> str:
    """Return a module's `ParallelStyle` as text, one of PyTorch's own if one is equivalent."""
    if len(module.weight) == 1:
        built_in = _pytorch_style(module)
        if built_in:
            return built_in
    keys = {"weight": module.weight, "input": module.input, "output": module.output}
    name = "Sharded"
    if module.on_shards:
        name, keys = "OnShards", {**keys, "computes": module.computes}
    arguments = ", ".join(f"{key}={as_tuple(value)}" for key, value in keys.items())
    return f"{name}({arguments})"


def as_tuple(values: Sequence[str]) -> str:
    """Return expressions as the text of a tuple.

    >>> as_tuple(("Shard(0)",))
    '(Shard(0),)'
    """
    return f"({', '.join(values)}{',' if len(values) == 1 else ''})"


def _pytorch_style(module: Module) -> str | None:
    """Return PyTorch's own style for a module on one dimension, if there is one."""
    weight, arrives, read, leaves = (
        tensor[0] for tensor in (module.weight, module.arrives, module.input, module.output)
    )
    if module.on_shards:
        return None
    if module.axes == _VECTOR:
        stays = weight == REPLICATE and arrives == read == leaves
        sequence = {BY_BATCH: "SequenceParallel(sequence_dim=0)", "Shard(1)": "SequenceParallel()"}
        return sequence.get(read) if stays else None
    if module.axes not in (_TABLE, _MATRIX):
        return None
    is_table = module.axes == _TABLE
    columns, rows = (f"Shard({module.axes.index(axis)})" for axis in ("o", "i"))
    if weight == columns and read == REPLICATE:
        return _call("ColwiseParallel", arrives, leaves, (REPLICATE, "Shard(-1)"))
    if weight == rows and (read == REPLICATE) == is_table:
        return _call("RowwiseParallel", arrives, leaves, ("Shard(-1)", REPLICATE))
    return None


def _call(name: str, arrives: str, leaves: str, defaults: tuple[str, str]) -> str:
    keys = {"input_layouts": arrives, "output_layouts": leaves}
    stated = [
        f"{key}={value}"
        for (key, value), default in zip(keys.items(), defaults, strict=True)
        if value != default
    ]
    return f"{name}({', '.join([*stated, 'use_local_output=False'])})"
