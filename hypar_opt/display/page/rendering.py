"""Rendering of templates to pages, with styles, scripts and text in one file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from hypar_opt.display.glyphs import cell_styles
from hypar_opt.display.page.figure import as_script
from hypar_opt.display.palette import INK


def check_installed() -> None:
    """Refuse, before any work, if what draws the page is not installed.

    Raises
    ------
    HyparError
        Naming what to install.
    """
    import hypar_opt.display.figures  # noqa: F401


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return a template with its values filled in.

    Raises
    ------
    HyparError
        If a package that draws the page is not installed.
    """
    check_installed()
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from hypar_opt.display.figures.style import CONFIG

    # Names come from files, so all text is escaped; a misspelt variable is an error.
    environment = Environment(
        loader=PackageLoader("hypar_opt.display.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Our files and Vega's: templates insert these unescaped, and escape everything else.
    parts = {
        "cell_styles": cell_styles(),
        "style": package_file("page.css"),
        "script": package_file("page.js"),
        "vega": _vega(),
        "config": as_script(_on_page(CONFIG)),
    }
    return environment.get_template(template).render(**values, **parts)


@cache
def _vega() -> str:
    """Return the script that draws descriptions, for all figures of a page."""
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))


def _on_page(config: Any) -> Any:
    """Return figures' settings with the page's ink and background, which may be dark."""
    if isinstance(config, dict):
        return {key: _on_page(value) for key, value in config.items() if key != "background"}
    return "currentColor" if config == INK else config


def package_file(name: str) -> str:
    """Return the text of a file of this package."""
    return files("hypar_opt.display.page").joinpath(name).read_text("utf-8")
