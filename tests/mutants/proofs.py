"""Mutants of what checks a certificate, and of the tables that it derives."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_FLOWS = "proofs/graphs"
_CHECK = "proofs/certificate"
_ALL = ("proofs/test_graph_proofs", "proofs/test_certificate")

PROOFS = (
    Mutant(
        "arcs to the sink may overflow",
        _FLOWS,
        "if not -max(charge, 0) <= flow <= max(-charge, 0):",
        "if not flow <= max(-charge, 0):",
        ("proofs/test_flow_proofs",),
    ),
    Mutant(
        "arcs from the source may overflow",
        _FLOWS,
        "if not -max(charge, 0) <= flow <= max(-charge, 0):",
        "if not -max(charge, 0) <= flow:",
        ("proofs/test_flow_proofs",),
    ),
    Mutant(
        "arcs between layers may overflow",
        _FLOWS,
        "if not 0 <= flow <= network.capacities[u, v]:",
        "if not 0 <= flow:",
        ("proofs/test_flow_proofs",),
    ),
    Mutant(
        "more flow into a layer than out of it",
        _FLOWS,
        "        if left[layer]:\n",
        "        if left[layer] < 0:\n",
        ("proofs/test_flow_proofs",),
    ),
    Mutant(
        "more flow out of a layer than into it",
        _FLOWS,
        "        if left[layer]:\n",
        "        if left[layer] > 0:\n",
        ("proofs/test_flow_proofs",),
    ),
    Mutant(
        "allowed ignored for pairs of fixed layers",
        _FLOWS,
        "constant -= saved * at_u * at_v",
        "constant -= 0",
        ("proofs/test_flow_proofs",),
    ),
    Mutant(
        "allowed ignored for pairs of a fixed and a free layer",
        _FLOWS,
        "charges[v] -= saved * at_u",
        "charges[v] -= saved",
        ("proofs/test_flow_proofs",),
    ),
    Mutant(
        "a layer is allowed no choice",
        _FLOWS,
        "if not _allowed(table).any(axis=1).all():",
        "if False:",
        ("proofs/test_flow_proofs",),
    ),
    Mutant(
        "negative reduced costs of messages",
        _FLOWS,
        "if reduced.min() < 0:",
        "if reduced.max() < 0:",
        ("proofs/test_graph_proofs",),
    ),
    Mutant(
        "messages overflow 64 bits",
        _FLOWS,
        "dtype = exact_dtype(table.largest + (table.layers + 1) * highest)",
        "dtype = np.int64",
        ("proofs/test_graph_proofs",),
    ),
    Mutant(
        "price is not checked in check_certificate",
        _CHECK,
        "    check_price(plan)\n    bound = _bound",
        "    bound = _bound",
        ("proofs/test_forged_certificates",),
    ),
    Mutant(
        "potentials of a graph",
        _CHECK,
        "if not table.is_chain:",
        "if False:",
        ("proofs/test_forged_certificates",),
    ),
    Mutant(
        "a certificate of another plan",
        _CHECK,
        "if certificate.plan != _digest(plan):",
        "if False:",
        ("proofs/test_certificate",),
    ),
    Mutant(
        "a bound below the cost",
        _CHECK,
        "    if bound != Fraction(plan.cost.total):\n        raise CheckFailedError(",
        "    if bound > Fraction(plan.cost.total):\n        raise CheckFailedError(",
        ("proofs/test_forged_certificates",),
    ),
    Mutant(
        "a bound above the cost is taken",
        _CHECK,
        "    if bound != Fraction(plan.cost.total):\n        raise CheckFailedError(",
        "    if bound < Fraction(plan.cost.total):\n        raise CheckFailedError(",
        ("proofs/test_certificate", "proofs/test_forged_certificates"),
        equivalent="no bound is above: it holds for all plans, and the cost is the price of one",
    ),
    Mutant(
        "negative reduced costs of potentials",
        _CHECK,
        "if reduced.min() < 0:",
        "if reduced.max() < 0:",
        ("proofs/test_certificate",),
    ),
    Mutant(
        "a capacity costs nothing",
        _CHECK,
        "- proof.multiplier * capacity, proof.scale",
        ", proof.scale",
        ("proofs/test_certificate",),
    ),
    Mutant(
        "potentials overflow 64 bits",
        _CHECK,
        "dtype = exact_dtype(largest)",
        "dtype = np.int64",
        ("proofs/test_proofs",),
    ),
    Mutant(
        "thresholds in spite of constraints",
        "proofs/reference/tables",
        "        and not restrictions.any\n",
        "",
        ("proofs/test_proofs",),
    ),
    Mutant(
        "even splits halve once too little",
        "proofs/reference/restrictions",
        "% (2 << above.count(choice)) == 0",
        "% (1 << above.count(choice)) == 0",
        ("proofs/test_proofs",),
    ),
    Mutant(
        "the optimizer keeps nothing",
        "proofs/reference/restrictions",
        "(2 * element_bytes + optimizer) * stored",
        "2 * element_bytes * stored",
        ("proofs/test_proof_memory",),
    ),
    Mutant(
        "what was gathered above is not counted below",
        "proofs/reference/exchanges",
        "kept.sum(axis=0) + gathered * gathered_above",
        "kept.sum(axis=0)",
        ("proofs/test_replica_proofs",),
    ),
    Mutant(
        "a ring takes a message more",
        "proofs/reference/physical",
        "messages = (2 ** len(levels) - 1) * often",
        "messages = 2 ** len(levels) * often",
        ("proofs/test_proof_tables",),
    ),
    Mutant(
        "thresholds in spite of unequal level weights",
        "proofs/reference/tables",
        "and len(set(plan.level_weights)) <= 1",
        "and len(set(plan.level_weights)) <= 2",
        ("proofs/test_proofs",),
    ),
    Mutant(
        "the plan's own price is not compared",
        _CHECK,
        "    if costs != Fraction(plan.cost.total):",
        "    if False:",
        ("proofs/test_forged_certificates",),
    ),
)
