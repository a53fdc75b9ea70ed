"""A certificate on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.report.terminal.console import rows_view

if TYPE_CHECKING:
    from hypar_opt.proofs.certificate import Certificate


def certificate_view(certificate: Certificate) -> RenderableType:
    """Show what a certificate proves of which plan, and its size."""
    what = "at each level" if certificate.scope == "level" else "over all levels together"
    rows = [(f"{row['table']}", row["proof"], f"{row['numbers']:,}") for row in certificate.rows()]
    return Group(
        Text(f"Certificate that a plan is optimal {what}; to check with the plan."),
        Text(f"Plan {certificate.plan}", "dim"),
        rows_view(("table", "proof", "numbers"), rows, right=(0, 2)),
    )
