"""All-to-alls over several levels at once: amounts by hand, known optima, all plans of small ones.

The optima of LLaMA, GPT-2 and Mixtral were found by another program, from the rules alone.
"""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.costs.base import lacked_choices
from hypar_opt.errors import InfeasibleError, RefusedError
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.instance.instance import Instance
from hypar_opt.models import find_network
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.search.joint import joint
from hypar_opt.search.result import SearchRequest
from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.passes import Phase
from hypar_opt.sharding.program import Program
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import Status
from hypar_opt.step.order import exchanges_of_step
from hypar_opt.studies.compared_plans import compared_plans
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.choices import WITH_EXPERTS, WITH_TOKENS
from tests.execution.drawn_plans import graph
from tests.search.test_tokens import of_tokens
from tests.slow import slow_after
from tests.strategies.mixtures import mixture, smallest

JOINED: dict[str, Any] = {"reading": "joined", "choices": "all", "search": "joint"}
EVEN: dict[str, Any] = {"even": True}


def exchanged(sizes: tuple[int, ...], *, joined: bool) -> tuple[int, list[int]]:
    """Return the slots of experts that tokens fill, and what of them crosses each level forward.

    Data parallelism but for the experts, which are split.
    """
    workload = workload_of(smallest(), 12, CHOICES, shared_tensors=True)
    names = [node.name for node in workload.nodes]
    row = [CHOICES.index("output") if name == "experts" else 0 for name in names]
    row = [workload.words[n].index("experts") if c else 0 for n, c in enumerate(row)]
    program = Program(workload, [row] * len(sizes), Hierarchy(sizes), joined=joined)
    moved = [0] * len(sizes)
    for one in exchanges_of_step(program, (Phase.FORWARD,)):
        if one.kind is StepKind.ALL_TO_ALL and one.node == names.index("experts"):
            moved[one.level] += one.elements
    boundary = workload.boundary_of_input[names.index("experts"), 0]
    return workload.extents[boundary].elements, moved


