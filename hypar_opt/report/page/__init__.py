"""A plan and its step as one self-contained HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from hypar_opt.report.page.contents import Contents


def check_installed() -> None:
    """Refuse, before any work, if a package that draws the page is not installed.

    Raises
    ------
    HyparError
        Naming what to install.
    """
    try:
        import igraph  # noqa: F401
        import jinja2  # noqa: F401
        import plotly  # noqa: F401
    except ImportError:
        need = "a report needs plotly, jinja2 and igraph: pip install 'hypar-opt[report]'"
        raise HyparError(need) from None


def page(contents: Contents) -> str:
    """Return the page as HTML that loads no other file and no address.

    Raises
    ------
    HyparError
        If plotly, jinja2 or igraph is not installed.
    """
    check_installed()
    from importlib.resources import files

    from jinja2 import Environment, PackageLoader, StrictUndefined
    from plotly.offline import get_plotlyjs

    from hypar_opt.report.glyphs import cell_styles
    from hypar_opt.report.page import views

    # Names come from files, so all text is escaped; a misspelt variable is an error.
    environment = Environment(
        loader=PackageLoader("hypar_opt.report.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    own = files("hypar_opt.report.page")
    # Our own files and Plotly's: the template inserts these unescaped, and escapes all else.
    parts = {
        "cell_styles": cell_styles(),
        "style": own.joinpath("page.css").read_text("utf-8"),
        "script": own.joinpath("page.js").read_text("utf-8"),
        "graph_script": own.joinpath("graph.js").read_text("utf-8"),
        "plotly": get_plotlyjs(),
    }
    return environment.get_template("page.html.j2").render(
        **views.template_values(contents), **parts
    )
