"""Degrees that a caller states, ``tp=8,dp=4``, which pin all nodes to a configuration's choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hypar_opt.documents.parsing import shown
from hypar_opt.errors import HyparError, argument
from hypar_opt.plan.configuration import (
    DIMENSIONS,
    Configuration,
    choices_of_configurations,
    levels_of,
    limits_of,
    words_of,
)
from hypar_opt.plan.megatron import roles
from hypar_opt.workload.operators.axes import EXPERTS, FALLBACK_REPLICATED, TOKENS
from hypar_opt.workload.parallelism import CHOICES, PART_WORDS
from hypar_opt.workload.patterns import OTHER_LAYERS, STORED, patterns_naming
from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.tensors import Workload


def stated_degrees(
    network: Network, problem: Problem, stated: str, choices: Sequence[str] | None = None
) -> Configuration:
    """Return the configuration of ``tp=8,dp=4``: data, context, tensor and expert parallelism.

    Data parallelism takes all remaining parts unless it is stated, as ``dp`` or as ``dp_replicate``
    and ``dp_shard``. Sequence parallelism accompanies tensor parallelism if tokens divide. ``pp``
    is the number of pipeline stages, and ``v`` that of chunks in each.

    Parameters
    ----------
    problem
        Without stages.
    choices
        Those that a caller states; None for those that the degrees need.

    Raises
    ------
    HyparError
        If it is not of that form, or the network has no such configuration on these accelerators.
    """
    name, degree = argument("degrees"), _stated_numbers(stated)
    cp, tp, ep, pp, v = (degree.get(key, 1) for key in ("cp", "tp", "ep", "pp", "v"))
    rest = max(1, problem.accelerators // (pp * cp * tp))
    replicate = degree.get("dp_replicate", 1)
    shard = degree.get("dp_shard", max(1, rest // replicate))
    configuration = Configuration(replicate, shard, cp, tp, ep, pp=pp, interleave=v)
    if configuration.devices != problem.accelerators or degree.get("dp", rest) != rest:
        product = "pp x dp x cp x tp" if "pp" in degree else "dp x cp x tp"
        raise HyparError(
            f"{name}: {product} should be the {problem.accelerators:,} accelerators, got {stated!r}"
        )
    if v > 1 and pp == 1:
        raise HyparError(f"{name}: v needs pp, got {stated!r}")
    sizes = problem.hierarchy.sizes
    if pp > 1:
        if problem.array is None:
            raise HyparError(f"{name}: pp needs an array, got {stated!r}")
        problem.array.description.part(pp)
        merged = problem.hierarchy.merged(pp)
        assert merged is not None
        sizes = merged.sizes
    levels_of(configuration, sizes)
    for key, count, word in (("cp", cp, TOKENS.word), ("ep", ep, EXPERTS.word)):
        if count > 1 and choices is not None and word not in choices:
            raise HyparError(f"{name}: {key} needs {word} among the choices, got {stated!r}")
    limits = limits_of(network, problem, kv_replicated=True)
    without = configuration._replace(sp=tp == 1)
    by_token = choices is None or TOKENS.word in choices
    if not by_token or limits.fault_in_degrees(configuration) is not None:
        # The degrees are at fault, unless experts need sequence parallelism.
        configuration = (
            without
            if limits.fault_in_degrees(without) is None or not limits.experts
            else configuration
        )
    fault = limits.fault_in_degrees(configuration)
    if fault is not None:
        raise HyparError(f"{name}: {fault}, got {stated!r}")
    return configuration


def states_stages(stated: object) -> bool:
    """Return whether stated degrees have several stages."""
    return stated is not None and _stated_numbers(stated).get("pp", 1) > 1


def _stated_numbers(stated: object) -> dict[str, int]:
    """Return the numbers of ``tp=8,dp=4``, by name."""
    name = argument("degrees")
    if not isinstance(stated, str):
        raise HyparError(f"{name} should be text such as tp=8,dp=4, got {shown(stated)}")
    parts = [part.partition("=")[::2] for part in stated.split(",")]
    typed = {key.strip(): text.strip() for key, text in parts}
    names = ("dp", *DIMENSIONS, "ep", "pp", "v")
    numbers = all(text.isdecimal() and len(text) < 10 and int(text) for text in typed.values())
    if not numbers or not typed.keys() <= {*names} or len(typed) < len(parts):
        raise HyparError(
            f"{name} should be some of {', '.join(names)}, each once, as tp=8,dp=4, got {stated!r}"
        )
    return {key: int(text) for key, text in typed.items()}


def pinned(network: Network, problem: Problem, configuration: Configuration) -> Problem:
    """Return a problem whose layers and stored tensors are pinned to a configuration's choices.

    It has the choices that the pins need, counts what a run moves, with all-to-alls joined over
    levels, and leaves training open. With stages H1 is one level, which has no pins.

    Raises
    ------
    HyparError
        As `levels_of`, and if the network has no such configuration, naming the degree.
    """
    above = int(configuration.pp > 1)
    sizes = problem.hierarchy.sizes[above:]
    limits = limits_of(network, problem, kv_replicated=True)
    if (fault := limits.fault_in_degrees(configuration)) is not None:
        raise HyparError(f"{argument('degrees')}: {fault}")
    offered = choices_of_configurations(network, kv_replicated=True)
    workload = workload_of(network, 1, offered, shared_tensors=True)
    rows = words_of(configuration.inside, roles(network, workload), sizes)
    tensors, layers = [*workload.tensor_writers], range(workload.shared, len(workload.nodes))
    pins: list[str] = []
    used = {*CHOICES}
    for level, row in enumerate(rows, 1 + above):
        for nodes, star in ((layers, OTHER_LAYERS), (tensors, f"{STORED}{OTHER_LAYERS}")):
            for word in dict.fromkeys(row[node] for node in nodes):
                chosen = [node for node in nodes if row[node] == word]
                used |= {offered[workload.words[node].index(word)] for node in chosen}
                patterns = [star]
                if len(chosen) < len(nodes):
                    patterns = _patterns(chosen, nodes, workload)
                pins += (f"{pattern}@H{level}={word}" for pattern in patterns)
    if EXPERTS.word in offered:  # without it `model` splits experts
        used.add(EXPERTS.word)
    constraints = problem.constraints
    update: dict[str, Any] = {
        "choices": (
            *(word for word in offered if word in used),
            *(word for word in problem.choices if word in PART_WORDS and above),
        ),
        "constraints": constraints.model_copy(update={"fix": (*constraints.fix, *pins)}),
    }
    if (configuration.cp, configuration.tp, configuration.ep) != (1, 1, 1):
        update["reading"] = "executed" if problem.groups else "joined"
    return problem.model_copy(update=update)


def choices_and_pins(
    network: Network, problem: Problem, configuration: Configuration
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the choices that a configuration's plan needs, and pins of some layers.

    The pins are of layers that the configuration leaves whole although choices split them.

    Parameters
    ----------
    problem
        With `choices_of_configurations`.

    Raises
    ------
    HyparError
        As `levels_of`.
    """
    workload = workload_of(network, 1, problem.choices, shared_tensors=True)
    rows = words_of(configuration, roles(network, workload), problem.hierarchy.sizes)
    layers = range(workload.shared, len(workload.nodes))
    # Without `experts` the choice `model` splits experts.
    used, pins = {*CHOICES, EXPERTS.word}, list[str]()
    for level, row in enumerate(rows, 1):
        for node in (*workload.tensor_writers, *layers):
            used.add(problem.choices[workload.words[node].index(row[node])])
        whole = [
            node
            for node in layers
            if row[node] == FALLBACK_REPLICATED.word
            and FALLBACK_REPLICATED in workload.choices_of_nodes[node]
        ]
        patterns = _patterns(whole, layers, workload)
        pins += (f"{pattern}@H{level}={FALLBACK_REPLICATED.word}" for pattern in patterns)
    return tuple(word for word in problem.choices if word in used), tuple(pins)


def _patterns(chosen: Sequence[int], nodes: Sequence[int], workload: Workload) -> list[str]:
    """Return patterns that match the names of some nodes, and of no others."""
    named, names = (
        [workload.nodes[node].name for node in positions] for positions in (chosen, nodes)
    )
    return patterns_naming(named, names)
