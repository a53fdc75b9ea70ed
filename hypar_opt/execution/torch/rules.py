"""The choices that DTensor cannot compute, by kind of layer, as of torch 2.13.

Source: ``torch/distributed/tensor/_ops``; `tests/torch/test_rules.py` runs each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.operators.attention import QUERIES
from hypar_opt.workload.operators.axes import ADDENDS, BATCH, TOKENS
from hypar_opt.workload.operators.conv import GROUPS

if TYPE_CHECKING:
    from hypar_opt.workload.operators.axes import Choice
    from hypar_opt.workload.operators.base import Operator

Rule = Callable[["Operator", "Choice", int], str]
"""Why a choice has no rule, or an empty string; given the layer, its choice and its number of
inputs.

The rules of `_RULES` are of choices that split no batch."""


def _none(layer: Operator, choice: Choice, inputs: int) -> str:  # noqa: ARG001
    return ""


def _convolution(layer: Operator, choice: Choice, inputs: int) -> str:  # noqa: ARG001
    if getattr(layer, "transposed", None):
        return "a transposed convolution is not split"
    # Of a split convolution without groups each process computes a smaller one.
    return "the groups of a convolution are not split" if choice.axis == "g" else ""


def _norm(layer: Operator, choice: Choice, inputs: int) -> str:  # noqa: ARG001
    if layer.statistics.forward and choice.axis not in layer.statistics.axes:
        return "DTensor gathers features that a norm sums over"
    # Of a split norm of groups each process computes one with fewer of them.
    return "the groups of a norm are not split" if choice == GROUPS else ""


def _attention(layer: Operator, choice: Choice, inputs: int) -> str:  # noqa: ARG001
    if choice == QUERIES:
        return "DTensor has no module whose key-value heads are read by several parts"
    fused = "DTensor splits query, key and value in one tensor as if they were one"
    return fused if inputs == 1 else ""


def _table(layer: Operator, choice: Choice, inputs: int) -> str:  # noqa: ARG001
    return "" if inputs or choice.axis == "o" else "a table that is read whole has no batch"


def _join(layer: Operator, choice: Choice, inputs: int) -> str:  # noqa: ARG001
    by_channel = getattr(layer, "axis", "channels") == "channels"
    return "DTensor gathers what it joins along a split axis" if by_channel else ""


def _shuffle(layer: Operator, choice: Choice, inputs: int) -> str:  # noqa: ARG001
    return "DTensor gathers channels to shuffle them"


_RULES: Mapping[str, Rule] = FrozenDict(
    add=_none,
    attention=_attention,
    concat=_join,
    conv=_convolution,
    embedding=_table,
    fc=_none,
    flatten=_none,
    global_pool=_none,
    mul=_none,
    norm=_norm,
    output=_none,
    pool=_none,
    shuffle=_shuffle,
)


_BY_TOKEN = frozenset({"add", "attention", "embedding", "fc", "mul", "norm", "output"})
"""Kinds of layers that are split by token."""


def has_module(layer: Operator) -> bool:
    """Return whether a layer has weights whose module, and thus order of axes, is known."""
    return bool(layer.axes.weight) and layer.kind in _RULES


def has_hook(layer: Operator) -> bool:
    """Return whether a layer's module has a hook that converts its input and output.

    A norm of heads has none: models pass it a view with heads in any dimension.
    """
    return has_module(layer) and not getattr(layer, "heads", None)


def without_rule(layer: Operator, choice: Choice, inputs: int) -> str:
    """Return why DTensor cannot compute a layer under a choice, or would gather it to do so.

    Parameters
    ----------
    inputs
        The number of maps that the layer reads.
    """
    if choice == ADDENDS:
        return "DTensor takes no addends in a sum with other terms: it adds them up before"
    if not choice.axis or choice.axis == BATCH:
        return ""
    if choice.axis == TOKENS.axis and layer.kind not in _BY_TOKEN:
        return f"layers of kind {layer.kind!r} are not split by token"
    if layer.kind not in _RULES:
        return f"no way to split layers of kind {layer.kind!r} is known"
    return _RULES[layer.kind](layer, choice, inputs)


def otherwise(layer: Operator, choices: Sequence[Choice]) -> str:
    """Return how DTensor differs from any plan for a layer, whatever its choices."""
    if layer.axes.weight and not has_module(layer):
        return f"no module is known for layers of kind {layer.kind!r}: weights are replicated"
    if getattr(layer, "norm", None) == "batch" and any(choice.axis == BATCH for choice in choices):
        return "DTensor gathers the batch of a batch norm, for the statistics of all of it"
    if not layer.ends and any(not choice.axis for choice in choices):
        return "whole: DTensor may add up the parts of its error before its backward pass"
    if layer.kind == "attention" and any(choice.axis == TOKENS.axis for choice in choices):
        return "DTensor may add up the error of keys and values on all sides before it is split"
    pool = getattr(layer, "pool", None)
    if getattr(pool, "kind", None) == "average":
        return "DTensor has no rule for the error of nn.AvgPool2d: take the mean, or adaptive pools"
    return ""
