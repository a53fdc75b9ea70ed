"""An array on a terminal: its accelerators, its levels' bandwidths, its links."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.display.terminal.console import Column, ascii_only, new_table, table_of, texts
from hypar_opt.hardware.accelerator import Accelerator
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.links import LINK_KINDS
from hypar_opt.hardware.roofline import roofline
from hypar_opt.units import COUNT, SECONDS, format_bytes, format_number, format_rate, format_si

SHOWN_PARTS = 4
"""The accelerators that a level's row names; of more, the first ones and the last."""

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
    accelerators = "1 accelerator" if count == 1 else f"{array.hierarchy().shown} accelerators"
    accelerators = ", ".join([accelerators, *array.kinds])
    topology = _topology(array)
    title = f"{array.name}: {accelerators}, {topology}, {array.collective} all-reduce"
    title += f", model {array.model}" if array.model else ""
    parts: list[RenderableType] = [Text(title)]
    parts += [Text(array.source, style="dim")] if array.source else []
    kinds = [f"each of {kind}" for kind in array.kinds] or ["an accelerator"]
    for kind, accelerator in zip(kinds, array.groups or [array.accelerator], strict=True):
        parts += [Text(), new_table(texts(kind, ""), _accelerator(array, accelerator))]
    if array.levels:
        parts += [Text(), _levels(array), Text(), _links(array), Text(), Text(_bottleneck(array))]
    return Group(*parts)


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


def _accelerator(array: Array, device: Accelerator) -> list[tuple[str, str]]:
    units = f" of {device.units:,} units" if device.units > 1 else ""
    peak = device.units * device.operations
    if device.pe_array is not None:
        mapped = (
            f"row-stationary on {device.pe_array.rows}x{device.pe_array.columns} elements a unit"
        )
    else:
        where = "in every layer" if device.gemm is None else "in large matrix products"
        mapped = (
            f"{format_number(100 * float(device.utilisation or device.gemm or 0))} % of it {where}"
        )
        mapped += f", {format_number(100 * device.conv)} % in convolutions" if device.conv else ""
    rows = [
        (f"peak{units}", f"{format_si(float(peak), 'OP/s')}, {mapped}"),
        ("DRAM", f"{format_bytes(device.dram_capacity)}, {format_rate(device.dram_bandwidth)}"),
    ]
    if device.vaults > 1:
        rows.append(("vaults", f"{device.vaults}"))
    if device.gemm is not None:
        parts = [f"{format_number(100 * (device.elementwise or 1))} % of the DRAM's bandwidth"]
        parts += [f"{format_si(float(device.launch), 's')} to launch"] if device.launch else []
        parts += [f"{format_si(float(device.host), 's')} on the host"] if device.host else []
        rows.append(("kernels", ", ".join([*parts, f"attention {device.attention or 'fused'}"])))
    if array.energy is None:
        return [*rows, ("energy", "not stated")]
    energies = ((key, getattr(array.energy, key)) for key in _ENERGIES)
    # Parts without energy are not in the file.
    stated = [(_ENERGIES[key], joules) for key, joules in energies if joules]
    return [*rows, *((name, format_si(float(joules), "J")) for name, joules in stated)]


def _levels(array: Array) -> RenderableType:
    """Show the bandwidth of an exchange at each level, in the default placement.

    Levels of equal exchanges that follow one another are one line.
    """
    count = array.interconnect.accelerators
    columns: list[Column] = [
        *texts("level", "exchanges"),
        *(("bandwidth", format_rate), ("per accelerator", format_rate)),
        *(("latency", SECONDS), ("hops", format_number)),
    ]
    levels = []
    for level, digit in enumerate(array.placement, 1):
        link = array.interconnect.bisection(digit)
        rate = 1 / link.seconds_per_byte
        amounts = (rate, rate / count, float(link.latency), float(link.hops))
        stride, parts = array.interconnect.place(digit)
        strides = [f"{stride * part}" for part in range(1, parts)]
        if len(strides) > SHOWN_PARTS:
            strides[SHOWN_PARTS - 1 : -1] = ["..."]
        levels.append((f"H{level}", ", ".join(strides), amounts))
    rows = []
    for amounts, equal in groupby(levels, key=itemgetter(2)):
        names, exchanged, _ = zip(*equal, strict=True)
        name = _plain("–".join(dict.fromkeys((names[0], names[-1]))))
        rows.append((name, f"0 with {'; '.join(exchanged)}", *amounts))
    return new_table(columns, rows)


def _plain(name: str) -> str:
    """Return the name of levels, on an ASCII terminal with a hyphen."""
    return name.replace("–", "-") if ascii_only() else name


def _bottleneck(array: Array) -> str:
    """Return the levels of the least bandwidth, their full link, and what computing hides."""
    roofs = roofline(array)
    slowest = roofs.bottleneck
    if slowest is None or slowest.link is None:
        return ""
    name = _plain(slowest.name)
    ridge = roofs.ridge(slowest)
    shown = f"{ridge:,.0f}" if ridge >= 10 else format_number(ridge)
    return (
        f"Bottleneck: {name}, {format_rate(slowest.bytes_per_second)} per accelerator, limited by"
        f" links such as {slowest.link.name} ({slowest.link.between}); below {shown} operations per"
        " byte exchanges take longer than computation."
    )


def _links(array: Array) -> RenderableType:
    times = "x" if ascii_only() else "×"
    counts = (f"{kind.number:,} {times}" for kind in array.link_kinds)
    return table_of(LINK_KINDS, array.link_kinds, ("links", COUNT), counts)
