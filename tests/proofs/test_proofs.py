"""Proofs cannot be forged: of every plan of small problems only an optimal one is ever proved."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.state_tables import FactoredTable
from hypar_opt.costs.table import CostTable
from hypar_opt.errors import CheckFailedError, RefusedError
from hypar_opt.instance.pricing import price_table
from hypar_opt.proofs.certificate import (
    Certificate,
    Proof,
    TableProof,
    _digest,
    _prove,
    check_price,
)
from hypar_opt.proofs.reference.tables import tables_of
from hypar_opt.solvers.product_states import costs_to_come
from hypar_opt.workload.parallelism import CHOICES
from tests.strategies.networks import networks
from tests.strategies.plans import READINGS, Rows
from tests.strategies.tables import tables
from tests.strategies.written_plans import every_rows, fully_connected, written

DATA, MODEL, OUTPUT = range(3)

# Elements that the two halves of a group exchange: Tables 1 and 2, for one group's shards.
INTRA = {
    "tables": {DATA: 1, MODEL: 1, OUTPUT: 1},
    "text": {DATA: 2, MODEL: 2, OUTPUT: 2},
    "figures": {DATA: 2, MODEL: 2},
    "executed": {DATA: 2, MODEL: 2, OUTPUT: 0},
}
HALF = Fraction(1, 2)
PRINTED = {(DATA, MODEL): HALF, (MODEL, MODEL): HALF, (MODEL, DATA): HALF}
PRINTED |= {(DATA, OUTPUT): HALF, (OUTPUT, OUTPUT): HALF, (OUTPUT, DATA): HALF}
INTER = {"tables": PRINTED, "text": PRINTED}
INTER["figures"] = {(DATA, MODEL): Fraction(1)}
# Half of the tensor each way; or all of it gathered forward, and as much scattered backward.
INTER["executed"] = {(DATA, MODEL): Fraction(1), (OUTPUT, DATA): Fraction(1)}
INTER["executed"] |= {(source, OUTPUT): Fraction(2) for source in (DATA, MODEL, OUTPUT)}


@dataclass(frozen=True)
class Small:
    """A small problem of fully-connected layers."""

    features: tuple[int, ...]
    scope: str
    reading: str
    element_bytes: int
    levels: int = 2
    choices: int = 2
    batch: int = 4
    weights: tuple[int, ...] = ()
    constraints: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = (*self.features, self.reading, self.scope, f"{self.element_bytes}B")
        return "-".join(map(str, (*parts, f"{self.choices}of{self.levels}", *self.constraints)))

    def writer(self) -> Any:
        return written(
            fully_connected(*self.features),
            self.scope,
            reading=self.reading,
            element_bytes=self.element_bytes,
            levels=self.levels,
            choices=CHOICES[: self.choices],
            batch=self.batch,
            level_weights=self.weights,
            constraints=self.constraints,
        )

    def level_bytes(self, rows: Rows) -> list[Fraction]:
        """Each level's bytes, by hand: of one group, times the groups."""
        found = []
        for level, row in enumerate(rows):
            total = Fraction()
            for layer, choice in enumerate(row):
                above = [each[layer] for each in rows[:level]]
                d, m, o = map(above.count, range(3))
                read, made = self.features[layer : layer + 2]
                shard = {
                    DATA: Fraction(read * made, 2 ** (m + o)),
                    MODEL: Fraction(self.batch * made, 2 ** (d + o)),
                    OUTPUT: Fraction(self.batch * read, 2 ** (d + m)),
                }
                if choice != OUTPUT or layer or self.reading == "tables":
                    total += INTRA[self.reading][choice] * shard[choice]
                if layer:
                    pair = row[layer - 1], choice
                    part = shard[OUTPUT]
                    if self.reading == "executed" and choice != OUTPUT:
                        # Exchanged before it is gathered for the levels above.
                        part = Fraction(self.batch * read, 2**level)
                    total += INTER[self.reading].get(pair, 0) * part
            weight = self.weights[level] if self.weights else 1
            found.append(total * 2**level * self.element_bytes * weight)
        return found

    def keeps(self, rows: Rows) -> bool:
        """Whether a plan keeps to the constraints, by hand: pins of one choice, even splits."""
        for pin in self.constraints.get("fix", ()):
            layer, word = pin.removeprefix("fc").split("=")
            choice = list(CHOICES).index(str(word))
            if any(row[int(layer) - 1] != choice for row in rows):
                return False
        for layer, column in enumerate(zip(*rows, strict=True)):
            sizes = self.batch, self.features[layer], self.features[layer + 1]
            if self.constraints.get("even") and any(
                size % 2 ** column.count(choice) for choice, size in enumerate(sizes)
            ):
                return False
        return True

    def plans(self) -> list[Rows]:
        layers = len(self.features) - 1
        return [r for r in every_rows(layers, self.levels, self.choices) if self.keeps(r)]

    def is_optimal(self, rows: Rows) -> bool:
        """Whether no plan costs less; level by level: whether no other choice of a level does."""
        if self.scope == "joint":
            return sum(self.level_bytes(rows)) == min(
                sum(self.level_bytes(r)) for r in self.plans()
            )
        own = self.level_bytes(rows)
        return all(
            own[h] <= self.level_bytes(other)[h]
            for h in range(self.levels)
            for other in self.plans()
            if other[:h] == rows[:h]
        )


