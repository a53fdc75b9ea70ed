"""Signatures as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def _signature(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str, returns: str
) -> tuple[str, str] | None:
    """A document's keys stand below it, one by one."""
    if what == "class" and isinstance(thing, type) and issubclass(thing, BaseModel):
        return "", ""
    return None


def setup(app: Sphinx) -> dict[str, bool]:
    """Change signatures."""
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True}
