"""Make a validated `Problem` of a caller's arguments, with an array's levels and placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from hypar_opt.checked import plain
from hypar_opt.documents.document import Document, validate
from hypar_opt.documents.parsing import shown
from hypar_opt.documents.sizes import stated_bytes
from hypar_opt.errors import ARRAY, HyparError, UnknownNameError, argument
from hypar_opt.hardware import arrays
from hypar_opt.hardware.step_model import HYPAR_2019, StepModel
from hypar_opt.hierarchy import MAX_PARTS, Hierarchy
from hypar_opt.plan.constraints import Constraints
from hypar_opt.plan.node_levels import stated_shards
from hypar_opt.plan.problem import RUN_READINGS, ArrayRecord, Problem
from hypar_opt.plan.training import Training
from hypar_opt.workload.addends import joins_partial_sums
from hypar_opt.workload.layer_tensors import tensors_of
from hypar_opt.workload.operators.axes import ADDENDS
from hypar_opt.workload.parallelism import (
    ALL_CHOICES,
    CHOICES,
    EQUAL_PART_CHOICES,
    PAPERS_CHOICES,
    PART_WORDS,
    RUN_CHOICES,
    part_word,
    stated_choices,
)
from hypar_opt.workload.patterns import Words

if TYPE_CHECKING:
    from hypar_opt.hardware.array import Array
    from hypar_opt.workload.network import Network


MAX_JOINED_LEVELS = 6
"""The most levels at which all choices count one all-to-all over several of them, which takes a
search over all levels together."""


MAX_ACCELERATORS = 2**32
"""The most accelerators that a single number states; levels may have more."""


class PlanningArguments(TypedDict, total=False):
    """The arguments of a problem, except its array."""

    batch: int
    tokens: int | None
    bucket: int | str | None
    accelerators: int | None
    levels: int | None
    hierarchy: Sequence[int] | None
    whole_levels: bool
    element_bytes: int | None
    inference: bool
    choices: Sequence[str] | Literal["all"] | None
    level_weights: Sequence[int]
    constraints: Constraints | Mapping[str, Any]
    placement: Sequence[int] | None
    share: float | Sequence[float] | None
    training: Training | Mapping[str, Any]
    cost: str | None
    reading: str | None
    fix: Sequence[str]
    even: bool
    runnable: bool | None
    memory: int | str | None
    optimizer: str | int
    micro_batches: int | None
    recompute: Words | None
    shard: Words | None
    gather: Words | None
    reduce_bytes: int | None
    schedule: str | None
    settings: Mapping[str, Any] | None
    degrees: str | None


class ProblemArguments(PlanningArguments, total=False):
    """The keyword arguments that state a problem; `Problem` documents each of them.

    ``tokens`` is the length of the network's sequences, in place of its own. ``settings`` are
    values of keys of the network's and the array's file, in place of theirs:
    ``{"topology.link.bandwidth": "50 GB/s"}``. ``degrees``, as ``"tp=8,dp=4"``, pins all layers and
    stored tensors as that configuration of Megatron-LM has them. ``hypar_opt.plan.stated`` applies
    these three; ``problem_of`` takes the resulting arguments.

    ``accelerators`` states the levels by their number: ``16`` is ``levels=4``, and any other number
    has a level for each of its prime factors, smallest first; on an array it is the array's.
    ``hierarchy`` states the levels by their parts: ``(2, 2, 2)`` is ``levels=3``, and ``(6, 8)``
    six nodes of eight, split into levels of its prime factors unless ``whole_levels``. None leaves
    ``levels`` and ``placement`` to the array, ``element_bytes`` to the network, and ``reading`` to
    the default. ``array`` may be a preset's name, a path or an `Array`; ``memory="array"`` among
    the constraints is the capacity of an accelerator's memory in that array. ``bucket``, in bytes,
    replaces the array's; 0 reduces each gradient by itself. On an array of two groups ``share`` is
    the first group's share of what H1 splits, on more groups it is the shares of all; None leaves
    them to a search for time, and means equal parts for bytes. ``training`` has ``micro_batches``,
    ``recompute`` and ``shard``; those that are not stated are searched where a plan for time
    exceeds the memory of the array's accelerators. It also has ``gather`` and ``reduce_bytes``,
    which are never searched. The entries of ``constraints`` and ``training`` may also be arguments
    themselves, as on the command line: ``fix=["fc1@H2=data"]``, ``memory="8GB"``,
    ``micro_batches=4``.

    ``tensor`` among ``choices`` stands for model and output.

    On an array whose file states no ``model``, ``cost`` is time unless it is given, ``choices`` are
    data, model and output, ``element_bytes`` the array's, and plans are those that can run
    (``runnable`` among the constraints); `hypar_opt.hardware.step_model.StepModel` has the defaults
    of other arrays.
    """

    array: str | Path | Array | ArrayRecord | None


_GROUPS: dict[str, type[Document]] = {"constraints": Constraints, "training": Training}
"""Arguments whose entries may be arguments themselves."""

_DECIDED_OTHERWISE = {
    *("accelerators", "levels", "hierarchy", "array", "placement", "bucket", "share"),
    *("reading", "element_bytes", "cost", "choices"),
}
"""Arguments for which None means that they are not given."""


def problem_of(network: Network | None = None, **arguments: Unpack[ProblemArguments]) -> Problem:
    """Return the validated problem; an array decides its levels unless they are given.

    Parameters
    ----------
    network
        The network of the problem, which decides the defaults of ``reading`` and ``element_bytes``;
        None for a chain in single precision.

    Raises
    ------
    HyparError
        Naming the wrong argument, and what would be right.
    """
    names = {*ProblemArguments.__annotations__, *Problem.model_fields}
    for name in arguments:
        if name not in names:
            raise UnknownNameError("argument", name, list(ProblemArguments.__annotations__))
    # None means "not given" for these only; elsewhere it is an error that validation reports.
    fields: dict[str, Any] = {
        name: plain(value)
        for name, value in arguments.items()
        if value is not None or name not in _DECIDED_OTHERWISE
    }
    for group, model in _GROUPS.items():
        fields |= _gathered(fields, group, model)
    whole = fields.pop("whole_levels", False)
    if not isinstance(whole, bool):
        raise HyparError(f"{argument('whole_levels')} should be true or false, got {shown(whole)}")
    if network is not None and network.element_type is not None:
        fields = {"element_bytes": network.element_bytes, **fields}
    if all_choices := fields.get("choices") in ("all", ("all",), ["all"]):
        fields["choices"] = ALL_CHOICES if network is None else _offered(network)
    elif isinstance(fields.get("choices"), list | tuple):
        try:
            fields["choices"] = stated_choices(fields["choices"])
        except HyparError as error:
            raise HyparError(f"{argument('choices')}: {error}") from None
    if "accelerators" in fields:
        for other in ("levels", "hierarchy"):
            if other in fields:
                raise HyparError(
                    f"{argument('accelerators')} states the levels; leave {argument(other)} out"
                )
        if fields.get("array") is None:
            levels = hierarchy_of_accelerators(fields.pop("accelerators"))
            fields |= {"levels": levels.levels, "parts": levels.unless_binary}
    constraints = fields.get("constraints")
    if isinstance(constraints, Mapping) and constraints.get("runnable", True) is None:
        fields["constraints"] = {k: v for k, v in constraints.items() if k != "runnable"}
    bucket = fields.pop("bucket", None)
    if fields.get("array") is not None:
        fields |= _on_array(fields, whole=whole, bucket=bucket)
        fields = _defaults_on(fields["array"].description, fields) | fields
        if all_choices and fields["array"].description.groups:
            offered = (word for word in fields["choices"] if word not in EQUAL_PART_CHOICES)
            fields["choices"] = tuple(offered)
        fields["constraints"] = _constraints_on(fields["array"].description, fields)
        fields |= _between_groups(fields)
        training = fields.get("training")
        if isinstance(training, Mapping) and "shard" in training:
            of_levels = fields["array"].description, fields["placement"]
            shard = stated_shards(training["shard"], *of_levels)
            fields["training"] = {**training, "shard": shard}
    elif bucket is not None:
        raise HyparError(f"{argument('bucket')} needs an array: {ARRAY}")
    elif "hierarchy" in fields:
        stated = hierarchy_of(fields.pop("hierarchy"), fields.get("levels"))
        stated = stated if whole else _in_primes(stated, staged=_in_stages(fields))
        fields |= {"levels": stated.levels, "parts": stated.unless_binary}
    array = fields.get("array")
    constraints = fields.get("constraints")
    # Resolved before validation: a `Problem` records bytes, so that a plan file does not depend on
    # the array's memory.
    if isinstance(constraints, Mapping) and constraints.get("memory") == "array":
        if array is None:
            memory = argument("constraints.memory", "array")
            raise HyparError(f"{memory} needs an array: {ARRAY}")
        described = array.description
        # Groups have memories of their own, whatever is stated.
        kinds = described.groups or (described.accelerator,)
        capacity = max(int(kind.dram_capacity) for kind in kinds)
        fields["constraints"] = {**constraints, "memory": capacity}
    problem = validate(Problem, fields)
    if "reading" in fields:
        return problem
    reading = default_reading(problem, network)
    if (
        all_choices
        and reading == "executed"
        and not problem.groups
        and problem.levels <= MAX_JOINED_LEVELS
    ):
        reading = "joined"
    return problem.model_copy(update={"reading": reading})


def schedule_of_stages(arguments: ProblemArguments, stages: int | str | None) -> str:
    """Take the schedule out of the arguments of a problem whose stages are not known yet.

    Parameters
    ----------
    stages
        The number of stages, as for `hypar_opt.solve`; with one, the arguments keep the schedule,
        which `problem_of` refuses.

    Raises
    ------
    HyparError
        If there is none of that name.
    """
    stated = None if stages == 1 else arguments.pop("schedule", None)
    return validate(Training, {} if stated is None else {"schedule": stated}).schedule


def _offered(network: Network) -> tuple[str, ...]:
    """Return all choices except those that no layer of a network has, or that cannot help it."""
    had: set[str] = set()
    for layer, maps in zip(network.layers, network.maps(), strict=True):
        if had.issuperset(layer.splits):
            continue
        lacked = tensors_of(layer, maps, 1).lacked
        had.update(word for word, choice in layer.splits.items() if choice.axis not in lacked)
    if not joins_partial_sums(network):
        had.discard(ADDENDS.word)
    return tuple(word for word in ALL_CHOICES if word in CHOICES or word in had)


def _gathered(fields: dict[str, Any], group: str, model: type[Document]) -> dict[str, Any]:
    """Take the entries of a group out of the arguments; return the group with them, if any.

    Raises
    ------
    HyparError
        If an entry is stated twice.
    """
    stated = {name: fields.pop(name) for name in model.model_fields if name in fields}
    # As on the command line, where an option that is not given is None.
    typed = {name: value for name, value in stated.items() if value is not None}
    if not typed:
        return {}
    whole = fields.get(group, {})
    if isinstance(whole, Mapping):
        twice = next((name for name in typed if name in whole), None)
        if twice is not None:
            raise HyparError(f"{twice} is stated twice: leave it out of {group}")
    elif not isinstance(whole, model):
        return {}  # for validation to refuse
    return {group: {**dict(whole), **typed}}


def _defaults_on(array: Array, stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a problem that an array decides unless a caller states them."""
    model = _step_model(array, stated)
    defaults: dict[str, Any] = {"choices": model.choices}
    if array.element_bytes is not None:
        defaults["element_bytes"] = array.element_bytes
    if array.levels and not stated.get("level_weights"):
        defaults["cost"] = model.objective
    return defaults


