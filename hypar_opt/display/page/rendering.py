"""Rendering of templates to pages, with styles, scripts and text in one file."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from hypar_opt.display.glyphs import cell_styles
from hypar_opt.errors import HyparError


def check_installed() -> None:
    """Refuse, before any work, if a package that draws the page is not installed.

    Raises
    ------
    HyparError
        Naming what to install.
    """
    try:
        import jinja2  # noqa: F401
        import plotly  # noqa: F401
    except ImportError:
        need = "a report needs plotly and jinja2: pip install 'hypar-opt[report]'"
        raise HyparError(need) from None


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return a template with its values filled in.

    Raises
    ------
    HyparError
        If a package that draws the page is not installed.
    """
    check_installed()
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from plotly.offline import get_plotlyjs

    # Names come from files, so all text is escaped; a misspelt variable is an error.
    environment = Environment(
        loader=PackageLoader("hypar_opt.display.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Our files and Plotly's: templates insert these unescaped, and escape everything else.
    parts = {
        "cell_styles": cell_styles(),
        "style": own_file("page.css"),
        "script": own_file("page.js"),
        "plotly": get_plotlyjs(),
    }
    return environment.get_template(template).render(**values, **parts)


def own_file(name: str) -> str:
    """Return the text of a file of this package."""
    return files("hypar_opt.display.page").joinpath(name).read_text("utf-8")
