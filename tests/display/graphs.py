"""Random structures of networks, with blocks that are repeated; the texts of a picture."""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree import ElementTree as ET

from hypothesis import strategies as st

from hypar_opt.workload.expansion import Repeat


def texts(svg: str) -> list[str]:
    """Return the texts of a picture."""
    elements = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(element.itertext()) for element in elements]


@dataclass(frozen=True)
class Structure:
    """What a drawing needs of a network: names, what each layer reads, blocks, keys."""

    names: tuple[str, ...]
    sources: tuple[tuple[int, ...], ...]
    repeats: tuple[Repeat, ...]
    keys: tuple[int, ...]


@st.composite
def structures(draw: st.DrawFn) -> Structure:
    names: list[str] = []
    sources: list[tuple[int, ...]] = []
    repeats = []
    keys: list[int] = []
    key = st.integers(0, 2)

    def layer(name: str, sources_of: tuple[int, ...]) -> None:
        names.append(name)
        sources.append(sources_of)

    def some(upto: int) -> tuple[int, ...]:
        read = st.integers(max(-1, upto - 6), upto - 1)
        return tuple(draw(st.lists(read, max_size=3, unique=True)))

    for n in range(draw(st.integers(1, 3))):
        for number in range(draw(st.integers(1, 4))):
            layer(f"l{n}_{number}", some(len(names)))
            keys.append(draw(key))
        length, count = draw(st.integers(1, 4)), draw(st.integers(1, 4))
        first = len(names)
        outside = draw(st.integers(-1, first - 1))
        # Within a body a source is an earlier layer of it, the block's input (-1), or outside (-2).
        body = [
            draw(st.lists(st.integers(-2, k - 1), min_size=1, max_size=3, unique=True))
            for k in range(length)
        ]
        # Few, so that repetitions are alike now and then.
        alike = draw(st.lists(st.tuples(*[key] * length), min_size=1, max_size=3))
        for number in range(count):
            keys += draw(st.sampled_from(alike))
            start = first + number * length
            read = {-1: start - 1, -2: outside}
            for k, inner in enumerate(body):
                own = dict.fromkeys(read.get(s, start + s) for s in inner)
                layer(f"b{n}.{number}.l{k}", tuple(own))
        repeats.append(Repeat(f"b{n}", first, length, count))
    return Structure(tuple(names), tuple(sources), tuple(repeats), tuple(keys))
