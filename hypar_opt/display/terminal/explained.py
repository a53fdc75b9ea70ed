"""The charge of a layer at a level on a terminal: each amount as its formula with its numbers."""

from __future__ import annotations

from fractions import Fraction

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.display.terminal.console import new_table, texts
from hypar_opt.studies.explained import Exchange, Explanation
from hypar_opt.units import format_bytes, format_rate, format_si


def explanation_view(explained: Explanation) -> RenderableType:
    """Show the bytes of each exchange, their sum, and what they take on the plan's array."""
    groups = "1 group" if explained.groups == 1 else f"{explained.groups:,} groups"
    title = f"{explained.layer} at {explained.level}: {explained.choice}, {groups} of accelerators"
    rows = [
        (own.phase, _what(own), _formula(explained, own), format_bytes(explained.bytes_of(own)))
        for own in explained.exchanges
    ]
    columns = texts("pass", "exchange", "groups x elements x bytes", "moved")
    notes = [f"In all {format_bytes(explained.bytes)}."] if len(rows) != 1 else []
    notes += _seconds(explained)
    table: list[RenderableType] = [new_table(columns, rows), Text()] if rows else []
    return Group(Text(title), Text(), *table, *map(Text, notes))


def _what(exchange: Exchange) -> str:
    return (
        exchange.tensor if exchange.source is None else f"{exchange.tensor} from {exchange.source}"
    )


def _formula(explained: Explanation, exchange: Exchange) -> str:
    elements = exchange.elements
    count = f"{elements.numerator:,}" if elements.denominator == 1 else f"{float(elements):,}"
    weight = f" x weight {explained.weight}" if explained.weight != 1 else ""
    return f"{explained.groups:,} x {count} x {explained.element_bytes}{weight}"


def _seconds(explained: Explanation) -> list[str]:
    """Return the time of exchanges and of computing, in sentences."""
    if explained.seconds is None:
        return []
    exchanging, computing = explained.seconds
    sentences = []
    if exchanging:
        sentences.append(f"Time: {_transfer(explained, exchanging)}.")
    if computing:
        sentences.append(
            f"Computing, charged at the last level: {format_si(float(computing), 's')}."
        )
    return sentences


def _transfer(explained: Explanation, seconds: Fraction) -> str:
    """Return the time of exchanges: their bytes over the level's rate, and their messages.

    Where that is not all, as around a ring that joins levels or with latencies that a bucket
    shares, it is the time alone.
    """
    total = format_si(float(seconds), "s")
    left = seconds - explained.bytes / explained.bytes_per_second
    messages = round(left / explained.latency) if explained.latency else 0
    # Each exchange is rounded by itself to the unit of the plan's cost.
    if abs(left - messages * explained.latency) * 10**9 > seconds or messages < 0:
        return f"{total}, with what its exchanges share with other levels or layers"
    moved, rate = format_bytes(explained.bytes), format_rate(explained.bytes_per_second)
    latencies = f" + {messages:,} x {format_si(float(explained.latency), 's')}" if messages else ""
    return f"{moved} / {rate}{latencies} = {total}"
