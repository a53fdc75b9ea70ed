"""A plan and its step, or an exploration, as one self-contained HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hypar_opt.display.page.contents import Contents
    from hypar_opt.studies.exploration import Exploration


def page(contents: Contents) -> str:
    """Return the page as HTML that loads no other file and no address.

    Raises
    ------
    HyparError
        If the extra ``figures`` is not installed.
    """
    from hypar_opt.display.page import views
    from hypar_opt.display.page.rendering import package_file, render

    scripts = {"grid_script": package_file("grid.js"), "graph_script": package_file("graph.js")}
    return render("page.html.j2", {**views.template_values(contents), **scripts})


def exploration_page(exploration: Exploration, command: str = "") -> str:
    """Return a page about every plan of a subspace, as `page` is one.

    Parameters
    ----------
    command
        The command that makes it.

    Raises
    ------
    HyparError
        If the extra ``figures`` is not installed.
    """
    from hypar_opt.display.page.explored import template_values
    from hypar_opt.display.page.rendering import render

    return render("explored.html.j2", {**template_values(exploration), "command": command})
