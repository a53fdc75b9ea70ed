"""A layer as a contraction over named axes, and the choices that split one of them.

Two rules give every charge of a choice that splits an axis, in any pass of a training step: a
result that lacks the axis is left as partial sums in all parts, and an operand that lacks it is
replicated in all parts. In the forward pass the result is the output, in the backward pass the
input's error, in the gradient pass the weights' gradient; each has its tensor's axes. So the
communication of a choice follows from the tensors that lack the axis.

Source: section 3.1 and Table 1; for an output that is split by its own channels, Song et
al., "AccPar", HPCA 2020, Type III.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.parallelism import PART_WORDS

Axes = tuple[str, ...]

BATCH = "b"
"""The axis of the batch, in every contraction."""

WHOLE, PARTIAL = "whole", "partial"
"""The layouts of an unsplit tensor: each part has a replica of it, or an addend (partial sums)."""

BY_BATCH, BY_CHANNEL, BY_SHUFFLED_CHANNEL = "batch", "channel", "shuffled channel"
BY_TOKEN, BY_ROW, BY_COLUMN, BY_EXPERT = "token", "row", "column", "expert"
"""The layouts of a split tensor: the name of the axis."""

_SPLIT_BY = MappingProxyType(
    {BATCH: BY_BATCH, "t": BY_TOKEN, "p": BY_ROW, "q": BY_COLUMN, "x": BY_EXPERT}
)
"""Maps loops to axes of a tensor; all other loops that choices split run over its channels."""

REORDERED = "'"
"""Marks an axis of channels that are read in another order than the one in memory."""

_OPERAND = r"([a-z])\[([\w,']+)\]"
_TENSORS = re.compile(rf"((?:{_OPERAND}(?: \* {_OPERAND})*)?) -> y\[([\w,']+)\]")


@dataclass(frozen=True)
class Choice:
    """A choice of how to split a layer between the parts of a group of accelerators.

    Parameters
    ----------
    word
        Its name in a plan file, in ``--fix`` and in a report.
    axis
        The axis that it splits; empty if it splits none, so that all parts do the same work.
    part
        The name of one index of that axis, for messages: ``image``, ``input channel``.
    glyph, ascii_glyph
        Its symbol in a report, and where the terminal has no Unicode.
    last_resort
        Whether a layer takes it only at levels at which no split of it fits a problem's
        constraints.
    """

    word: str
    axis: str
    part: str
    glyph: str
    ascii_glyph: str
    last_resort: bool = False


DATA_CHOICE = Choice("data", BATCH, "image", "○", "-")
"""The batch is split, the kernel replicated: a choice of every kind of layer."""

INPUT_CHANNELS = Choice("model", "i", "input channel", "●", "M")
"""Model parallelism: the kernel is split by input channel, and the layer's input with it."""

OUTPUT_CHANNELS = Choice("output", "o", "output channel", "◆", "O")
"""The kernel is split by output channel, and the layer's output with it."""

TOKENS = Choice("tokens", "t", "token", "◇", "T")
"""Each sequence is split, the weights replicated: sequence or context parallelism."""

ROWS = Choice("rows", "p", "row", "▲", "R")
"""Each image is split by rows: parts exchange the rows at their borders (spatial parallelism)."""

COLUMNS = Choice("columns", "q", "column", "▶", "C")
"""Each image is split by columns."""

EXPERTS = Choice("experts", "x", "expert", "★", "E")
"""Each part has a share of the experts, which tokens were dispatched to: expert parallelism."""

SPATIAL = (ROWS.axis, COLUMNS.axis)
"""The axes of images, split into parts that are equal and contiguous."""

POSITIONS = (TOKENS.axis, *SPATIAL)
"""The axes of a map but its channels."""

REPLICATING = (DATA_CHOICE.axis, *POSITIONS)
"""The axes that weights lack (but for a table of positions, which has tokens), so that parts have
replicas of the weights, whose state may be sharded."""

CHANNELS = Choice("channel", "c", "channel", "●", "M")
"""A layer that treats all channels the same: its input and output are split by channel."""

REPLICATED = Choice("whole", "", "replica", "□", "W")
"""Nothing is split: all parts read and write whole tensors."""

ADDENDS = Choice("addends", "", "addend", "∑", "S")
"""Nothing is split: each part reads partial sums of every input, and leaves partial sums."""

FALLBACK_REPLICATED = replace(REPLICATED, last_resort=True)
"""The same for a layer whose work is repeated, which a model that counts only bytes does not
charge."""

_GLYPHS_OF_PARTS = "◧◨③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳"


@cache
def one_part_choice(word: str) -> Choice | None:
    """Return the choice that puts a whole layer in one part of H1; None for other words.

    Nothing is split, replicated or reduced. Problems have it at the level between groups of
    accelerators, or between stages, and there every kind of layer does.
    """
    if word not in PART_WORDS:
        return None
    number = str(PART_WORDS[word] + 1)
    glyph = dict(enumerate(_GLYPHS_OF_PARTS)).get(PART_WORDS[word], number)
    return Choice(word, "", "group", glyph, number)


