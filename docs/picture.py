"""Draw the README's picture from a real run: ``make picture``."""

from __future__ import annotations

import io
import re
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

import hypar_opt as ho
from hypar_opt.display.terminal.plan import plan_view
from hypar_opt.studies import advice

IMAGE = Path(__file__).parent / "images" / "vgg-a.svg"

# Rich's own frame loads a font from the network; this one asks for what the reader has.
FRAME = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" \
xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: Consolas, Menlo, "DejaVu Sans Mono", monospace; \
font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
</defs>
<rect width="{width}" height="{height}" rx="8" fill="#0c0c0c"/>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
"""


def draw() -> str:
    """Return the picture of VGG-A's plan on sixteen accelerators."""
    console = Console(record=True, width=72, file=io.StringIO(), highlight=False)
    console.print("$ hypar-opt solve vgg-a --solver dp", style="bold", highlight=False)
    plan = ho.solve("vgg-a")
    # With all that the command says.
    console.print(plan_view(plan, advice.joint_optimum(plan)))
    console.print()  # as much room below as above
    drawn = console.export_svg(theme=MONOKAI, code_format=FRAME, unique_id="vgg-a")
    # Each line names a clip path, but Rich defines none for the last, which viewers then leave out.
    return re.sub(r' clip-path="url\(#vgg-a-line-\d+\)"', "", drawn)


if __name__ == "__main__":
    IMAGE.write_text(draw(), encoding="utf-8")
