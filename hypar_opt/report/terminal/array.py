"""An array on a terminal: its accelerators, its levels' bandwidths, its links."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.report.terminal.console import ascii_only, rows_view
from hypar_opt.units import format_bytes, format_number, format_rate, format_si

if TYPE_CHECKING:
    from hypar_opt.hardware.array import Array
    from hypar_opt.hardware.links import Link

_ENERGIES = {
    "mac": "a multiply-accumulate",
    "sram": "its buffer accesses",
    "dram": "a 32-bit word of its own DRAM",
    "remote": "a word from another",
    "hop": "a word over one link",
}


def array_view(array: Array) -> RenderableType:
    """Show an array: its accelerators, the bandwidth of each level, and its links."""
    count = array.interconnect.accelerators
    accelerators = "1 accelerator" if count == 1 else f"2^{array.levels} = {count:,} accelerators"
    topology = _topology(array)
    title = f"{array.name}: {accelerators}, {topology}, {array.collective} all-reduce"
    parts: list[RenderableType] = [Text(title)]
    parts += [Text(array.source, style="dim")] if array.source else []
    parts += [Text(), rows_view(("an accelerator", ""), _accelerator(array))]
    if array.levels:
        parts += [Text(), _levels(array), Text(), _links(array)]
    return Group(*parts)


def described(array: Array) -> dict[str, Any]:
    """Return an array as plain data: its description, and values derived from its topology."""
    return {
        "name": array.name,
        "digest": array.digest(),
        "accelerators": array.interconnect.accelerators,
        "levels": array.rows(),
        "links": [
            {
                "count": count,
                "between": between,
                "bytes_per_second": float(bandwidth),
                "latency": float(latency),
                "duplex": duplex,
            }
            for (between, bandwidth, latency, duplex), count in _link_kinds(array).items()
        ],
        "description": array.description(),
    }


def _topology(array: Array) -> str:
    """Return the kind of topology with its sizes."""
    shape = getattr(array.topology, "shape", None)
    if shape:
        return f"{array.topology.kind} of {'x'.join(map(str, shape))}"
    nodes = getattr(array.topology, "nodes", None)
    per_node = getattr(array.topology, "per_node", None)
    # A plug-in's topology may use such names for something else.
    if array.topology.kind == "nodes" and nodes and per_node:
        return f"{nodes} node{'s' if nodes > 1 else ''} of {per_node}"
    return array.topology.kind


def _accelerator(array: Array) -> list[tuple[str, str]]:
    own = array.accelerator
    units = f" of {own.units:,} units" if own.units > 1 else ""
    peak = own.units * own.operations
    if own.pe_array is not None:
        mapped = f"row-stationary on {own.pe_array.rows}x{own.pe_array.columns} elements a unit"
    else:
        mapped = f"{format_number(100 * float(own.utilisation or 0))} % of it in every layer"
    rows = [
        (f"peak{units}", f"{format_si(float(peak), 'OP/s')}, {mapped}"),
        ("DRAM", f"{format_bytes(own.dram_capacity)}, {format_rate(own.dram_bandwidth)}"),
    ]
    if own.vaults > 1:
        rows.append(("vaults", f"{own.vaults}"))
    if array.energy is None:
        return [*rows, ("energies", "none: joules cannot be asked for")]
    energies = ((key, getattr(array.energy, key)) for key in _ENERGIES)
    # Parts without energy are not in the file.
    known = [(_ENERGIES[key], joules) for key, joules in energies if joules]
    return [*rows, *((name, format_si(float(joules), "J")) for name, joules in known)]


def _splits(array: Array) -> list[tuple[int, Fraction, Fraction, Fraction]]:
    """Return each level's bit, bandwidth in bytes a second, latency in seconds, and hops."""
    links = [(bit, array.interconnect.bisection(bit)) for bit in array.placement]
    return [(bit, 1 / own.seconds_per_byte, own.latency, own.hops) for bit, own in links]


def _levels(array: Array) -> RenderableType:
    """Show the bandwidth of an exchange at each level, in the default placement."""
    count = array.interconnect.accelerators
    rows = [
        (
            f"H{level}",
            f"0 with {1 << bit}",
            format_rate(bandwidth),
            format_rate(bandwidth / count),
            format_si(float(latency), "s"),
            format_number(float(hops)),
        )
        for level, (bit, bandwidth, latency, hops) in enumerate(_splits(array), 1)
    ]
    head = ("level", "exchanges", "bandwidth", "of each", "latency", "hops")
    return rows_view(head, rows, right=(2, 3, 4, 5))


def _link_kinds(array: Array) -> Counter[tuple[str, Fraction, Fraction, str]]:
    """Return the number of links of each kind, in the topology's order."""
    return Counter(
        (
            _between(link),
            link.bytes_per_second,
            link.latency,
            "full" if link.full_duplex else "half",
        )
        for link in array.interconnect.links
    )


def _between(link: Link) -> str:
    # Accelerators are the nodes with numbers as names.
    ends = (isinstance(link.source, int), isinstance(link.target, int))
    if all(ends):
        return "accelerators"
    return "accelerator and switch" if any(ends) else "switches"


def _links(array: Array) -> RenderableType:
    times = "x" if ascii_only() else "×"
    rows = [
        (
            f"{count:,} {times}",
            between,
            format_rate(bandwidth),
            format_si(float(latency), "s"),
            duplex,
        )
        for (between, bandwidth, latency, duplex), count in _link_kinds(array).items()
    ]
    head = ("links", "between", "bandwidth", "latency", "duplex")
    return rows_view(head, rows, right=(0, 2, 3))