def _constraints_on(array: Array, stated: Mapping[str, Any]) -> Any:
    """Return the constraints of a problem on an array: plans that can run, unless it says more."""
    constraints = stated.get("constraints", {})
    # A `Constraints`, such as a plan's, is complete; a mapping states only the keys it has.
    if not isinstance(constraints, Mapping):
        return constraints
    runnable = _step_model(array, stated).runnable and not constraints.get("even")
    return {"runnable": runnable, **constraints}


def _step_model(array: Array, stated: Mapping[str, Any]) -> StepModel:
    """Return the model of defaults: the paper's if one of its readings is stated."""
    runs = stated.get("reading", "executed") in RUN_READINGS
    return array.step_model if runs else HYPAR_2019


def _on_array(fields: dict[str, Any], *, whole: bool, bucket: int | str | None) -> dict[str, Any]:
    """Return the levels of a problem on an array; a caller's own levels take precedence."""
    array = fields["array"]
    if not isinstance(array, ArrayRecord):
        array = arrays.find_array(array)
        array = array.with_whole_levels() if whole else array
        if bucket is not None:
            array = array.with_bucket(stated_bytes("bucket", bucket, least=0))
        array = ArrayRecord.of(array)
    described = array.description
    # Levels or a placement of the caller's win; `Problem` rejects what does not fit the array.
    placement = fields.get("placement", described.placement)
    is_list = isinstance(placement, list | tuple) and all(type(one) is int for one in placement)
    is_allowed = is_list and described.allows(tuple(placement))
    ours = described.hierarchy(tuple(placement) if is_allowed else None)
    if (count := fields.pop("accelerators", None)) is not None and count != ours.accelerators:
        raise HyparError(
            f"{argument('accelerators')} should be {ours.accelerators:,}, as the array {array.name}"
            f" has, got {shown(count)}"
        )
    if (sizes := fields.pop("hierarchy", None)) is not None:
        stated = hierarchy_of(sizes, fields.get("levels"))
        staged = None
        if sizes and _in_stages(fields) and not described.groups:
            staged, stated = ours.merged(sizes[0]), _in_primes(stated, staged=True)
        if staged is not None and staged == stated:
            ours = staged
        elif ours not in (stated, stated.in_primes):
            raise HyparError(
                f"{argument('hierarchy')} should be {','.join(map(str, ours.sizes))}, as the levels"
                f" of the array {array.name}, got {','.join(map(str, stated.sizes))}"
            )
    levels = fields.get("levels", ours.levels)
    parts = fields.get("parts", ours.unless_binary)
    return {"array": array, "levels": levels, "parts": parts, "placement": placement}