def operand_layout(operand: Axes, choice: Choice) -> str:
    """Return the layout in which a choice needs an operand: split by an axis of it, or whole."""
    return _laid_out(operand, choice, WHOLE)


def output_layout(result: Axes, choice: Choice) -> str:
    """Return the layout in which a choice leaves a result: split by an axis of it, or partial."""
    return _laid_out(result, choice, PARTIAL)


def _laid_out(axes: Axes, choice: Choice, lacking: str) -> str:
    if choice.word in PART_WORDS:
        return choice.word  # one part has every tensor whole
    if choice == ADDENDS:
        return PARTIAL
    if not choice.axis:
        return WHOLE  # each part computes the whole result, not an addend
    if choice.axis + REORDERED in axes:
        return BY_SHUFFLED_CHANNEL
    # A tensor that the layer does not have needs no reduction or replicas.
    split = choice.axis in axes or not axes
    return _SPLIT_BY.get(choice.axis, BY_CHANNEL) if split else lacking


OUTPUT = -1
"""The index of a layer's output, which follows the inputs: the last."""


class Run(NamedTuple):
    """Channels of one tensor that belong to a layer's parts: ``scale`` channels each, part by part.

    Parameters
    ----------
    tensor
        The number of an input, or `OUTPUT`.
    offset
        The first of these channels.
    repeats
        How often the sequence of all parts is repeated.
    """

    tensor: int
    scale: int = 1
    offset: int = 0
    repeats: int = 1


@dataclass(frozen=True)
class Parts:
    """Parts of a layer that are computed independently, so that a split keeps each together.

    Parameters
    ----------
    name
        The name of one part, for messages: ``group``, ``key-value head``.
    runs
        The channels of the parts in inputs and output.
    axis
        The axis whose indices are the parts.
    """

    name: str
    count: int
    runs: tuple[Run, ...]
    axis: str


class Contraction(NamedTuple):
    """The axes of a layer's operands and of its result, in the order of their shapes.

    Parameters
    ----------
    inputs
        Axes by the name of the operand: ``x``, or for instance ``q``, ``k`` and ``v``; further
        inputs have the axes of the last. An axis that ends with ``'`` is read in another order.
    weight
        ``w``; empty without weights.
    """

    inputs: FrozenDict[str, Axes]
    weight: Axes
    output: Axes

    @classmethod
    def parse(cls, text: str) -> Contraction:
        """Parse a contraction such as ``x[b,i] * w[i,o] -> y[b,o]``.

        A layer without weights has no ``w``, and one without an input only ``w``.

        Raises
        ------
        ValueError
            If it does not have that form.
        """
        if _TENSORS.fullmatch(text) is None:
            raise ValueError(f"should be as 'x[b,i] * w[i,o] -> y[b,o]', got {text!r}")
        tensors = {name: tuple(axes.split(",")) for name, axes in re.findall(_OPERAND, text)}
        output, weight = tensors.pop("y"), tensors.pop("w", ())
        return cls(FrozenDict(tensors), weight, output)

    def __str__(self) -> str:
        operands = self.inputs | ({"w": self.weight} if self.weight else {})
        named = [f"{name}[{','.join(axes)}]" for name, axes in operands.items()]
        return " -> ".join(filter(None, (" * ".join(named), f"y[{','.join(self.output)}]")))

    @property
    def input(self) -> Axes:
        """The axes of its first input; empty where it has none."""
        return next(iter(self.inputs.values()), ())

    def operands(self, count: int) -> tuple[Axes, ...]:
        """Return the axes of each operand of a layer with ``count`` inputs.

        Fewer inputs than operands hold the operands side by side: then the axes are those that all
        operands share.
        """
        declared = tuple(self.inputs.values())
        if count >= len(declared):
            return declared
        return (tuple(axis for axis in self.input if all(axis in axes for axes in declared)),)

    def read(self, inputs: int, count: int) -> tuple[Axes, ...]:
        """Return the axes of the first ``count`` operands of a layer with some inputs.

        Further operands have the axes of the last one; a layer without inputs has none.
        """
        *first, last = self.operands(inputs) or ((),)
        return (*first, *[last] * count)[:count]

    @property
    def contracted(self) -> Axes:
        """The axes of its input and its weights over which products are summed."""
        return tuple(a for a in self.weight if a in self.input and a not in self.output)

    @property
    def is_matrix_product(self) -> bool:
        """Whether it multiplies features (those of an image, flattened) by a matrix."""
        return len(self.weight) == 2 and bool(self.contracted)

    @property
    def iterated(self) -> Axes:
        """The axes of its loop nest: a multiply-accumulate for each index of them.

        A window's position in the input follows from those in kernel and output.
        """
        # An axis of both tensors is one loop; dict.fromkeys keeps the first of each, in order.
        return tuple(dict.fromkeys((*self.weight, *self.output)))
