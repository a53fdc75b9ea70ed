"""The paper's numbers, computed once for all tests of a process."""

from __future__ import annotations

from functools import cache

from hypar_opt import paper
from hypar_opt.paper import PaperRow


@cache
def reproduced() -> dict[str, list[PaperRow]]:
    return paper.reproduce()
