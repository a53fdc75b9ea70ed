"""The charge of a layer at a level on a terminal: each amount as its formula with its numbers."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.display.terminal.console import new_table, texts
from hypar_opt.studies.explained import Exchange, ExchangeTime, Explanation
from hypar_opt.units import format_bytes, format_percent, format_rate, format_si


def explanation_view(explained: Explanation) -> RenderableType:
    """Show the bytes of each exchange, their sum, and what they take on the plan's array."""
    groups = "1 group" if explained.groups == 1 else f"{explained.groups:,} groups"
    title = f"{explained.layer} at {explained.level}: {explained.choice}, {groups} of accelerators"
    rows = [
        (
            exchange.phase,
            _what(exchange),
            _formula(explained, exchange),
            format_bytes(explained.bytes_of(exchange)),
        )
        for exchange in explained.exchanges
    ]
    columns = texts("pass", "exchange", "groups x elements x bytes", "moved")
    parts: list[RenderableType] = [new_table(columns, rows)] if rows else []
    if len(rows) != 1:
        parts += [*([Text()] if rows else []), Text(f"In all {format_bytes(explained.bytes)}.")]
    return Group(Text(title), Text(), *parts, *_times(explained))


def _what(exchange: Exchange | ExchangeTime) -> str:
    return (
        exchange.tensor if exchange.source is None else f"{exchange.tensor} from {exchange.source}"
    )


def _formula(explained: Explanation, exchange: Exchange) -> str:
    elements = exchange.elements
    count = f"{elements.numerator:,}" if elements.denominator == 1 else f"{float(elements):,}"
    weight = f" x weight {explained.weight}" if explained.weight != 1 else ""
    return f"{explained.groups:,} x {count} x {explained.element_bytes}{weight}"


def _times(explained: Explanation) -> Iterator[RenderableType]:
    """Yield what each exchange takes, and the sums of exchanges and of computing."""
    if explained.seconds is None:
        return
    exchanging, computing = (format_si(float(amount), "s") for amount in explained.seconds)
    if explained.transfers:
        rows = [
            (
                transfer.phase,
                _what(transfer),
                _formula_of_time(transfer),
                format_si(float(transfer.seconds), "s"),
            )
            for transfer in explained.transfers
        ]
        columns = texts("pass", "exchange", "bytes / rate + messages x latency", "time")
        yield from (Text(), new_table(columns, rows), Text())
        joined = {transfer.levels for transfer in explained.transfers if len(transfer.levels) > 1}
        for levels in sorted(joined):
            yield Text(
                f"A ring joins {', '.join(levels)}, and moves their bytes together:"
                f" {explained.level} is charged for the part that crosses it."
            )
        if any(transfer.share != 1 for transfer in explained.transfers):
            yield Text("A bucket of gradients shares its latencies by their elements.")
        yield Text(f"Time of exchanges: {exchanging}.")
    if explained.seconds[1]:
        yield Text(f"Computing, charged at the last level: {computing}.")


def _formula_of_time(transfer: ExchangeTime) -> str:
    text = f"{format_bytes(transfer.bytes)} / {format_rate(transfer.bytes_per_second)}"
    if transfer.latency and transfer.messages:
        share = "" if transfer.share == 1 else f"{format_percent(float(transfer.share))} of "
        text += f" + {share}{transfer.messages:,} x {format_si(float(transfer.latency), 's')}"
    return text if transfer.crossing == 1 else f"({text}) x {transfer.crossing}"
