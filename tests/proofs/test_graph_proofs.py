"""Flows and messages prove the optimum of a graph's table, and nothing more than it.

Every flow of small numbers is tried on small tables: whatever the check of a flow leaves out is
in one of them.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypar_opt.costs.table import CostTable
from hypar_opt.documents.document import validate
from hypar_opt.errors import CheckFailedError, InputError
from hypar_opt.proofs.certificate import Certificate
from hypar_opt.proofs.chains import TableProof
from hypar_opt.proofs.check.tables import ReferenceTable
from hypar_opt.proofs.graphs import EliminationProof, FlowProof, bound_of
from hypar_opt.proofs.graphs import prove as prove_to
from tests.slow import fewer
from tests.solvers.graphs import optimum, random_graph, with_forbidden

SEEDS = st.integers(0, 2**32 - 1)
Proof = FlowProof | EliminationProof


def graph(seed: int, *, flow: bool, forbidden: bool = False) -> CostTable:
    rng = np.random.default_rng(seed)
    table = random_graph(rng, 5, 8, choices=2 if flow else 3, largest=5, submodular=flow)
    return with_forbidden(rng, table) if forbidden else table


def least(table: CostTable) -> int:
    found = optimum(table)
    assert found is not None
    return found[0]


def reference(table: CostTable) -> ReferenceTable:
    """Return a table as a proof's derivation has it, each edge of a kind of its own."""
    kinds = np.arange(len(table.ends))
    charges = ReferenceTable(table.node, [*table.edge], kinds, table.ends, table.resolution)
    return replace(charges, allowed=table.allowed, limits=table.limits)


def prove(table: CostTable) -> Proof:
    """Return a proof of a table, whatever its optimum."""
    return prove_to(reference(table), table.max_total)


def unshared(proof: Proof) -> EliminationProof:
    """Return a proof by messages as version 1 of the file has it: each layer with its own."""
    assert isinstance(proof, EliminationProof)
    assert proof.numbers is not None
    assert proof.constants is not None
    sent = zip(proof.numbers, proof.constants, strict=True)
    messages = (tuple(entry + more for entry in proof.messages[number]) for number, more in sent)
    return EliminationProof(order=proof.order, messages=tuple(messages))


def bound(table: CostTable, proof: Proof) -> int | None:
    """Return what a proof proves; None if it is refused."""
    try:
        return bound_of(reference(table), proof, "tables[0]")
    except CheckFailedError:
        return None


PAIR = [(0, 1)]
CHAIN = [(0, 1), (2, 1)]
"""The second edge leads back."""


def submodular(
    rng: np.random.Generator, ends: list[tuple[int, int]], *, largest: int, fixed: bool
) -> CostTable:
    """Return a table of two choices with costs so small that its flows can be listed."""
    layers = 1 + max(map(max, ends))
    node = rng.integers(0, largest + 1, (layers, 2))
    edge = rng.integers(0, 2, (len(ends), 2, 2))
    # Submodular: alike costs no more than unlike.
    edge[:, 1, 1] = np.minimum(edge[:, 1, 1], edge[:, 0, 1] + edge[:, 1, 0])
    edge[:, 0, 0] = np.minimum(edge[:, 0, 0], edge[:, 0, 1] + edge[:, 1, 0] - edge[:, 1, 1])
    allowed = rng.integers(0, 2, (layers, 2)).astype(bool)
    allowed[~allowed.any(axis=1)] = True
    return CostTable(node, edge, np.array(ends), allowed=allowed if fixed else None)


@given(SEEDS, st.booleans(), st.booleans(), st.sampled_from([1, 2**70]))
def test_every_optimum_is_proved(seed: int, flow: bool, forbidden: bool, unit: int) -> None:
    table = graph(seed, flow=flow, forbidden=forbidden)
    table = replace(
        table, node=table.node.astype(object) * unit, edge=table.edge.astype(object) * unit
    )
    proof = prove(table)
    assert isinstance(proof, FlowProof if flow else EliminationProof)
    assert bound(table, proof) == least(table)
    if not flow:
        assert bound(table, unshared(proof)) == least(table)


