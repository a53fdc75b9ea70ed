"""A network for sequences of another length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from hypar_opt.documents.document import LARGEST_SIZE, validate
from hypar_opt.documents.parsing import shown
from hypar_opt.errors import HyparError, InputError, argument
from hypar_opt.workload.network import Network, TokenInput
from hypar_opt.workload.operators.embedding import Embedding

if TYPE_CHECKING:
    from hypar_opt.workload.operators.base import Operator


def with_tokens(network: Network, tokens: int) -> Network:
    """Return a network whose input has sequences of ``tokens`` tokens.

    Of a table of learned positions, with a row per token, the first rows are read.

    Raises
    ------
    HyparError
        If the network reads no tokens, has learned positions of fewer, or its weights depend on
        their number.
    """
    option = argument("tokens")
    if type(tokens) is not int or not 1 <= tokens <= LARGEST_SIZE:
        raise HyparError(f"{option} should be from 1 to {LARGEST_SIZE:,}, got {shown(tokens)}")
    if not isinstance(network.input, TokenInput):
        raise HyparError(f"{option}: {network.name} does not read tokens; leave it out")
    if tokens == network.input.tokens:
        return network
    described = network.description()
    described["input"]["tokens"] = tokens
    stated = [*network.stated, *(layer for b in network.blocks or () for layer in b.layers)]
    for layer, table in zip(stated, _tables(described), strict=True):
        if _positions(layer) == network.input.tokens:
            rows = table["vocabulary"]
            if tokens > rows:
                raise HyparError(
                    f"{option} should be at most {rows:,}, the learned positions of layer"
                    f" {layer.name!r} of {network.name}, got {tokens:,}"
                )
            table["tokens"] = tokens
    unfit = f"{option}: {network.name} is not for sequences of {tokens:,} tokens"
    try:
        changed = validate(Network, described)
    except InputError as error:
        raise HyparError(f"{unfit}: {error.message}") from None
    for layer, before, other, after in zip(
        network.layers, network.maps(), changed.layers, changed.maps(), strict=True
    ):
        if layer.weights(before) != other.weights(after):
            raise HyparError(
                f"{unfit}: layer {layer.name!r} has weights for {network.input.tokens:,}"
            )
    return changed


def _tables(described: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the tables of a network's layers, those outside blocks first."""
    yield from described["layer"]
    for block in described.get("block", ()):
        yield from block["layer"]


def _positions(layer: Operator) -> int | None:
    """Return the number of rows that a table reads in order; None for any other layer."""
    if isinstance(layer, Embedding) and layer.is_table:
        return layer.tokens or layer.vocabulary
    return None
