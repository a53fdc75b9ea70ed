"""Several feature maps made one, element by element: sums and products."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hypar_opt.onnx.axes import Dim, extent
from hypar_opt.onnx.features import Features
from hypar_opt.onnx.import_state import ImportState, shape_error
from hypar_opt.onnx.model import OnnxNode


def fit(rows: Sequence[Sequence[Dim]]) -> tuple[Dim, ...] | None:
    """Return the dimensions that maps have together; None where they hold different digits.

    Copies, and dimensions of size 1, fit everything.
    """
    rank = max(len(dims) for dims in rows)
    out = []
    for place in range(rank):
        held = []
        for dims in rows:
            index = place - rank + len(dims)
            dim = dims[index] if index >= 0 else ()
            own = tuple(digit for digit in dim if digit.axis != "r")
            if extent(own) > 1 or own:
                held.append(own)
        if len(set(held)) > 1:
            # A batch of one image is a digit of size 1, which a learned tensor lacks.
            held = [dim for dim in held if extent(dim) > 1]
            if len(set(held)) != 1:
                return None
        out.append(held[0] if held else ())
    return tuple(out)


def positions_of(state: ImportState) -> Callable[[int], int]:
    """Return a key that compares layers by how many positions their maps have."""

    def positions(source: int) -> int:
        sizes = state.layer(source).sizes
        return sizes.get("t", 1) * sizes.get("h", 1) * sizes.get("w", 1)

    return positions


def join(state: ImportState, node: OnnxNode, kind: str, maps: Sequence[Features]) -> Features:
    """Return a new layer that adds or multiplies feature maps of different layers.

    Raises
    ------
    InputError
        Where their axes do not fit one another.
    """
    given = [state.sliced(one, node) for one in maps]
    dims = fit([one.dims for one in given])
    if dims is None:
        given = [state.ordered(state.as_tokens(one, node), node) for one in given]
        dims = fit([one.dims for one in given])
    if dims is None:
        raise shape_error(node, *(one.shape for one in given))
    channels = {state.layer(one.source).channels for one in given}
    if len(channels) > 1:
        sizes = " and ".join(map(str, sorted(channels)))
        raise node.refuse(f"its inputs should have as many channels, got {sizes}")
    largest = max((one.source for one in given), key=positions_of(state))
    inputs = [state.read(_without_copies(one), node) for one in given]
    source = state.emit(node, kind, {}, inputs, state.layer(largest).sizes)
    return state.made(source, dims)


def _without_copies(features: Features) -> Features:

    dims = tuple(tuple(d for d in dim if d.axis != "r") for dim in features.dims)
    return features._replace(dims=dims)