def test_two_choices_without_a_cut_are_proved_by_messages() -> None:
    triangle = CostTable(
        np.zeros((3, 2), np.int64),
        np.array([[[1, 0], [0, 1]]] * 3),
        np.array([[0, 1], [1, 2], [2, 0]]),
    )
    proof = prove(triangle)
    assert isinstance(proof, EliminationProof)
    assert bound(triangle, proof) == 1  # of an odd cycle one pair is alike


@given(SEEDS, st.booleans(), st.data())
def test_a_flow_with_any_entry_changed_is_refused(
    seed: int, forbidden: bool, data: st.DataObject
) -> None:
    """More or less in an arc: a capacity, or a layer's balance, is violated."""
    table = graph(seed, flow=True, forbidden=forbidden)
    proof = prove(table)
    assert isinstance(proof, FlowProof)
    key = data.draw(st.sampled_from(["layer_flows", "pair_flows"]))
    flows = list(getattr(proof, key))
    place = data.draw(st.integers(0, len(flows) - 1))
    flows[place] += data.draw(st.integers(-9, 9).filter(bool))
    assert bound(table, proof.model_copy(update={key: tuple(flows)})) is None


@pytest.mark.parametrize(
    ("ends", "largest", "flows"), [(PAIR, 2, range(-4, 5)), (CHAIN, 1, range(-2, 3))]
)
@pytest.mark.parametrize("fixed", [False, True])
def test_every_flow_of_a_small_table_proves_its_optimum_or_less(
    ends: list[tuple[int, int]], largest: int, flows: range, fixed: bool
) -> None:
    rng = np.random.default_rng(0)
    for _ in range(fewer(20)):
        table = submodular(rng, ends, largest=largest, fixed=fixed)
        bounds = (
            bound(table, FlowProof(layer_flows=layers, pair_flows=pairs))
            for layers in itertools.product(flows, repeat=table.layers)
            for pairs in itertools.product(range(-1, 4), repeat=len(ends))
        )
        assert max(proved for proved in bounds if proved is not None) == least(table)


