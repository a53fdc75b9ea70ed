"""The bytes of a plan of a graph are those of its layouts, converted step by step.

An oracle of its own: layouts are words over the levels, ``b`` by batch, ``c`` by channel, ``p``
partial sums, ``w`` whole. A conversion goes over slices, reduce-scatters from the deepest level
up, all-to-alls, and all-gathers from the top down; a step moves, over all devices together,
``2^H * local size * share`` elements (a half, a half, one), where the local size is halved for
each level that splits the tensor just then.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price
from hypar_opt.plan.arguments import problem_of
from hypar_opt.workload.tensors import workload_of
from tests.strategies.drawn_networks import DrawnNetwork, drawn_networks

Layout = tuple[str, ...]
DUAL = {"b": "b", "c": "c", "p": "w", "w": "p", "s": "s"}


def converted(written: Layout, read: Layout, elements: int) -> Fraction:
    """Return the elements that all devices together move from one layout to another."""
    levels, now, moved = len(written), list(written), Fraction()

    def local() -> Fraction:
        split = sum(layout in "bcs" for layout in now)
        return Fraction(elements, 2**split)

    for level in range(levels):
        if now[level] == "w" and read[level] != "w":
            now[level] = read[level]  # a slice
    for level in reversed(range(levels)):
        if now[level] == "p":
            moved += 2**levels * local() / 2
            now[level] = read[level] if read[level] != "w" else "c"
    for level in range(levels):
        # A shuffle's order (s) is another split by channel: to change it is an all-to-all too.
        if now[level] != read[level] and read[level] != "w":
            moved += 2**levels * local() / 2
            now[level] = read[level]
    for level in range(levels):
        if now[level] != read[level]:
            moved += 2**levels * local()
            now[level] = "w"
    return moved


def both_ways(written: Layout, read: Layout, elements: int) -> Fraction:
    """Return what a tensor moves forward, and its error backward in the dual layouts."""
    back = [tuple(DUAL[layout] for layout in layouts) for layouts in (read, written)]
    return converted(written, read, elements) + converted(back[0], back[1], elements)


def all_reduced(reduces: Sequence[bool], elements: int) -> Fraction:
    """Return the elements of an all-reduce over some levels; the others split the tensor.

    It halves from the deepest level up and doubles back down.
    """
    levels, size, moved = len(reduces), Fraction(elements), Fraction()
    size /= 2 ** reduces.count(False)
    for level in reversed(range(levels)):
        if reduces[level]:
            moved += 2**levels * size
            size /= 2
    return moved


def of_plan(network: ho.Network, batch: int, rows: Sequence[Sequence[int]]) -> Fraction:
    """Return the least elements that a step of a plan of two choices moves."""
    workload = workload_of(network, batch)
    first = workload.shared
    states = list(zip(*rows, strict=True))
    layers = list(zip(network.layers, network.sources, states, strict=True))

    def word(state: Sequence[int], second: str) -> Layout:
        return tuple("b" if choice == 0 else second for choice in state)

    def makes(position: int) -> Layout:
        layer, _, state = layers[position]
        partial = layer.kind in ("conv", "fc") and layer.splits["model"].word == "model"
        return word(state, "p" if partial else "c")

    def needs(position: int) -> Layout:
        layer, _, state = layers[position]
        return word(state, "s" if layer.kind == "shuffle" else "c")

    total = Fraction()
    shared: dict[str, list[int]] = {}
    for position, (layer, _, state) in enumerate(layers):
        if layer.shares_weights_with is not None:
            shared.setdefault(layer.shares_weights_with, []).append(position)
        for sums in workload.layers[position].statistics:
            total += all_reduced([choice == 1 for choice in state], sums)
    tied = {layer.shares_weights_with for layer, _, _ in layers} - {None}
    for position, (layer, _, state) in enumerate(layers):
        weights = workload.weights[first + position]
        if layer.name in tied:
            # Whole at a level where any user is in data parallelism.
            users = [states[user] for user in (position, *shared[layer.name])]
            state = tuple(min(choices) for choices in zip(*users, strict=True))
        elif layer.shares_weights_with is not None:
            continue
        total += all_reduced([choice == 0 for choice in state], weights)
    readers: dict[int, list[int]] = {}
    for position, (_, sources, _) in enumerate(layers):
        for source in sources:
            if source >= 0:
                readers.setdefault(source, []).append(position)
    outputs, pooled = workload.outputs[first:], workload.pooled[first:]
    for source in range(len(layers)):
        read, made = readers.get(source, []), makes(source)
        # Partial sums are reduced before a pool, what is not partial is converted behind it.
        landing = [tuple("b" if x == "p" else x for x in made)]
        if "p" in made:
            targets = itertools.product("bc", repeat=len(made))
            landing = [
                tuple(t if x == "p" else x for x, t in zip(made, target, strict=True))
                for target in targets
            ]
        best = None
        layouts = itertools.product("bc", repeat=len(made)) if len(read) > 1 else [None]
        for land, held in itertools.product(dict.fromkeys(landing), list(layouts)):
            cost = both_ways(made, land, outputs[source])
            at = land
            if held is not None:
                cost += both_ways(land, held, pooled[source])
                at = held
            cost += sum(both_ways(at, needs(reader), pooled[source]) for reader in read)
            best = cost if best is None else min(best, cost)
        total += best or 0
    return total


@settings(max_examples=100)
@given(drawn_networks(), st.integers(1, 3), st.data())
def test_a_plan_moves_what_its_layouts_say(
    drawn: DrawnNetwork, levels: int, data: st.DataObject
) -> None:
    network = ho.Network.model_validate(drawn.description)
    row = st.lists(st.integers(0, 1), min_size=len(network.layers), max_size=len(network.layers))
    rows = [data.draw(row) for _ in range(levels)]
    batch = data.draw(st.integers(1, 5))
    problem = problem_of(network, batch=batch, levels=levels, reading="executed")
    stated = price(Instance(network, problem), rows)
    assert stated.total == 4 * of_plan(network, batch, rows)
