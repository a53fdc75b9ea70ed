"""Sliding windows over a feature map: kernels and pools."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, Strict, model_validator

from hypar_opt.documents.document import LARGEST_SIZE, Document, Size, rule
from hypar_opt.documents.parsing import shown
from hypar_opt.workload.operators.axes import SPATIAL
from hypar_opt.workload.operators.maps import FeatureMap


def _both(value: object) -> object:
    """Return one number as height and width."""
    if not isinstance(value, list | tuple):
        return value, value
    if len(value) != 2:
        raise rule(f"should be one number or [height, width], got {value}")
    return value


def _borders(value: object) -> object:
    """Return padding in its shortest form: a pair, or four borders if opposite ones differ."""
    if isinstance(value, list | tuple) and len(value) not in (2, 4):
        raise rule(
            "should be one number, [height, width] or [top, left, bottom, right],"
            f" got {shown(list(value))}"
        )
    if not isinstance(value, list | tuple):
        return value, value
    return value[:2] if value[:2] == value[2:] else value


Border = Annotated[int, Strict(), Field(ge=0, le=LARGEST_SIZE)]
Pair = Annotated[
    tuple[Size, Size], BeforeValidator(_both, json_schema_input_type=Size | tuple[Size, Size])
]
Offsets = Annotated[
    tuple[Border, Border],
    BeforeValidator(_both, json_schema_input_type=Border | tuple[Border, Border]),
]
Borders = Annotated[
    tuple[Border, ...],
    BeforeValidator(
        _borders,
        json_schema_input_type=Border
        | tuple[Border, Border]
        | tuple[Border, Border, Border, Border],
    ),
]
"""Padding of height and width, on both sides alike; or top, left, bottom, right."""


class Window(NamedTuple):
    """The rows, or columns, of the input that one row, or column, of the output reads.

    Parameters
    ----------
    size
        From the first row that a window reads to its last, dilation included.
    stride
        Rows of the input for each of the output.
    padding
        Before the first row.
    """

    size: int = 1
    stride: int | Fraction = 1
    padding: int = 0

    @property
    def halo(self) -> tuple[int, int]:
        """The rows that a part reads before and after its own, if parts line up."""
        return self.padding, max(0, int(self.size - self.stride) - self.padding)


class PoolWindow(Document):
    """A pooling step after a convolution. It has no weights and joins its layer."""

    kind: Literal["max", "average"]
    size: Pair
    stride: Pair = Field(default_factory=lambda data: data["size"])
    """Equal to ``size`` by default: windows do not overlap."""
    padding: Borders = (0, 0)
    rounding: Literal["down", "up"] = "down"
    """``up`` keeps a last window that is only partly covered, as Caffe does."""

    @model_validator(mode="after")
    def _window_sees_the_map(self) -> Self:
        # A window entirely in the padding would have no value for its maximum.
        if any(border >= size for border, size in zip(self.padding, self.size * 2, strict=False)):
            raise rule(f"padding should be smaller than size, got {list(self.padding)}")
        return self

    def window(self, axis: str) -> Window:
        """Return its window along rows or columns."""
        number = SPATIAL.index(axis)
        return Window(self.size[number], self.stride[number], self.padding[number])

    def pooled(self, layer: str, over: FeatureMap) -> FeatureMap:
        """Return the size of the pooled map; ``layer`` names it in messages."""
        up = self.rounding == "up"
        return slide(
            layer, "pool", over, self.size, self.stride, self.padding, over.channels, up=up
        )


def slide(
    layer: str,
    key: str,
    over: FeatureMap,
    window: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, ...],
    channels: int,
    *,
    up: bool = False,
) -> FeatureMap:
    """Return the size of the output map of a sliding window, with ``channels`` channels.

    Parameters
    ----------
    layer, key
        The layer and the key that describe the window, for messages.
    up
        Keep a last window that is only partly covered.

    Raises
    ------
    ValueError
        If the window is larger than the padded map.
    """
    extents = []
    # Given two numbers, trailing borders equal leading ones.
    leading, trailing = padding[:2], padding[-2:]
    for extent, width, step, border, end in zip(
        (over.height, over.width), window, stride, leading, trailing, strict=True
    ):
        slack = extent + border + end - width
        if slack < 0:
            raise rule(
                f"layer {layer!r}, {key}: should fit its padded input"
                f" ({over.height}x{over.width}, padding {list(padding)}),"
                f" got {window[0]}x{window[1]}"
            )
        count = slack // step + 1
        if up and slack % step:
            # Caffe's rule: a further window counts only if it starts on the map or in its leading
            # border; one that starts in the trailing border would cover no value.
            count += count * step < extent + border
        extents.append(count)
    return FeatureMap(channels, *extents)
