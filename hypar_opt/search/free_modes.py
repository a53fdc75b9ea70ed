"""What a problem leaves open of how layers train, and words for it."""

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
"""Before the name of what the search chose of training, among the statistics of a plan."""

WIDENED = SEARCHED + "choices"
"""The name of choices that are those of a configuration, with its pins of layers left whole."""

CUTS = SEARCHED + "cuts"
"""The name of the cuts between pipeline stages, where they are not stated."""

COUNT = SEARCHED + "stages by "
"""Before the schedule, in the name of the number of pipeline stages, where it is not stated."""


def training_left_open(plan: Plan) -> dict[str, None]:
    """Return what of a plan's training the search chose, by name."""
    names = {key.removeprefix(SEARCHED) for row in plan.solver.statistics for key in row}
    return {name: None for name in Training.model_fields if name in names}


def has_wider_choices(plan: Plan) -> bool:
    """Return whether the search widened the default choices to those of a configuration."""
    return any(WIDENED in row for row in plan.solver.statistics)


def problem_left_open(plan: Plan) -> Problem:
    """Return the problem that a plan answers, as it was before the search chose some of it."""
    problem = plan.problem
    update: dict[str, Any] = {"training": plan.training.model_copy(update=training_left_open(plan))}
    if has_wider_choices(plan):
        constraints = problem.constraints.model_copy(update={"fix": ()})
        update |= {"choices": problem.step_model.choices, "constraints": constraints}
    return problem.model_copy(update=update)


def with_searched(found: SearchResult, asked: Instance, settled: Instance) -> SearchResult:
    """Return a result that says what of a problem's training the search chose."""
    row = searched_training(asked.problem.training, settled.problem.training)
    return replace(found, statistics=(*found.statistics, row)) if row else found


def searched_training(asked: Training, settled: Training) -> dict[str, float]:
    """Return the names of what was left open of how a step trains, as a row of statistics."""
    before, after = dict(asked), dict(settled)
    return {
        SEARCHED + name: 1 for name in before if before[name] is None and after[name] is not None
    }


def fastest_training(instance: Instance) -> Training:
    """Return how the fastest plan of any memory trains: the batch at once, as is stated.

    An optimizer's state is shared out by the parts that have the same weights: as many bytes move,
    each holds less, and updates less where that takes time.
    """
    problem = instance.problem
    arguments = instance.network, problem.training
    free_modes = FreeModes(*arguments, saves_scores=False, levels=problem.levels, begins=[0])
    shared_out = updates_take_time(problem) or problem.constraints.optimizer not in ("sgd", 0)
    # What is sharded is gathered as weights, and not as gradients.
    shared_out = shared_out or problem.training.reduced(problem.element_bytes) > 1
    if not (shared_out and problem.levels and None in free_modes.shard):
        return problem.training
    shard = compact([word or "state" for word in free_modes.shard], free_modes.names)
    return problem.training.model_copy(update={"shard": shard})


def updates_take_time(problem: Problem) -> bool:
    """Return whether parts that share out an optimizer's state have less to update."""
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
        How many there are.
    begins
        Those from which on gradients or weights may be split, in order, 0 for H1.
    has_state
        Whether there is anything of the optimizer's to share out.
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
        """The blocks that may be computed again as a whole, or not."""
        ranges = segments(self.network)
        return [block for block in ranges if all(self.recompute[n] is None for n in block)]

    @property
    def of_layers(self) -> Sequence[str]:
        """What layers may compute again by themselves: scores, where attention writes them."""
        open_ones = any(
            layer.inner and word is None
            for layer, word in zip(self.network.layers, self.recompute, strict=True)
        )
        return RECOMPUTED[: 1 + (open_ones and self.saves_scores)]

    @property
    def of_blocks(self) -> Sequence[str]:
        """What blocks may compute again as a whole, the least first."""
        return OF_BLOCKS[::-1] if self.blocks else ()

    @property
    def shards(self) -> Sequence[str]:
        """What may be split of weights: the least first, and last the most.

        To share out the state takes no more than to have it whole, and holds less.
        """
        if None not in self.shard:
            return SHARDED[:1]
        pairs = combinations_with_replacement([self.levels, *reversed(self.begins)], 2)
        return [
            Shards(0 if self.has_state else gradients, gradients, weights).word(self.levels)
            for weights, gradients in pairs
        ]

    def training(self, recompute: Sequence[str], shard: Sequence[str]) -> Training:
        """Return how a step trains with words for the layers that are open."""
        modes = (
            (self.stated.recompute, self.recompute, recompute),
            (self.stated.shard, self.shard, shard),
        )
        # A word for all layers stays as it is stated.
        words = [
            stated if isinstance(stated, str) else compact(_filled(by_layer, words), self.names)
            for stated, by_layer, words in modes
        ]
        stated = dict(self.stated) | {"recompute": words[0], "shard": words[1]}
        return Training(**stated)

    def uniform(self, recompute: str, shard: str) -> Training:
        """Return the mode in which all that is open has the same words."""
        count = len(self.names)
        again = [recompute] * count
        if recompute in OF_BLOCKS:
            inside = {n for block in self.blocks for n in block}
            again = [recompute if n in inside else "none" for n in range(count)]
        return self.training(again, [shard] * count)


def _filled(stated: Sequence[str | None], others: Sequence[str]) -> list[str]:
    return [word or other for word, other in zip(stated, others, strict=True)]


def spread(words: Sequence[str], matters: Sequence[bool]) -> list[str]:
    """Return words in which layers whose word does not matter have the most frequent of others."""
    frequent = most_frequent([*compress(words, matters)])
    return [word if matter else frequent for word, matter in zip(words, matters, strict=True)]
