"""Shards inside the nodes of an array, in terms of levels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hypar_opt.errors import HyparError, argument
from hypar_opt.workload.patterns import Words, parsed_words
from hypar_opt.workload.shards import INSIDE_NODES, with_node_levels

if TYPE_CHECKING:
    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.plan import Plan


def shards_of_plan(words: Any, plan: Plan, array: Array) -> Any:
    """Return `stated_shards` of a plan on an array, in the plan's order of levels on its own."""
    is_solved_for = plan.array is not None and plan.array.digest == array.digest()
    return stated_shards(words, array, plan.placement if is_solved_for else None)


def stated_shards(words: Any, array: Array, placement: Any = None) -> Any:
    """Return words of what is sharded, where ``@node`` names the levels inside the array's nodes.

    Parameters
    ----------
    words
        A word, words by layer, or something that validation will refuse.
    placement
        The order of the levels; None for the array's own.

    Raises
    ------
    HyparError
        If a word names nodes of an array without nodes, or levels inside nodes are not the last.
    """
    if not isinstance(words, str | Mapping) or INSIDE_NODES not in str(words):
        return words
    inside = array.inside_nodes(tuple(placement) if placement is not None else None)
    if not inside:
        raise HyparError(
            f"{argument('shard')}: @node needs an array of nodes of several accelerators, whose"
            f" levels are the last, and {array.name} is none"
        )
    parsed: Words = parsed_words(words, "shard")
    if isinstance(parsed, str):
        return with_node_levels(parsed, inside)
    return {
        name: with_node_levels(word, inside) if isinstance(word, str) else word
        for name, word in parsed.items()
    }
