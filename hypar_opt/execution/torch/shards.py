"""The `fully_shard` calls for a plan's layers, and the units gathered together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.execution.torch.tables import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hypar_opt.execution.torch.flow import Flow


def sharding_words(flow: Flow) -> Mapping[str, str]:
    """Return what data parallelism shards of each layer's weights, at all of its levels.

    And of each module's weights, which follow its first layer.
    """
    workload = flow.program.workload
    words = {
        layer.name: workload.repeats.shard(node, 0) if flow.mesh.data else "none"
        for node, layer in enumerate(flow.network.layers, workload.shared)
    }
    return {layer.module: words[layer.name] for layer in reversed(flow.network.layers)} | words


def of(flow: Flow) -> str | None:
    """Return the word of all layers with weights, or ``by layer``; None if none is sharded."""
    words = {*_words_of_weights(flow).values()}
    if words <= {"none"}:
        return None
    return words.pop() if len(words) == 1 else "by layer"


def shards_partially(flow: Flow) -> bool:
    """Return whether some layers are sharded and others not."""
    return of(flow) == "by layer" and "none" in _words_of_weights(flow).values()


def tables(flow: Flow, layers: Sequence[str]) -> Iterator[str]:
    """Yield the constants of a file that shards anything, of layers with weights."""
    way, words = of(flow), sharding_words(flow)
    if way is None:
        return
    tied = _tied(flow)
    if way != "by layer":
        yield "\n# Layers whose weights are gathered together."
        yield "UNITS = ["
        yield from (f"    {_listed(unit)}," for unit in _units(flow, layers) if not tied & {*unit})
        yield "]"
        return
    yield "\n# Layers whose weights are gathered together, and whether the forward pass frees them."
    yield "UNITS = ["
    for unit in _units(flow, layers):
        is_uniform = len({words[layer] for layer in unit}) == 1 and not tied & {*unit}
        for group in [unit] if is_uniform else [[layer] for layer in unit if layer not in tied]:
            if words[group[0]] != "none":
                yield f"    ({_listed(group)}, {words[group[0]] == 'weights'}),"
    yield "]"
    yield "# Those that share weights are the model's own."
    yield f"TIED_ARE_FREED = {any(words[layer] == 'weights' for layer in tied)}"
    yield "# Layers whose weights are not sharded."
    yield f"WHOLE = {_listed([layer for layer in layers if words[layer] == 'none'])}"


def _words_of_weights(flow: Flow) -> Mapping[str, str]:
    words = sharding_words(flow)
    layers = (layer for layer in flow.network.layers if layer.axes.weight)
    return {layer.module: words[layer.module] for layer in layers}


def _tied(flow: Flow) -> set[str]:
    """Return the layers that share weights with others."""
    workload = flow.program.workload
    return {
        flow.network.layers[user - workload.shared].name
        for users in workload.weight_users.values()
        for user in users
    }


def _listed(layers: Sequence[str]) -> str:
    return f"[{', '.join(map(quoted, layers))}]"


def _units(flow: Flow, layers: Sequence[str]) -> Iterator[list[str]]:
    """Yield the layers of each repetition of a block, and others one by one."""
    names = [layer.module for layer in flow.network.layers]
    inside: set[str] = set()
    for block in flow.network.repeats:
        for n in range(block.count):
            first = block.first + n * block.length
            inside_it = dict.fromkeys(names[first : first + block.length])
            unit = [name for name in inside_it if name in layers]
            inside |= {*unit}
            if unit:
                yield unit
    yield from ([n] for n in dict.fromkeys(names) if n in layers and n not in inside)
