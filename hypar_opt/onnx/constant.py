"""Constants: tensors that depend on no input, with their shape, value and stored elements.

Weights are never read, and files beside the model are never opened. A value that is unknown, or
too large to compute with, is a *placeholder*: an array of the right shape that takes no memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import InputError
from hypar_opt.onnx.axes import merged
from hypar_opt.onnx.model import MAX_RANK
from hypar_opt.onnx.regions import LayerWeights, Regions, indexed, whole

if TYPE_CHECKING:
    from onnx import TensorProto

Array = NDArray[Any]

MAX_ELEMENTS = 2**22
"""The maximum elements of computed constants: a mask of 2,048 by 2,048 tokens."""

MAX_ELEMENT_BYTES = 8
"""Numbers of more bytes are not computed with."""

INT64 = 7
"""ONNX's type of shapes."""

_NO_NUMBERS = frozenset((8, 14, 15, *range(17, 32)))
"""Types that are not computed with: strings, complex numbers, floats of 8 bits and fewer."""


@dataclass(frozen=True)
class Constant:
    """A tensor that depends on no input of the network.

    Parameters
    ----------
    shape
        Its dimensions.
    load
        Returns its value, or a placeholder where it is unknown.
    has_values
        Whether the value is the real one, not a placeholder.
    regions
        The elements of the file's initializers that it is made of: one region, except for sums.
    is_input
        Whether it stands for an additional input of the model, such as a padding mask.
    one_image
        Its value for a batch of one, where the model leaves open the batch on which it depends.
    """

    shape: tuple[int, ...]
    load: Callable[[], Array]
    has_values: bool = True
    regions: Regions = ()
    is_input: bool = False
    one_image: Array | None = None

    @cached_property
    def value(self) -> Array:
        return self.load()

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def is_number(self) -> bool:
        """Whether it is made of at most one number of the file."""
        return sum(region.elements for region in self.regions) < 2

    @property
    def weights(self) -> tuple[str, ...]:
        """The initializers that it is made of, by name."""
        return tuple(dict.fromkeys(region.name for region in self.regions))

    @property
    def stored(self) -> Regions:
        """The number of stored elements whose values it holds.

        A scale or a sum of weights has those of one operand, the first of its size; a concatenation
        those of all.
        """
        for region in self.regions:
            if region.elements == self.elements:
                return (region,)
        return self.regions

    @property
    def is_stored(self) -> bool:
        """Whether it has as many elements of the file as it has places, and no copies."""
        return sum(region.elements for region in self.stored) == self.elements

    def named(self, name: str) -> str:
        """Return the name of a layer with these weights: ``name`` only where they have none."""
        return (self.weights or (name,))[0]

    def matrix(self, name: str, rows: Sequence[int], columns: Sequence[int]) -> LayerWeights:
        """Return a layer's weights: rows are the dimensions summed over, columns its outputs."""
        if not self._is_one_region:
            return LayerWeights(self.named(name), self.stored)
        (region,) = self.stored
        dims = tuple(
            merged(digit for axis in axes for digit in region.dims[axis])
            for axes in (rows, columns)
        )
        return LayerWeights(self.named(name), (region._replace(dims=dims),))

    def first(self) -> Regions:
        """Return its elements at the first index of its first dimension."""
        return (indexed(self.stored[0], 0, 0, 1),) if self._is_one_region else self.stored

    @property
    def _is_one_region(self) -> bool:
        """Whether its elements are one region, arranged as it is."""
        return len(self.stored) == 1 and self.stored[0].shape == self.shape


def placeholder(shape: tuple[int, ...]) -> Array:
    """Return an array of ones that takes no memory."""
    return np.broadcast_to(np.ones((), np.float32), shape)


def of_tensor(tensor: TensorProto) -> Constant:
    """Return the constant of an initializer, whose value is read when it is first needed.

    Raises
    ------
    InputError
        Where its shape is invalid.
    """
    shape = tuple(tensor.dims)
    if any(size < 0 for size in shape) or len(shape) > MAX_RANK:
        raise InputError(
            f"should have a shape, got {list(shape)}", where=f"initializer {tensor.name!r}"
        )
    regions = (whole(tensor.name, shape),)
    hidden = tensor.external_data or tensor.data_location == 1 or tensor.data_type in _NO_NUMBERS
    if hidden or math.prod(shape) > MAX_ELEMENTS:
        return Constant(shape, lambda: placeholder(shape), has_values=False, regions=regions)

    def load() -> Array:
        if tensor.data_type == INT64:
            # Shapes: a model has hundreds.
            data = tensor.raw_data
            values = np.frombuffer(data, "<i8") if data else np.array(tensor.int64_data, np.int64)
            if values.size == math.prod(shape):
                return values.reshape(shape)
        from onnx import numpy_helper

        try:
            return np.asarray(numpy_helper.to_array(tensor))
        except (TypeError, ValueError) as error:
            problem = (str(error).splitlines() or ["broken"])[0]
            raise InputError(
                f"cannot be read: {problem}", where=f"initializer {tensor.name!r}"
            ) from None

    return Constant(shape, load, regions=regions)