CASES = [
    *(
        Small(features, scope, reading, size)
        for size, reading, scope, features in [
            (1, "text", "joint", (8, 1)),
            (2, "text", "joint", (8, 1)),
            (2, "tables", "joint", (3, 2, 5)),
            (1, "figures", "joint", (3, 2, 5)),
            (2, "executed", "joint", (2, 7, 3)),
            (4, "text", "joint", (3, 2, 5)),
            (8, "figures", "joint", (5, 1, 4)),
            (1, "text", "level", (3, 2, 5)),
            (2, "figures", "level", (5, 1, 4)),
            (8, "tables", "level", (2, 7, 3)),
        ]
    ),
    Small((3, 2, 5, 2), "joint", "text", 1, levels=1),
    Small((3, 2, 5), "joint", "text", 1, weights=(3, 1)),
    Small((3, 2, 5), "joint", "tables", 2, levels=1, choices=3),
    Small((5, 3), "joint", "text", 1, choices=3),
    Small((5, 3, 2), "level", "text", 2, levels=1, choices=3),
    Small((3, 2, 5), "joint", "executed", 1, levels=1, choices=3),
    Small((5, 3), "joint", "executed", 2, choices=3),
    Small((2, 3, 2), "level", "executed", 1, choices=3, constraints={"fix": ("fc1=output",)}),
    Small((3, 2, 5), "joint", "text", 1, constraints={"fix": ("fc1=model",)}),
    Small((3, 2, 5), "joint", "figures", 2, constraints={"fix": ("fc2=data",)}),
    Small((4, 2, 6), "joint", "text", 2, batch=2, constraints={"even": True}),
    Small((4, 2, 6), "level", "text", 2, batch=2, constraints={"even": True}),
]


def changed(potentials: Any, by: int, where: Any) -> Any:
    """Return the potentials of one table with some of them changed."""
    table = np.array(potentials, object)
    table[where] += by
    return table.tolist()


def forgeries(proofs: Sequence[TableProof], gap: int) -> Iterator[list[TableProof]]:
    """Sets of potentials made of a table's tight ones, or of another plan's."""
    yield list(proofs)
    for factor in (2, 4):
        times = [(np.array(p.potentials, object) * factor).tolist() for p in proofs]
        yield [TableProof(potentials=t, scale=p.scale) for t, p in zip(times, proofs, strict=True)]
        yield [TableProof(potentials=t, scale=factor) for t in times]
        yield [TableProof(potentials=p.potentials, scale=factor) for p in proofs]
    for place, proof in enumerate(proofs):
        table = np.array(proof.potentials, object)
        rows = [(slice(None), slice(None)), *((row, slice(None)) for row in range(len(table)))]
        entries = itertools.product(range(len(table)), range(len(table[0])))
        for where in (*rows, *entries):
            for by in sorted({1, -1, gap, -gap} - {0}):
                forged = TableProof(potentials=changed(table, by, where))
                yield [*proofs[:place], forged, *proofs[place + 1 :]]


def is_proved(plan: ho.Plan, proofs: Sequence[Proof]) -> bool:
    proof = Certificate(plan=_digest(plan), scope=plan.solver.scope, tables=tuple(proofs))
    try:
        ho.check_certificate(plan, proof)
    except CheckFailedError:
        return False
    return True


