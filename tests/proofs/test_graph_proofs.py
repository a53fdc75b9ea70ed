"""Flows and messages prove the optimum of a graph's table, and nothing more than it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs.table import CostTable
from hypar_opt.documents.document import validate
from hypar_opt.errors import CheckFailedError, InputError
from hypar_opt.proofs.certificate import Certificate, TableProof
from hypar_opt.proofs.graphs import EliminationProof, FlowProof, bound_of, prove
from hypar_opt.workload.parallelism import CHOICES
from tests.solvers.graphs import blocks, optimum, random_graph, with_forbidden

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


def bound(table: CostTable, proof: Proof) -> int | None:
    """Return what a proof proves; None if it is refused."""
    try:
        return bound_of(table, proof, "tables[0]")
    except CheckFailedError:
        return None


@given(SEEDS, st.booleans(), st.booleans(), st.sampled_from([1, 2**70]))
def test_every_optimum_is_proved(seed: int, flow: bool, forbidden: bool, unit: int) -> None:
    table = graph(seed, flow=flow, forbidden=forbidden)
    table = replace(
        table, node=table.node.astype(object) * unit, edge=table.edge.astype(object) * unit
    )
    proof = prove(table)
    assert isinstance(proof, FlowProof if flow else EliminationProof)
    assert bound(table, proof) == least(table)


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


@given(SEEDS, st.data())
def test_a_flow_of_any_numbers_proves_no_more_than_the_optimum(
    seed: int, data: st.DataObject
) -> None:
    table = graph(seed, flow=True)
    proof = prove(table)
    assert isinstance(proof, FlowProof)
    numbers = st.integers(-3, 3)

    def changed(flows: tuple[int, ...]) -> tuple[int, ...]:
        steps = data.draw(st.lists(numbers, min_size=len(flows), max_size=len(flows)))
        return tuple(flow + step for flow, step in zip(flows, steps, strict=True))

    pairs = changed(proof.pair_flows)
    low_high = sorted({(min(pair), max(pair)) for pair in table.ends.tolist()})
    balance = [0] * table.layers  # so that the flow is conserved, and capacities alone decide
    for (u, v), flow in zip(low_high, pairs, strict=True):
        balance[u] += flow
        balance[v] -= flow
    proved = bound(table, FlowProof(layer_flows=tuple(balance), pair_flows=pairs))
    assert proved is None or proved <= least(table)
    proved = bound(table, FlowProof(layer_flows=changed(proof.layer_flows), pair_flows=pairs))
    assert proved is None or proved <= least(table)


def test_a_lesser_flow_proves_less() -> None:
    table = blocks(3)
    proof = prove(table)
    assert isinstance(proof, FlowProof)
    nothing = FlowProof(
        layer_flows=(0,) * len(proof.layer_flows), pair_flows=(0,) * len(proof.pair_flows)
    )
    full, none = bound(table, proof), bound(table, nothing)
    assert full is not None
    assert none is not None
    assert none < full


@given(SEEDS, st.booleans(), st.data())
def test_messages_with_an_entry_raised_are_refused_and_lowered_prove_no_more(
    seed: int, forbidden: bool, data: st.DataObject
) -> None:
    table = graph(seed, flow=False, forbidden=forbidden)
    proof = prove(table)
    assert isinstance(proof, EliminationProof)
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
    proof = prove(table)
    assert isinstance(proof, EliminationProof)
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
        ({"messages": ((0,),) * 4}, "messages: should be 5, got 4"),
        ({"messages": ((0,) * 99,) * 5}, r"messages: of layer \d there should be \d+ entries"),
        ({"layer_flows": (0,) * 4}, "layer_flows: should be 5 flows, got 4"),
        ({"pair_flows": ()}, r"pair_flows: should be \d flows, got 0"),
        ({"layer_flows": (10**9,) * 5}, r"of layer 0 it should be -?\d+ to \d+, got 1000000000"),
        ({"pair_flows": (-1,) * 5}, r"from layer \d to layer \d it should be 0 to \d+, got -1"),
    ],
)
def test_what_is_wrong_with_a_proof_is_named(change: dict[str, object], complaint: str) -> None:
    table = graph(1, flow="messages" not in change and "order" not in change)
    proof = prove(table).model_copy(update=change)
    with pytest.raises(CheckFailedError, match=complaint):
        bound_of(table, proof, "tables[0]")


def test_a_flow_does_not_prove_more_than_two_choices() -> None:
    table = graph(0, flow=False)
    with pytest.raises(CheckFailedError, match="a flow, and layers have 3 choices"):
        bound_of(table, FlowProof(layer_flows=(), pair_flows=()), "tables[0]")


def test_under_a_capacity_a_proof_is_of_the_table_without_it() -> None:
    table = graph(3, flow=True)
    limited = replace(table, load=table.node, capacity=10**6)
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


@pytest.mark.parametrize("search", ["levelwise", "joint"])
@pytest.mark.parametrize(
    ("choices", "reading", "form"),
    [(2, "executed", FlowProof), (3, "tables", EliminationProof)],
)
def test_the_plan_of_a_network_that_is_no_chain_is_certified(
    search: str, choices: int, reading: str, form: type[Proof]
) -> None:
    plan = ho.solve(
        "resnet-18",
        search=search,
        levels=2,
        reading=reading,
        choices=CHOICES[:choices],
    )
    certificate = ho.certify(plan)
    assert {type(proof) for proof in certificate.tables} == {form}
    ho.check_certificate(plan, certificate)
    forged = json.loads(certificate.to_json())
    table = forged["tables"][-1]
    (table["layer_flows"] if choices == 2 else table["messages"][-1])[-1] += 1
    with pytest.raises(CheckFailedError, match=r"tables\[\d\]"):
        ho.check_certificate(plan, validate(Certificate, forged))


def test_a_plan_of_a_graph_that_is_not_optimal_has_no_certificate() -> None:
    plan = ho.solve("resnet-18", levels=2, solver="data")
    with pytest.raises(
        ho.HyparError, match=r"no certificate: flows prove \d+ bytes, the plan costs"
    ):
        ho.certify(plan)
