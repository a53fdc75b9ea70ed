"""Mutants of what a plan is charged, in bytes, time and energy."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RULES = "step/rules"
_BYTES = "costs/communication"
_TIME = "costs/time"
_ENERGY = "costs/energy"

COSTS = (
    Mutant(
        "what is whole below is not counted",
        _RULES,
        "[own * more for own, more in zip(above, reversed(below), strict=True)]",
        "above",
        ("execution/virtual/test_optima", "proofs/test_proof_tables"),
    ),
    Mutant(
        "what is gathered above is not counted",
        _RULES,
        "above.append(above[-1] * np.where(own, parts, 1) if own.any() else above[-1])",
        "above.append(above[-1])",
        ("proofs/test_proof_tables",),
    ),
    Mutant(
        "gathered last ignored",
        _RULES,
        "exchanged = [always] * len(pairs) if self.reading.gathers_last else above",
        "exchanged = above",
        ("search/test_three_choices",),
    ),
    Mutant(
        "level weights weigh nothing",
        _BYTES,
        "weight = self.level_weights[level] if self.level_weights else 1",
        "weight = 1",
        ("costs/test_communication",),
    ),
    Mutant(
        "levels of unequal weights separate",
        "costs/base",
        "if len({*sizes}) > 1 or not self.proportional:",
        "if len({*sizes}) > 1:",
        ("search/test_joint",),
    ),
    Mutant(
        "levels are alike, whatever a cost charges at them",
        "costs/contract",
        "charged.index(own) for own in charged",
        "0 for own in charged",
        ("costs/test_contract",),
    ),
    Mutant(
        "a cost is in proportion to what moves, whatever it charges",
        "costs/contract",
        "proportional &= charge * first == its_charge * moved",
        "proportional &= True",
        ("costs/test_contract",),
    ),
    Mutant(
        "levels are permuted across others that are charged otherwise",
        "costs/base",
        "groups = runs_of(kinds)",
        "groups = [*map(kinds.index, kinds)]",
        ("costs/test_contract",),
    ),
    Mutant(
        "outputs are counted after the pool",
        _RULES,
        "workload.outputs if row.before_pool else workload.pooled",
        "workload.pooled",
        ("costs/test_communication", "execution/test_run"),
    ),
    Mutant(
        "a replica's reductions are charged",
        _RULES,
        "partial = (layouts.output < FIRST_SPLIT) & ~whole",
        "partial = layouts.output < FIRST_SPLIT",
        ("execution/virtual/test_optima", "proofs/test_proof_tables"),
    ),
    Mutant(
        "statistics are free",
        _RULES,
        "row.gradient * stats",
        "0 * stats",
        ("proofs/test_proof_tables", "execution/test_run"),
    ),
    Mutant(
        "the topmost level is crossed twice",
        _TIME,
        "crossings = own.below if rounds > 1 else np.where(is_below, own.below, own.topmost)",
        "crossings = own.below",
        ("costs/test_time",),
    ),
    Mutant(
        "a ring takes a message more",
        "hardware/patterns",
        "messages = times * (ring.accelerators - 1)",
        "messages = times * ring.accelerators",
        ("costs/test_time",),
    ),
    Mutant(
        "the DRAM is never the slower",
        "costs/work",
        "times * _longer(linear)",
        "times * linear[-1]",
        ("costs/test_time",),
    ),
    Mutant(
        "the mean part of an uneven axis is the longest",
        "step/uneven",
        "(own, -(-divided // below) * parts)",
        "(own, own)",
        ("costs/test_time",),
    ),
    Mutant(
        "parts of unequal groups are the longest of equal ones",
        "step/uneven",
        "(own, -(-divided // below) * parts)",
        "(own, -(-own // parts) * parts)",
        ("costs/test_whole_indices",),
    ),
    Mutant(
        "a part never has less than its share of an axis",
        "step/shares",
        "np.where(at_h1 > 0, exact - less, amounts)",
        "np.where(at_h1 > 0, exact, amounts)",
        ("costs/test_whole_indices",),
    ),
    Mutant(
        "the optimizer keeps nothing",
        "step/holds",
        "weights = each + (0 if inference else optimizer_bytes)",
        "weights = each",
        ("proofs/test_proof_tables",),
    ),
    Mutant(
        "a ring's bytes cross the links of a pair",
        _ENERGY,
        "crossing = self._of_byte(rings.link(stage).hops) - self._of_byte(Fraction())",
        "crossing = self._of_byte(self.hops[stage[0]]) - self._of_byte(Fraction())",
        ("costs/test_energy",),
    ),
    Mutant(
        "thresholds are of halves, whatever the parts",
        "costs/thresholds",
        "levels, n = range(self.levels), self.parts",
        "levels, n = range(self.levels), 2",
        ("search/test_hierarchies",),
    ),
    Mutant(
        "a joined level divides what crosses it",
        _RULES,
        "(np.where(own, before, 1), np.where(own, every // upto, 1), own)",
        "(np.where(own, upto, 1), np.where(own, every // upto, 1), own)",
        ("execution/virtual/test_joined",),
    ),
    Mutant(
        "a joined all-to-all sends a message to each other part of a level",
        _RULES,
        "np.where(own, every // upto, 1), own)",
        "np.where(own, 1, 1), own)",
        ("proofs/test_proof_tables",),
    ),
    Mutant(
        "a fused loss holds its logits",
        "workload/operators/elementwise",
        "return Saved(inputs=singles > 0, singles=singles, unwritten=not singles)",
        "return Saved(inputs=True, singles=singles)",
        ("simulator/test_losses_and_gathers",),
    ),
    Mutant(
        "what is converted again is kept as it is read",
        "step/holds",
        "stored = self._map(writer, self.workload.nodes[writer].pooled)",
        "stored = hold",
        ("simulator/test_losses_and_gathers",),
    ),
    Mutant(
        "replicas are sharded from the level below on",
        "step/holds",
        "levels >= np.array(own)",
        "levels > np.array(own)",
        ("step/test_holds",),
    ),
    Mutant(
        "what is gathered is held though nothing is sharded",
        "step/holds",
        "times = sum((own > 1).astype(dtype) for own in shards)",
        "times = sum((own > 0).astype(dtype) for own in shards)",
        ("step/test_holds",),
    ),
    Mutant(
        "new weights are gathered in the elements of gradients",
        "workload/repeats",
        '_UPDATED = GradientCollective("all-gather", weights=True)',
        '_UPDATED = GradientCollective("all-gather")',
        ("simulator/test_losses_and_gathers", "proofs/test_trained_plans"),
    ),
    Mutant(
        "further communicators take nothing",
        "hardware/accelerator",
        "further = max(communicators - 1, 0) * (self.reserve_groups or 0)",
        "further = 0",
        ("simulator/test_losses_and_gathers",),
    ),
)