@pytest.mark.parametrize("small", CASES, ids=str)
def test_no_potentials_prove_a_plan_that_is_not_optimal(small: Small) -> None:
    write, rows = small.writer(), small.plans()
    plans = {each: write(each) for each in rows}
    best = next(plan for each, plan in plans.items() if small.is_optimal(each))
    of_best = list(ho.certify(best).tables)
    for each, plan in plans.items():
        assert plan.cost.total == sum(small.level_bytes(each))
        tables = tables_of(plan)
        tight = [_prove(table) for table in tables]
        if small.is_optimal(each):
            assert is_proved(plan, tight)
            assert list(ho.certify(plan).tables) == tight
            continue
        gap = tables[0].resolution * (Fraction(plan.cost.total) - Fraction(best.cost.total))
        assert not any(is_proved(plan, proofs) for proofs in forgeries(tight, int(gap)))
        assert not is_proved(plan, of_best)
        with pytest.raises(ho.HyparError, match="no certificate: potentials prove"):
            ho.certify(plan)


def test_a_plan_of_twice_the_optimum_in_half_precision_is_not_proved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight features, one unit, batch 4: gradients are 2 * 8 elements, partial sums 2 * 4."""
    network, plan, proof = (tmp_path / name for name in ("two.toml", "data.json", "data.cert"))
    network.write_text(
        'name = "two"\ninput = { features = 8 }\n[[layer]]\nname = "fc"\nkind = "fc"\nunits = 1\n'
    )
    args = ["solve", str(network), "--batch", "4", "--levels", "1", "--element-bytes", "2"]
    args += ["--search", "joint", "--reading", "text", "--output", str(plan)]
    assert run([*args, "--solver", "data", "--certificate", str(proof)]) == 2
    assert "potentials prove 16 bytes, the plan costs 32" in capsys.readouterr().err
    assert not proof.exists()
    data = ho.read_plan(plan)
    for potentials in ([[32, 16]], [[64, 32]], [[64, 64]], [[128, 64]]):
        forged = TableProof(potentials=potentials)
        whole = Certificate(plan=_digest(data), scope="joint", tables=(forged,))
        proof.write_text(whole.to_json())
        assert run(["verify", str(plan), "--certificate", str(proof)]) == 1
    assert run([*args, "--certificate", str(proof)]) == 0
    assert run(["verify", str(plan), "--certificate", str(proof)]) == 0
    assert ho.read_plan(plan).cost.total == 16


@pytest.mark.parametrize("element_bytes", [1, 2, 4, 8])
@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("search", ["levelwise", "joint"])
def test_lenet_is_proved_at_every_element_size(
    search: str, reading: str, element_bytes: int, tmp_path: Path
) -> None:
    plan, proof = tmp_path / "plan.json", tmp_path / "proof.json"
    args = ["solve", "lenet-c", "--search", search, "--reading", reading, "--json"]
    args += ["--element-bytes", str(element_bytes), "--output", str(plan)]
    assert run([*args, "--certificate", str(proof)]) == 0
    assert run(["verify", str(plan), "--certificate", str(proof)]) == 0


@settings(max_examples=25)
@given(networks(longest=3), st.sampled_from(["levelwise", "joint"]), st.data())
def test_potentials_of_choices_that_are_not_allowed_do_not_matter(
    network: ho.Network, search: str, data: st.DataObject
) -> None:
    last = network.layers[-1].name
    pins = data.draw(st.sampled_from([("*=model",), (f"{last}=data",), (f"{last}@H2=model",), ()]))
    constraints = {"fix": pins, "even": data.draw(st.booleans())}
    try:
        plan = ho.solve(network, search=search, batch=8, levels=2, constraints=constraints)
    except ho.HyparError:
        return  # no plan splits evenly
    certificate = ho.certify(plan)
    proofs = []
    for table, proof in zip(tables_of(plan), certificate.tables, strict=True):
        assert isinstance(proof, TableProof)
        potentials = np.array(proof.potentials, object)
        if table.allowed is not None:
            for where in zip(*np.nonzero(~table.allowed), strict=True):
                potentials[where] = data.draw(st.integers(-(10**20), 10**20))
        proofs.append(proof.model_copy(update={"potentials": potentials.tolist()}))
    ho.check_certificate(plan, certificate.model_copy(update={"tables": tuple(proofs)}))


def test_a_total_that_the_network_does_not_have_is_refused() -> None:
    """Although every number in the file agrees with every other."""
    plan = ho.solve("lenet-c", search="joint")
    certificate = ho.certify(plan)
    cost = plan.cost.model_copy(update={"total": 0})
    wrong = plan.model_copy(update={"cost": cost})
    forged = certificate.model_copy(update={"plan": _digest(wrong)})
    refusal = "cost, total: the plan's own choices cost 15606240 bytes"
    with pytest.raises(CheckFailedError, match=refusal):
        check_price(wrong)
    with pytest.raises(CheckFailedError, match=refusal):
        ho.check_certificate(wrong, forged)


def test_potentials_of_any_size_neither_overflow_nor_round() -> None:
    plan = ho.solve("lenet-c", search="joint")
    certificate = ho.certify(plan)
    document = json.loads(certificate.to_json())
    for scale in (1, 3, 10**30):
        for shift in (0, 1, 2**63, 10**40):
            table = np.array(document["tables"][0]["potentials"], object) * scale
            table[-1] += shift
            proof = TableProof(potentials=table.tolist(), scale=scale)
            forged = certificate.model_copy(update={"tables": (proof,)})
            assert is_proved(plan, list(forged.tables)) == (shift == 0)


def graph(layers: int, ends: list[tuple[int, int]]) -> CostTable:
    node = np.arange(2 * layers).reshape(layers, 2)
    edge = np.arange(4 * len(ends)).reshape(-1, 2, 2)
    return CostTable(node, edge, np.array(ends, np.intp).reshape(-1, 2))


STAR = [(0, 1), (0, 2), (0, 3)]
DIAMOND = [(0, 1), (0, 2), (1, 3), (2, 3)]
SKIPPING = [(0, 1), (0, 2), (2, 3)]


@pytest.mark.parametrize("ends", [STAR, DIAMOND, SKIPPING], ids=["star", "diamond", "skipping"])
def test_what_is_no_chain_is_refused_by_what_assumes_one(ends: list[tuple[int, int]]) -> None:
    table = graph(4, ends)
    refusal = "solves chains only; this graph is not a chain"
    with pytest.raises(RefusedError, match=refusal):
        table.chain_edges()
    with pytest.raises(RefusedError, match=refusal):
        _prove(table)
    pairs = table.edge[:, None]
    states = FactoredTable(table.node, (pairs,), table.ends, np.arange(2), "bytes", 1)
    with pytest.raises(RefusedError, match=refusal):
        costs_to_come(states)


def test_a_chain_and_chains_side_by_side_are_taken() -> None:
    table = graph(4, [(0, 1), (1, 2), (2, 3)])
    assert (table.chain_edges() == table.edge).all()
    gap = graph(4, [(0, 1), (2, 3)])
    assert gap.chain_edges()[1].tolist() == [[0, 0], [0, 0]]


@given(tables(longest=5, limited=False))
def test_potentials_never_prove_more_than_the_optimum(table: CostTable) -> None:
    every = itertools.product(range(table.choices), repeat=table.layers)
    least = min(price_table(table, assignment) for assignment in every)
    if not table.is_chain:
        with pytest.raises(RefusedError):
            _prove(table)
        return
    assert min(_prove(table).potentials[-1]) == least


@pytest.mark.parametrize("element_bytes", [1, 2, 4, 8])
@pytest.mark.parametrize("weights", [(), (3, 3)])
def test_a_threshold_table_counts_the_parts_of_its_cost(
    element_bytes: int, weights: tuple[int, ...]
) -> None:
    cost = CommunicationCost("text", element_bytes, level_weights=weights)
    workload = ho.Workload.of(ho.layer_graph(fully_connected(8, 1)), 4)
    thresholds = cost.thresholds(workload, 2)
    assert thresholds is not None
    top, below = thresholds.tables()
    assert (top.unit, top.resolution) == (cost.unit, cost.resolution)
    least = sum(each.in_units(int(each.node.min())) for each in (top, below))
    weight = weights[0] if weights else 1
    # Partial sums at H1, 2 * 4; gradients, by then halved, at H2: 2 * 2 groups * 8 / 2.
    assert least == (8 + 16) * element_bytes * weight