def _between_groups(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the choices for time on groups: also all of a layer in one part of each group."""
    choices = fields.get("choices", PAPERS_CHOICES)
    is_list = isinstance(choices, list | tuple)
    array = fields["array"].description
    if not array.groups or fields.get("cost") != "time" or not is_list:
        return {}
    words = {word for word in choices if isinstance(word, str) and word in PART_WORDS}
    stated = tuple(sorted(words, key=PART_WORDS.__getitem__))
    unstated = (choice for choice in choices if choice not in stated)
    return {"choices": (*unstated, *(stated or part_words(array)))}


def part_words(array: Array) -> tuple[str, ...]:
    """Return the choices that put all of a layer in one part of H1: the first of each group."""
    firsts = accumulate(array.parts_of_groups[:-1], initial=0)
    return tuple(map(part_word, firsts))


def _in_stages(fields: Mapping[str, Any]) -> bool:
    """Return whether the choices have parts of H1, which are stages where there are no groups."""
    choices = fields.get("choices")
    stated = choices if isinstance(choices, list | tuple) else ()
    return any(isinstance(word, str) and word in PART_WORDS for word in stated)


def _in_primes(hierarchy: Hierarchy, *, staged: bool) -> Hierarchy:
    """Return a hierarchy with each level split into its prime factors, except H1 if staged."""
    if not staged or not hierarchy.levels:
        return hierarchy.in_primes
    stages, *below = hierarchy.sizes
    return Hierarchy((stages, *Hierarchy(tuple(below)).in_primes.sizes))


def hierarchy_of_accelerators(count: int) -> Hierarchy:
    """Return the levels of some accelerators: one for each prime factor, smallest first.

    >>> hierarchy_of_accelerators(48)
    Hierarchy(sizes=(2, 2, 2, 2, 3))

    Raises
    ------
    HyparError
        If the count is not a number of accelerators, or a level would have too many parts.
    """
    stated = argument("accelerators")
    if type(count) is not int or not 1 <= count <= MAX_ACCELERATORS:
        raise HyparError(
            f"{stated} should be a whole number from 1 to {MAX_ACCELERATORS:,}, got {shown(count)}"
        )
    levels = Hierarchy((count,)).in_primes
    if max(levels.sizes, default=1) > MAX_PARTS:
        raise HyparError(
            f"{stated} should have prime factors of at most {MAX_PARTS:,}, got {count:,} with"
            f" {levels.sizes[-1]:,}"
        )
    return levels


def hierarchy_of(sizes: Sequence[int], levels: int | None = None) -> Hierarchy:
    """Return the hierarchy that is stated by the parts of each level, H1 first.

    Parameters
    ----------
    levels
        The number of levels, if it is stated, too.

    Raises
    ------
    HyparError
        If the two differ, or a level has less than two parts.
    """
    stated = argument("hierarchy")
    if not isinstance(sizes, list | tuple):
        raise HyparError(f"{stated} should be the parts of each level, got {shown(sizes)}")
    for level, size in enumerate(sizes, start=1):
        if type(size) is not int or not 2 <= size <= MAX_PARTS:
            raise HyparError(
                f"{stated}: H{level} should have 2 to {MAX_PARTS:,} parts, got {shown(size)}"
            )
    if levels not in (None, len(sizes)):
        raise HyparError(f"{stated} has {len(sizes)} levels, {argument('levels')} says {levels}")
    return Hierarchy(tuple(sizes))


def default_reading(problem: Problem, network: Network | None = None) -> str:
    """Return the reading of a problem that names none.

    For a chain on levels of two parts, the reading of the array's model, or without an array
    ``text``, the paper's; else ``executed``, what running a plan moves.
    """
    if (network is not None and not network.is_chain) or {*RUN_CHOICES} & {*problem.choices}:
        return "executed"
    return "executed" if problem.parts else problem.step_model.reading
