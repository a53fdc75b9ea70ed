"""The page's figures: their descriptions for its script, with captions and tables."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hypar_opt.display.figures.style import Figure


@dataclass(frozen=True)
class Chart:
    """One figure, with its caption, and its numbers as a table.

    Parameters
    ----------
    id
        Identifier of the HTML element.
    figure
        Its description in Vega-Lite, as JSON that is safe in a script element.
    more
        A line below the table on what it leaves out.
    """

    id: str
    title: str
    caption: str
    figure: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    more: str = ""


def chart_of(
    drawn: Figure,
    name: str,
    title: str,
    caption: str,
    header: tuple[str, ...],
    rows: Iterable[tuple[str, ...]],
    more: str = "",
    *,
    stretched: bool = True,
) -> Chart:
    """Return a figure with its caption and its table, as `Chart` has them.

    Parameters
    ----------
    stretched
        Whether it is as wide as the page, where it is no concatenation.
    """
    described = drawn.to_dict()
    # The page has one copy of these.
    for key in ("$schema", "config"):
        del described[key]
    if stretched and "width" in described:
        described["width"] = "container"
    return Chart(name, title, caption, as_script(described), header, tuple(rows), more)


def as_script(document: Any) -> str:
    """Return JSON that is safe in a script element, whatever its strings are."""
    text = json.dumps(document, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    # A layer named </script> would end the element.
    # U+2028 and U+2029 end a line in older JavaScript, even within a string.
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
