"""The routers of a network: their readers, and token counts in separate files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypar_opt.documents.document import LARGEST_SIZE
from hypar_opt.documents.files import read_text
from hypar_opt.documents.parsing import shown
from hypar_opt.errors import InputError
from hypar_opt.workload.operators.experts import Combine, Dispatch

if TYPE_CHECKING:
    from hypar_opt.workload.operators.base import Operator


def with_counts(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a network file's content, the files of counts that routers name read into it.

    Parameters
    ----------
    content
        The parsed file; other faults in it are not reported here.
    folder
        The folder that file names are relative to.

    Raises
    ------
    InputError
        With the file of counts, its line, and what is expected.
    """

    def of_layers(table: dict[str, Any], repeat: object = 1) -> dict[str, Any]:
        layers = table.get("layer")
        if not isinstance(layers, list):
            return table
        return {**table, "layer": [of_layer(layer, repeat) for layer in layers]}

    def of_layer(layer: Any, repeat: object) -> Any:
        is_router = isinstance(layer, dict) and layer.get("kind") == "router"
        load = layer.get("load") if is_router else None
        if not isinstance(load, str) or load == "even":
            return layer
        rows = _counts(folder / load, layer.get("experts"))
        if len(rows) not in (1, repeat):
            lines = (
                f"a line, or one for each of {repeat} repetitions of layer {layer.get('name')!r}"
            )
            raise InputError(f"should have {lines}, got {len(rows)}", file=load)
        return {**layer, "load": rows[0] if len(rows) == 1 else rows}

    whole, blocks = of_layers(content), content.get("block")
    if isinstance(blocks, list):
        tables = (
            of_layers(block, block.get("repeat", 1)) if isinstance(block, dict) else block
            for block in blocks
        )
        whole = {**whole, "block": [*tables]}
    return whole


def _counts(path: Path, experts: object) -> list[list[int]]:
    """Return the counts of a file, each line with those of all experts, comma-separated."""
    rows: list[list[int]] = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        words = line.partition("#")[0].split(",")
        if words == [""] or not any(word.strip() for word in words):
            continue
        for word in map(str.strip, words):
            if not (word.isdecimal() and len(word) < 11 and int(word) <= LARGEST_SIZE):
                problem = f"should be tokens of experts, separated by commas, got {shown(word)}"
                raise InputError(problem, where=f"line {number}", file=str(path))
        if len(words) != experts:
            problem = f"should have counts of {experts} experts, got {len(words)}"
            raise InputError(problem, where=f"line {number}", file=str(path))
        rows.append([*map(int, words)])
    return rows


def check_routers(layers: Sequence[Operator], sources: Sequence[Sequence[int]]) -> None:
    """Check that tokens are combined by the same logits that dispatched them.

    Raises
    ------
    ValueError
        With the layer, and the router that it should read.
    """
    # By layer, the dispatches behind its output; only these kinds pass them on.
    dispatched: list[frozenset[int]] = []
    for position, (layer, reads) in enumerate(zip(layers, sources, strict=True)):
        origins = frozenset().union(*(dispatched[read] for read in reads if read >= 0))
        if isinstance(layer, Dispatch):
            origins = frozenset((position,))
        elif isinstance(layer, Combine):
            for dispatch in sorted(origins):
                if sources[dispatch][1] != reads[1]:
                    right = layers[sources[dispatch][1]].name
                    raise layer.refuse(
                        "inputs",
                        f"the second should be {right!r}, which {layers[dispatch].name!r} reads,"
                        f" got {layers[reads[1]].name!r}",
                    )
            origins = frozenset()
        dispatched.append(origins)