@pytest.mark.parametrize("choices", list(itertools.product([0, 1], repeat=3)))
def test_layers_of_a_single_choice_are_charged_their_pairs(choices: tuple[int, ...]) -> None:
    """Of a table in which every layer is fixed there is one assignment: its cost is the bound."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        table = submodular(rng, [(0, 1), (1, 2), (2, 0)], largest=9, fixed=False)
        allowed = np.eye(2, dtype=bool)[list(choices)]
        fixed = CostTable(table.node, table.edge, table.ends, allowed=allowed)
        assert bound(fixed, FlowProof(layer_flows=(0,) * 3, pair_flows=(0,) * 3)) == least(fixed)


def test_a_table_that_allows_a_layer_no_choice_is_proved_by_nothing() -> None:
    table = submodular(np.random.default_rng(2), PAIR, largest=2, fixed=False)
    allowed = np.array([[True, True], [False, False]])
    none = CostTable(table.node, table.edge, table.ends, allowed=allowed)
    flow = prove(table)
    assert isinstance(flow, FlowProof)
    for proof in (flow, EliminationProof(order=(0, 1), messages=((), (0,)))):
        with pytest.raises(CheckFailedError, match="a layer is allowed no choice"):
            bound_of(reference(none), proof, "tables[0]")


def test_more_flow_out_of_a_layer_than_into_it_is_refused_by_name() -> None:
    """It would prove nothing wrong, and yet is no flow."""
    node = np.array([[5, 0], [0, 5]])
    table = CostTable(node, np.array([[[0, 3], [3, 0]]]), np.array(PAIR))
    full = prove(table)
    assert isinstance(full, FlowProof)
    lesser = tuple(min(flow, 0) for flow in full.layer_flows)
    with pytest.raises(CheckFailedError, match=r"-\d more flow into layer \d than out of it"):
        bound_of(
            reference(table), FlowProof(layer_flows=lesser, pair_flows=full.pair_flows), "tables[0]"
        )


@given(SEEDS, st.booleans(), st.data())
def test_messages_with_an_entry_raised_are_refused_and_lowered_prove_no_more(
    seed: int, forbidden: bool, data: st.DataObject
) -> None:
    table = graph(seed, flow=False, forbidden=forbidden)
    proof = unshared(prove(table))
    at = data.draw(st.integers(0, len(proof.messages) - 1))
    entries = list(proof.messages[at])
    place = data.draw(st.integers(0, len(entries) - 1))
    step = data.draw(st.sampled_from([-(10**30), -1, 1, 10**30]))
    entries[place] += step
    messages = (*proof.messages[:at], tuple(entries), *proof.messages[at + 1 :])
    proved = bound(table, proof.model_copy(update={"messages": messages}))
    if step > 0:
        assert proved is None
    assert proved is None or proved <= least(table)


@given(SEEDS, st.permutations(range(5)))
def test_messages_in_any_order_prove_no_more_than_the_optimum(seed: int, order: list[int]) -> None:
    table = graph(seed, flow=False)
    proof = unshared(prove(table))
    for forged in (
        EliminationProof(order=tuple(order), messages=proof.messages),
        EliminationProof(
            order=tuple(order), messages=tuple(proof.messages[proof.order.index(n)] for n in order)
        ),
    ):
        proved = bound(table, forged)
        assert proved is None or proved <= least(table)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"order": (0, 1, 2, 3, 3)}, "order: should be every layer once"),
        ({"order": (0, 1, 2, 3)}, "order: should be every layer once"),
        ({"messages": ((0,),) * 4, "numbers": None}, "messages: should be 5, got 4"),
        ({"messages": ((0,),) * 2}, "numbers: there are 2 messages"),
        ({"numbers": (0,) * 4}, "numbers: should be 5, got 4"),
        ({"constants": (0,) * 6}, "constants: should be 5, got 6"),
        ({"groups": (0, 0)}, "groups: should be 0, got 2"),
        ({"refined": ((),) * 4}, "refined: should be 5, got 4"),
        ({"messages": ((0,) * 99,) * 5}, r"messages: of layer \d there should be \d+ entries"),
        ({"layer_flows": (0,) * 4}, "layer_flows: should be 5 flows, got 4"),
        ({"pair_flows": ()}, r"pair_flows: should be \d flows, got 0"),
        ({"layer_flows": (10**9,) * 5}, r"of layer 0 it should be -?\d+ to \d+, got 1000000000"),
        ({"pair_flows": (-1,) * 5}, r"from layer \d to layer \d it should be 0 to \d+, got -1"),
    ],
)
def test_what_is_wrong_with_a_proof_is_named(change: dict[str, object], complaint: str) -> None:
    table = graph(1, flow=change.keys() <= {"layer_flows", "pair_flows"})
    proof = prove(table).model_copy(update=change)
    with pytest.raises(CheckFailedError, match=complaint):
        bound_of(reference(table), proof, "tables[0]")


def test_a_flow_does_not_prove_more_than_two_choices() -> None:
    table = graph(0, flow=False)
    with pytest.raises(CheckFailedError, match="a flow, and layers have 3 choices"):
        bound_of(reference(table), FlowProof(layer_flows=(), pair_flows=()), "tables[0]")


def test_under_a_capacity_a_proof_is_of_the_table_without_it() -> None:
    table = graph(3, flow=True)
    limited = replace(table, limits=((table.node, 10**6),))
    assert bound(limited, prove(limited)) == least(table)


def test_a_certificate_holds_each_form_of_proof_and_names_what_is_none() -> None:
    proofs = (
        TableProof(potentials=((1, 2),)),
        FlowProof(layer_flows=(1,), pair_flows=()),
        EliminationProof(order=(0,), messages=((5,),)),
    )
    certificate = Certificate(plan="sha256:0", scope="level", tables=proofs)
    document = certificate.model_dump(mode="json", by_alias=True)
    assert validate(Certificate, document) == certificate
    assert list(document["tables"][0]) == ["potentials", "scale", "multiplier"]
    for table, complaint in [
        ({"pair_flows": []}, r"tables\[0\]: missing key 'layer_flows'"),
        ({"messages": [[0.5]], "order": [0]}, r"tables\[0\], messages\[0\]\[0\]: should be a"),
        ({"messages": [[0]], "order": [-1]}, r"tables\[0\], order\[0\]: should be greater than"),
        ({"flow": []}, r"tables\[0\]: unknown key 'flow': known: potentials"),
        (3, r"tables\[0\]: should be a"),
    ]:
        with pytest.raises(InputError, match=complaint):
            validate(Certificate, document | {"tables": [table]})
