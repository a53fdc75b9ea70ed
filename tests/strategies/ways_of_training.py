"""Every plan of a small problem in every way of training by layer, with its time and memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations_with_replacement, product

import hypar_opt as ho
from hypar_opt.costs.shared_nodes import Rows
from hypar_opt.frozen import FrozenDict
from hypar_opt.hardware.array import Array
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import nodes_of, price_plans, tensors_of
from hypar_opt.plan.problem import Problem
from hypar_opt.plan.training import Training
from hypar_opt.simulator.memory import counted_memory, parts_between_groups, reserved_by
from hypar_opt.workload.parallelism import SHARDED
from hypar_opt.workload.recomputation import OF_BLOCKS
from hypar_opt.workload.shards import Shards


def words_in(levels: int) -> list[str]:
    """Everything that weights can split: the state, gradients and weights, each from a level on."""
    begins = combinations_with_replacement(range(levels + 1), 3)
    return [Shards(*own).word(levels) for own in begins]


def words_on(array: Array, placement: tuple[int, ...]) -> list[str]:
    """What a search leaves open: the state of all levels, more from where links change."""
    links = [array.interconnect.bisection(digit) for digit in placement]
    tiers = [0, *(n for n in range(1, len(links)) if links[n] != links[n - 1]), len(links)]
    begins = combinations_with_replacement(tiers, 2)
    return [Shards(0, *own).word(len(links)) for own in begins]


def ways_by_layer(
    network: ho.Network,
    micro_batches: int,
    shard: Mapping[str, str] = FrozenDict(),
    words: Sequence[str] = SHARDED[1:],
) -> Iterator[Training]:
    """Every way: what is sharded of each layer, and which attentions and blocks run again.

    Parameters
    ----------
    shard
        The words of layers whose weights are not open.
    words
        Those of others.
    """
    weighty = [row["name"] for row in network.rows() if row["weights"] and row["name"] not in shard]
    inner = [layer.name for layer in network.layers if layer.inner]
    # One layer names its block.
    blocks = [
        network.layers[block.first + n * block.length].name
        for block in network.repeats
        for n in range(block.count)
    ] or [network.layers[0].name]
    for shards in product(words, repeat=len(weighty)):
        for again in product((None, *OF_BLOCKS), repeat=len(blocks)):
            for scores in product(("none", "selective"), repeat=len(inner)):
                recompute = dict(zip(inner, scores, strict=True))
                recompute |= {name: word for name, word in zip(blocks, again, strict=True) if word}
                own = dict(zip(weighty, shards, strict=True))
                yield Training(
                    micro_batches=micro_batches,
                    recompute={"*": "none", **recompute},
                    shard={"*": "none", **shard, **own},
                )


def every_trained(
    problem: Problem,
    network: ho.Network,
    words: Sequence[str] = SHARDED[1:],
    *,
    only: Sequence[Rows] = (),
    with_reserve: bool = False,
) -> list[tuple[Fraction, int]]:
    """The seconds and the bytes of every plan, in every number of micro-batches and every way."""
    return [
        own
        for count in range(1, problem.batch + 1)
        if problem.batch % count == 0
        for way in ways_by_layer(network, count, words=words)
        for own in counted(problem, network, way, only=only, with_reserve=with_reserve)
    ]


def counted(
    problem: Problem,
    network: ho.Network,
    training: Training,
    *,
    only: Sequence[Rows] = (),
    with_reserve: bool = False,
) -> Iterator[tuple[Fraction, int]]:
    """The seconds and the bytes of every plan of a problem, or some, that trains in one way.

    Between groups of accelerators of equal memory the bytes of the fullest.
    """
    stated = {name: getattr(problem.training, name) for name in ("gather", "reduce_bytes")}
    training = training.model_copy(update=stated)
    instance = Instance(network, problem.model_copy(update={"training": training}))
    assert problem.array is not None
    parts = parts_between_groups(problem, problem.array.description)
    layers, levels = len(network.layers), problem.levels
    columns = range(len(problem.choices))
    every = (
        tuple(flat[n * layers : (n + 1) * layers] for n in range(levels))
        for flat in product(columns, repeat=layers * levels)
    )
    workload, cost = instance.workload, instance.cost
    plans = [rows for rows in only or every if instance.constraints.allow(rows)]
    stored = [tensors_of(instance, rows) for rows in plans]
    # All at once, which takes little longer than one.
    priced = price_plans(workload, cost, plans, stored, rule=instance.rule) if plans else ()
    for rows, tensors, charges in zip(plans, stored, priced, strict=True):
        nodes = nodes_of(workload, cost, rows, tensors, rule=instance.rule)
        fullest = 0
        for accelerator, share in parts:
            own = instance.problem, network, workload, nodes, accelerator
            held, moment = counted_memory(*own, share=share)
            total = sum(own.weights + own.gradients + own.state + own.saved for own in held)
            reserved = reserved_by(accelerator, workload, nodes) if with_reserve else 0
            fullest = max(fullest, total + moment.total + reserved)
        yield sum(charges, Fraction()) / getattr(cost, "per_unit", 1), fullest
