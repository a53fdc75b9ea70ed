"""A choice of parallelism looks the same in every report."""

from __future__ import annotations

import re
from colorsys import rgb_to_hls
from itertools import combinations
from pathlib import Path

import pytest
from rich.color import Color

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.display.glyphs import SYMBOLS, Symbol, cell_styles, symbol
from hypar_opt.display.terminal.notebook import plan_html
from hypar_opt.workload.parallelism import CHOICES
from tests.display.graphs import texts
from tests.display.test_figures import luminance, named, scales

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def hue(colour: str) -> float:
    """Degrees on the circle of colours."""
    red, green, blue = Color.parse(colour).get_truecolor().normalized
    return 360 * rgb_to_hls(red, green, blue)[0]


@pytest.mark.parametrize("own", SYMBOLS, ids=[own.name for own in SYMBOLS])
def test_all_shades_of_a_symbol_have_its_hue_and_its_glyph_is_read_on_them(own: Symbol) -> None:
    for shade in (own.light, own.dark):
        assert hue(shade.fill) == pytest.approx(hue(own.colour), abs=8)
        assert hue(shade.ink) == pytest.approx(hue(own.colour), abs=15)
        low, high = sorted(luminance(part) for part in shade)
        # As WCAG has it, of a graphical object.
        assert (high + 0.05) / (low + 0.05) > 3


def test_no_two_symbols_are_alike() -> None:
    for one, other in combinations(SYMBOLS, 2):
        assert len({one.glyph, other.glyph}) == len({one.ascii_glyph, other.ascii_glyph}) == 2
        assert abs(hue(one.colour) - hue(other.colour)) > 30


def test_a_choice_has_one_colour_on_terminal_picture_notebook_and_page() -> None:
    plan = ho.solve("alexnet", choices=CHOICES, array="hmc-htree-16")
    present = {choice for row in plan.parallelism for choice in row}
    assert len(present) == 3
    (scale,) = scales(plan.figure().to_dict(), "stroke")
    colours = dict(zip(scale["domain"], scale["range"], strict=True))
    notebook, sheet = plan_html(plan), cell_styles()
    for choice in present:
        own = symbol(choice)
        assert Color.parse(own.colour).get_truecolor().hex == own.colour
        assert colours[named(choice, CHOICES)] == own.colour
        assert f"background:{own.light.fill};color:{own.light.ink}" in notebook
        for shade in (own.light, own.dark):
            assert f".{own.name} {{ --fill: {shade.fill}; --on-fill: {shade.ink}; }}" in sheet


def test_the_terminals_picture_is_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that the command says; and no line names a clip path that is not there."""
    text = (IMAGES / "vgg-a.svg").read_text()
    monkeypatch.setenv("COLUMNS", "72")
    assert run(["solve", "vgg-a", "--solver", "dp"]) == 0
    said = f"$ hypar-opt solve vgg-a --solver dp {capsys.readouterr().out}"
    assert "".join("".join(texts(text)).split()) == "".join(said.split())
    named = set(re.findall(r"url\(#([^)]+)\)", text))
    assert named == set(re.findall(r'clipPath id="([^"]+)"', text))
    assert all(symbol(choice).colour in text for choice in ("data", "model"))