@pytest.mark.parametrize("sizes", [(2, 2), (4,), (2, 2, 3), (3, 4)])
def test_a_joined_exchange_keeps_one_part_of_all_and_crosses_the_topmost_level_first(
    sizes: tuple[int, ...],
) -> None:
    """Of a tensor `a`: a (1 - 1/m), not a sum of 1 - 1/n; to H1 belongs what crosses it."""
    a, one_by_one = exchanged(sizes, joined=False)
    assert one_by_one == [a - a // n for n in sizes]
    if 4 % prod(sizes):
        return  # four experts
    _, moved = exchanged(sizes, joined=True)
    above = [prod(sizes[:level]) for level in range(len(sizes))]
    assert moved == [(a - a // n) // m for n, m in zip(sizes, above, strict=True)]
    assert sum(moved) == a - a // prod(sizes)


def test_two_uneven_axes_are_exchanged_level_by_level() -> None:
    """Four experts in 2 x 3 parts: how they meet parts of the batch, even ones, does not matter."""
    a, moved = exchanged((2, 3), joined=True)
    assert moved == [a // 2, a // 3]  # a (1 - 1/3) / 2: twelve images divide evenly


@pytest.mark.parametrize(
    ("batch", "sizes", "total"),
    [
        (2, (2,), 28_330_655_744),
        (4, (2, 2), 85_771_911_168),
        (8, (2, 2, 2), 200_654_422_016),
        (8, (8,), 203_774_197_760),
        (1, (2, 2, 2), 48_304_619_520),
        (64, (2, 2, 2), 1_051_988_295_680),
    ],
)
def test_mixtrals_optimum(batch: int, sizes: tuple[int, ...], total: int) -> None:
    """At batch 8 level by level it moves 1.43 times as much (`tests.search.test_experts`)."""
    asked: dict[str, Any] = {"batch": batch, "hierarchy": sizes, "whole_levels": True}
    plan = ho.solve("mixtral-8x7b", constraints=EVEN, **asked, **JOINED)
    assert (plan.cost.total, plan.solver.status) == (total, "optimal")


OPTIMA = [
    ("llama-70b", 4096, 8, (8,), 3_098_272_006_144),
    ("llama-70b", 131_072, 1, (2, 2, 2, 2), 7_536_939_827_200),
    ("gpt2", 1024, 1, (2,), 314_904_576),
    ("gpt2", 1024, 1, (2, 2, 2), 1_694_314_496),
    ("gpt2", 1024, 1, (3,), 629_809_152),
    ("gpt2", 1024, 8, (2, 2), 2_360_807_424),
    ("gpt2", 1024, 6, (6,), 3_808_604_160),
    ("llama-70b", 131_072, 1, (2, 2, 2), 4_628_622_540_800),
    ("llama-70b", 1_048_576, 1, (2, 2, 2), 13_483_419_041_792),
    ("llama-70b", 4096, 64, (2, 2, 2), 3_862_692_298_752),
]
OF_SPLIT_NORMS = [
    ("mixtral-8x7b", 4096, 1, (2, 2, 2), 48_325_591_040),
    ("llama-70b", 4096, 8, (2, 4), 2_125_664_026_624),
    ("gpt2", 1024, 1, (2, 2), 869_421_056),
    ("gpt2", 1024, 8, (2, 2, 2), 4_809_910_272),
    ("gpt2", 1024, 6, (2, 3), 3_355_619_328),
    ("llama-70b", 4096, 1, (2, 2), 220_954_329_088),
    ("llama-70b", 4096, 1, (2, 2, 2), 469_005_729_792),
    ("llama-70b", 4096, 8, (2, 2, 2), 2_125_437_796_352),
]
"""In the other program norms over features are never whole between two splits."""


def instance_of(name: str, tokens: int, batch: int, sizes: tuple[int, ...]) -> Instance:
    network = of_tokens(name, tokens)
    constraints = {"runnable": True} if name == "gpt2" else EVEN
    asked: dict[str, Any] = {"batch": batch, "hierarchy": sizes, "whole_levels": True}
    asked |= {"reading": "joined", "choices": "all", "constraints": constraints}
    return Instance(network, problem_of(network, **asked))


def optimum(instance: Instance) -> Fraction | None:
    found = joint(SearchRequest(instance, SOLVERS["dp"]()))
    assert found.status is Status.OPTIMAL
    return found.bound


@pytest.mark.parametrize(("name", "tokens", "batch", "sizes", "total"), slow_after(7, OPTIMA))
def test_optima_of_dense_transformers(
    name: str, tokens: int, batch: int, sizes: tuple[int, ...], total: int
) -> None:
    assert optimum(instance_of(name, tokens, batch, sizes)) == total


@pytest.mark.parametrize(
    ("name", "tokens", "batch", "sizes", "total"), slow_after(5, OF_SPLIT_NORMS)
)
def test_whole_norms_save_what_optima_of_split_norms_move(
    name: str, tokens: int, batch: int, sizes: tuple[int, ...], total: int
) -> None:
    """A norm that is whole has no statistics to move: 0.002 to 0.15 %."""
    best = optimum(instance_of(name, tokens, batch, sizes))
    assert of_split_norms(instance_of(name, tokens, batch, sizes)) == total
    assert best is not None
    assert 0.998 * total < best < total


def test_mixtral_of_one_sequence_level_by_level() -> None:
    """Joined it is 48,325,591,040, above."""
    network = ho.load("mixtral-8x7b")
    asked: dict[str, Any] = {"batch": 1, "levels": 3, "choices": "all", "reading": "executed"}
    problem = problem_of(network, constraints=EVEN, **asked)
    assert of_split_norms(Instance(network, problem)) == 59_063_009_280


def of_split_norms(instance: Instance) -> Fraction | None:
    """Return the optimum of a problem without the choice of whole norms."""
    workload = replace(instance.workload)
    forbidden = workload.forbidden.copy()
    norms = [node.kind == "norm" for node in workload.nodes]
    forbidden[norms, workload.choices.index("output")] = True
    vars(workload)["forbidden"] = forbidden
    vars(instance)["workload"] = workload
    return optimum(instance)


def of_patches(tokens: int) -> ho.Network:
    """Return ViT-B/16 of so many patches, which are looked up, and of no class token."""
    document = ho.load("vit-b16").description()
    layers = {layer["name"]: layer for layer in document["layer"]}
    layers["patch"] = {"name": "patch", "kind": "embedding", "features": 768}
    layers["position"]["vocabulary"] = tokens
    layers["embedded"]["inputs"] = ["patch", "position"]
    for name in ("patches", "class", "tokens"):
        del layers[name]
    document |= {"layer": [*layers.values()], "input": {"tokens": tokens, "vocabulary": 768}}
    return ho.Network.model_validate(document)


@pytest.mark.parametrize(
    ("tokens", "batch", "levels", "total"),
    [(197, 256, 3, 2_403_782_656), (197, 8, 3, 983_384_480), (196, 1, 2, 79_721_092)],
)
def test_vits_optima(tokens: int, batch: int, levels: int, total: int) -> None:
    """The other program has no class token, whose gradient all images share.

    See `tests.execution.virtual.test_tokens`.
    """
    network = of_patches(tokens)
    asked: dict[str, Any] = {"element_bytes": 2, "levels": levels, "choices": "all"}
    problem = problem_of(network, batch=batch, reading="joined", constraints=EVEN, **asked)
    assert of_split_norms(Instance(network, problem)) == total


@pytest.mark.parametrize("seed", slow_after(5, [1, 2, 3, 6, 7, 4, 5, *range(8, 100)]))
def test_all_exact_solvers_find_the_best_of_all_plans(seed: int) -> None:
    """They prove it; it is what its program moves, and no more than level by level."""
    rng = random.Random(seed)
    network, sizes = mixture(seed), (2, 2)
    if seed % 8:
        network = graph(rng, rng.choice([1, 2, 3]), most=3)
        sizes = rng.choice([(2, 2), (2, 3), (3, 2)])
    tokens = not lacked_choices(workload_of(network, 1, WITH_TOKENS))
    every = WITH_TOKENS if seed % 8 else WITH_EXPERTS
    choices = rng.choice([every, ("data", "model", "tokens")]) if tokens else CHOICES
    asked: Any = {"batch": rng.choice([1, 2, 4, 6]), "hierarchy": sizes, "choices": choices}
    asked |= {"element_bytes": rng.choice([1, 2, 4]), "search": "joint"}
    asked["constraints"] = rng.choice([{}, {}, EVEN, {"runnable": True}])
    few = len(choices) ** (2 * len(network.layers)) <= 2**12
    try:
        plan = ho.solve(network, reading="joined", **asked)
    except InfeasibleError:
        return
    for solver in (*["brute"] * few, "ilp", "cpsat"):
        other = ho.solve(network, solver=solver, reading="joined", **asked)
        assert (plan.cost.total, plan.parallelism) == (other.cost.total, other.parallelism)
    workload = workload_of(network, asked["batch"], plan.choices, shared_tensors=True)
    program = Program(workload, rows_of_plan(plan, workload), plan.hierarchy, joined=True)
    moved = sum(exchange.elements for exchange in exchanges_of_step(program))
    assert moved * asked["element_bytes"] == plan.cost.total
    assert plan.cost.total <= ho.solve(network, reading="executed", **asked).cost.total
    ho.check_certificate(plan, ho.certify(plan))


@pytest.mark.parametrize("seed", range(5))
def test_prime_factors_of_a_level_never_move_more(seed: int) -> None:
    """A choice of eight parts is that choice at three levels of two, where nothing is lost.

    In even parts: between two uneven axes levels exchange one by one, and a level of four at once.
    """
    asked: dict[str, Any] = {"batch": 8, "whole_levels": True, **EVEN, **JOINED}
    totals = [
        ho.solve(mixture(seed), hierarchy=sizes, **asked).cost.total
        for sizes in ((2, 2, 2), (4, 2), (8,))
    ]
    assert totals == sorted(totals)


def test_level_by_level_it_is_refused_and_by_default_searched_jointly() -> None:
    asked: dict[str, Any] = {"batch": 8, "levels": 2, "reading": "joined", "choices": CHOICES}
    assert ho.solve(mixture(1), **asked).solver.search == "joint"
    refused = r"crosses several levels: it needs search='joint'"
    with pytest.raises(RefusedError, match=refused):
        ho.solve(mixture(1), search="levelwise", **asked)


def test_all_choices_join_levels_unless_these_are_searched_one_by_one() -> None:
    """At up to six levels; and HyPar's own plan of a comparison is level by level."""
    network = find_network("gpt2")
    readings = [problem_of(network, choices="all", levels=n).reading for n in (1, 6, 7)]
    assert readings == ["joined", "joined", "executed"]
    assert problem_of(network, choices="all", reading="executed").reading == "executed"
    small = mixture(3)
    plans = [
        ho.solve(small, choices="all", levels=2, batch=8, search=own) for own in (None, "levelwise")
    ]
    searches = [(plan.cost.reading, plan.solver.search) for plan in plans]
    assert searches == [("joined", "joint"), ("executed", "levelwise")]
    rows = compared_plans(small, plans[0].problem)
    assert rows["hypar"].problem.reading == "executed"
