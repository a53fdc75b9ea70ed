"""The training settings that a problem leaves open, and possible words for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations_with_replacement, compress
from typing import TYPE_CHECKING, Any

from hypar_opt.plan.training import Training
from hypar_opt.workload.parallelism import RECOMPUTED, SHARDED
from hypar_opt.workload.patterns import compact, most_frequent, words_by_layer
from hypar_opt.workload.recomputation import OF_BLOCKS, recomputed_words, segments
from hypar_opt.workload.shards import Shards

if TYPE_CHECKING:
    from hypar_opt.instance.instance import Instance
    from hypar_opt.plan.plan import Plan
    from hypar_opt.plan.problem import Problem
    from hypar_opt.search.result import SearchResult
    from hypar_opt.workload.network import Network

SEARCHED = "searched "
"""Prefix, among the statistics of a plan, of training settings that the search chose."""

WIDENED = SEARCHED + "choices"
"""The name for choices widened to those of a configuration, with its pins of whole layers."""

CUTS = SEARCHED + "cuts"
"""The name of the cuts between pipeline stages, if they are not stated."""

COUNT = SEARCHED + "stages by "
"""Prefix of the schedule, in the name of the number of pipeline stages, if it is not stated."""


def training_left_open(plan: Plan) -> dict[str, None]:
    """Return the names of the training settings that the search chose."""
    names = {key.removeprefix(SEARCHED) for row in plan.solver.statistics for key in row}
    return {name: None for name in Training.model_fields if name in names}


def has_wider_choices(plan: Plan) -> bool:
    """Return whether the search widened the default choices to those of a configuration."""
    return any(WIDENED in row for row in plan.solver.statistics)


def problem_left_open(plan: Plan) -> Problem:
    """Return the problem of a plan as it was before the search settled open parts of it."""
    problem = plan.problem
    update: dict[str, Any] = {"training": plan.training.model_copy(update=training_left_open(plan))}
    if has_wider_choices(plan):
        constraints = problem.constraints.model_copy(update={"fix": ()})
        update |= {"choices": problem.step_model.choices, "constraints": constraints}
    return problem.model_copy(update=update)


def with_searched(result: SearchResult, stated: Instance, settled: Instance) -> SearchResult:
    """Return a result with the names of the training settings that the search chose."""
    row = searched_training(stated.problem.training, settled.problem.training)
    return replace(result, statistics=(*result.statistics, row)) if row else result


def searched_training(stated: Training, settled: Training) -> dict[str, float]:
    """Return the names of the settings that were left open, as a row of statistics."""
    open_settings, settings = dict(stated), dict(settled)
    return {
        SEARCHED + name: 1
        for name in open_settings
        if open_settings[name] is None and settings[name] is not None
    }


def fastest_training(instance: Instance) -> Training:
    """Return the training settings of the fastest plan in unlimited memory: no micro-batches.

    Parts with the same weights shard the optimizer's state: equally many bytes move, each part
    holds less, and updates less if that takes time.
    """
    problem = instance.problem
    stated = instance.network, problem.training
    free_modes = FreeModes(*stated, saves_scores=False, levels=problem.levels, begins=[0])
    shards_state = updates_take_time(problem) or problem.constraints.optimizer not in ("sgd", 0)
    # Shards are gathered as weights, not as gradients.
    shards_state = shards_state or problem.training.reduced(problem.element_bytes) > 1
    if not (shards_state and problem.levels and None in free_modes.shard):
        return problem.training
    shard = compact([word or "state" for word in free_modes.shard], free_modes.names)
    return problem.training.model_copy(update={"shard": shard})


def updates_take_time(problem: Problem) -> bool:
    """Return whether parts that shard an optimizer's state have less to update."""
    assert problem.array is not None
    accelerators = problem.array.description.accelerators_of_parts
    optimizer = problem.constraints.optimizer
    return any(accelerator.updated_by(optimizer).update for accelerator in accelerators)


@dataclass(frozen=True)
class FreeModes:
    """The words that layers may have, given those that are stated.

    Parameters
    ----------
    saves_scores
        Whether attention writes its scores.
    levels
        The number of levels.
    begins
        The levels from which on gradients or weights may be sharded, in order, 0 for H1.
    has_state
        Whether the optimizer has any state to shard.
    """

    network: Network
    stated: Training
    saves_scores: bool
    levels: int
    begins: Sequence[int]
    has_state: bool = True

    @cached_property
    def names(self) -> list[str]:
        """The layers' names."""
        return [layer.name for layer in self.network.layers]

    @cached_property
    def recompute(self) -> list[str | None]:
        """What is stated of each layer; None where it is open."""
        return recomputed_words(self.network, self.stated.recompute)

    @cached_property
    def shard(self) -> list[str | None]:
        """What is stated of each layer; None where it is open."""
        return words_by_layer(self.stated.shard, self.names, "shard")

    @cached_property
    def blocks(self) -> list[range]:
        """The blocks for which full recomputation is open."""
        return [
            block
            for block in segments(self.network)
            if all(self.recompute[n] is None for n in block)
        ]

    @property
    def of_layers(self) -> Sequence[str]:
        """What layers may recompute by themselves: scores, if attention writes them."""
        open_ones = any(
            layer.inner and word is None
            for layer, word in zip(self.network.layers, self.recompute, strict=True)
        )
        return RECOMPUTED[: 1 + (open_ones and self.saves_scores)]

    @property
    def of_blocks(self) -> Sequence[str]:
        """The words for recomputation of blocks, the least first."""
        return OF_BLOCKS[::-1] if self.blocks else ()

    @property
    def shards(self) -> Sequence[str]:
        """The words for sharding, from the least to the most.

        Sharding the state takes no more time than replicating it, and holds less.
        """
        if None not in self.shard:
            return SHARDED[:1]
        pairs = combinations_with_replacement([self.levels, *reversed(self.begins)], 2)
        return [
            Shards(0 if self.has_state else gradients, gradients, weights).word(self.levels)
            for weights, gradients in pairs
        ]

    def training(self, recompute: Sequence[str], shard: Sequence[str]) -> Training:
        """Return training settings, given words for the layers that are open."""
        options = (
            (self.stated.recompute, self.recompute, recompute),
            (self.stated.shard, self.shard, shard),
        )
        # A word that is stated for all layers stays one word.
        words = [
            stated if isinstance(stated, str) else compact(_filled(by_layer, free), self.names)
            for stated, by_layer, free in options
        ]
        stated = dict(self.stated) | {"recompute": words[0], "shard": words[1]}
        return Training(**stated)

    def uniform(self, recompute: str, shard: str) -> Training:
        """Return the mode in which all open layers have the same words."""
        count = len(self.names)
        words = [recompute] * count
        if recompute in OF_BLOCKS:
            inside = {n for block in self.blocks for n in block}
            words = [recompute if n in inside else "none" for n in range(count)]
        return self.training(words, [shard] * count)


def _filled(stated: Sequence[str | None], free: Sequence[str]) -> list[str]:
    return [word or default for word, default in zip(stated, free, strict=True)]


def spread(words: Sequence[str], matters: Sequence[bool]) -> list[str]:
    """Return words in which layers whose word does not matter have the most frequent one."""
    default = most_frequent([*compress(words, matters)])
    return [word if matter else default for word, matter in zip(words, matters, strict=True)]
