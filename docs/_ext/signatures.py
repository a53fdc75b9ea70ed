"""Signatures as people read them, and names that lead where they are documented."""

# ruff: noqa: ARG001  (Sphinx tells a handler more than it asks for)

from __future__ import annotations

import ast
import re
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from sphinx import addnodes

import hypar_opt

if TYPE_CHECKING:
    from docutils.nodes import Element
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

NUMPY = re.compile(r"~?numpy\.ndarray\[tuple\[.*?\.\.\.\], ~?numpy\.dtype\[~?[\w.]+\]\]")
HIDDEN = "\ue000"
VALIDATED = re.compile(
    r"\b(Amount|Annotated|Bandwidth|Borders|Bytes|EnergyQuantity|Flag|Levels|Name|OperationRate|OptionalBytes|Pair|Printable|Ratio|Size|Time)\b"
)
"""Types of keys that say how they are checked, which the format's own page does better."""


def _import_types(app: Sphinx) -> None:
    """Import what modules import for their annotations alone, so that these can be resolved."""
    for found in walk_packages(hypar_opt.__path__, "hypar_opt."):
        if not re.search(r"__main__|\.cli\b", found.name):
            import_module(found.name)
    for name, module in list(sys.modules.items()):
        if not name.startswith("hypar_opt.") or module.__file__ is None:
            continue
        for statement in ast.parse(Path(module.__file__).read_text("utf-8")).body:
            if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
                for line in statement.body:
                    with suppress(ImportError):  # of an extra
                        exec(ast.unparse(line), vars(module))


def _signature(
    app: Sphinx,
    what: str,
    name: str,
    thing: Any,
    options: Any,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Shorten arrays' types; a document's keys stand below it, one by one."""
    if what == "class" and (issubclass(thing, BaseModel) or getattr(thing, "_is_protocol", False)):
        return "", ""
    if signature:
        signature = NUMPY.sub("~numpy.ndarray", signature).replace("<factory>", "...")
    return signature, returns and NUMPY.sub("~numpy.ndarray", returns)


def _skip(app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what every document has."""
    return True if hasattr(BaseModel, name) else None


def _hide_colon(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Keep napoleon from reading an attribute's sentence up to its colon as a type."""
    if what in ("attribute", "data", "property"):
        lines[:1] = [line.replace(":", HIDDEN) for line in lines[:1]]


def _show_colon(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    lines[:] = [line.replace(HIDDEN, ":") for line in lines]


def _key(app: Sphinx, domain: str, kind: str, content: Element) -> None:
    """Leave out the types that say how a key is checked."""
    if (domain, kind) != ("py", "attribute"):
        return
    for signature in content.parent.findall(addnodes.desc_signature):
        for part in list(signature.findall(addnodes.desc_annotation)):
            if VALIDATED.search(part.astext()):
                signature.remove(part)


def _short_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, text: Element
) -> Element | None:
    """Find what a docstring names without its module, if only one thing is called so."""
    if node.get("refdomain") != "py":
        return None
    python = env.domains.python_domain
    ending = f".{node['reftarget']}"
    found = {
        entry.node_id: name
        for name, entry in python.objects.items()
        if name.endswith(ending) and not entry.aliased
    }
    if len(found) != 1:
        return None
    ((_, name),) = found.items()
    return python.resolve_xref(env, node["refdoc"], app.builder, "obj", name, node, text)


def setup(app: Sphinx) -> dict[str, bool]:
    """Change what autodoc makes."""
    app.connect("builder-inited", _import_types)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-docstring", _hide_colon, priority=100)  # before napoleon
    app.connect("autodoc-process-docstring", _show_colon, priority=900)
    app.connect("object-description-transform", _key)
    app.connect("missing-reference", _short_name)
    return {"parallel_read_safe": True}
