"""Mutants of what a plan is charged, in bytes, time and energy."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_BYTES = "costs/communication"
_TIME = "costs/time"
_ENERGY = "costs/energy"

COSTS = (
    Mutant(
        "what is whole below is not counted",
        _BYTES,
        "copies = np.where(whole, above + below, kept.sum(axis=0))",
        "copies = np.where(whole, above, kept.sum(axis=0))",
        ("execution/test_optima", "search/test_replica_proofs"),
    ),
    Mutant(
        "what is gathered above is not counted",
        _BYTES,
        "copies = np.where(whole, above + below, kept.sum(axis=0))",
        "copies = np.where(whole, below, kept.sum(axis=0))",
        ("search/test_replica_proofs",),
    ),
    Mutant(
        "gathered last ignored",
        _BYTES,
        "            if self._row.gathers_last:\n",
        "            if False:\n",
        ("search/test_three_choices",),
    ),
    Mutant(
        "copies of what is read whole are free",
        _BYTES,
        "charges = charges << copies",
        "charges = charges << 0 * copies",
        ("costs/test_communication",),
    ),
    Mutant(
        "level weights weigh nothing",
        _BYTES,
        "weight = self.level_weights[level] if self.level_weights else 1",
        "weight = 1",
        ("costs/test_communication",),
    ),
    Mutant(
        "halves of a byte are dropped",
        _BYTES,
        "return self.element_bytes * weight * self.resolution // 4",
        "return self.element_bytes // 4 * weight * self.resolution or 1",
        ("costs/test_communication",),
    ),
    Mutant(
        "levels of unequal weights separate",
        _BYTES,
        "if self.choices > 2 or len(set(self.level_weights)) > 1:",
        "if self.choices > 2:",
        ("search/test_joint",),
    ),
    Mutant(
        "levels separate where a tensor lacks every axis",
        _BYTES,
        "if lacking.input.any() or any(tensor.all(axis=0).any() for tensor in lacking):",
        "if lacking.input.any():",
        ("search/test_graph_searches",),
    ),
    Mutant(
        "a threshold halves the other tensor",
        "costs/separable",
        "halvings = np.array([self.levels - t, t - 1]).astype(dtype)",
        "halvings = np.array([t - 1, self.levels - t]).astype(dtype)",
        ("search/test_joint",),
    ),
    Mutant(
        "inference reduces gradients",
        "costs/factors",
        "[row.gradient * gradient * size for size in workload.stored]",
        "[row.gradient * size for size in workload.stored]",
        ("costs/test_communication",),
    ),
    Mutant(
        "outputs are counted after the pool",
        "costs/factors",
        "outputs = workload.outputs if row.before_pool else workload.pooled",
        "outputs = workload.pooled",
        ("costs/test_communication", "execution/test_run"),
    ),
    Mutant(
        "the network's input has an error",
        "costs/factors",
        "    if not row.first_input_error:\n",
        "    if False:\n",
        ("search/test_three_choices", "costs/test_communication"),
    ),
    Mutant(
        "a replica's reductions are charged",
        "costs/factors",
        "(lacking.output & ~whole, [output_quarters",
        "(lacking.output, [output_quarters",
        ("execution/test_optima", "search/test_replica_proofs"),
    ),
    Mutant(
        "statistics are free",
        "costs/factors",
        "[row.gradient * size for size in statistics]",
        "[0 * size for size in statistics]",
        ("costs/test_layouts_of_graphs", "execution/test_run"),
    ),
    Mutant(
        "the topmost level is crossed twice",
        _TIME,
        "messages: Integers = np.where(above == 0, 1, twice)[:, None]",
        "messages: Integers = twice[:, None]",
        ("costs/test_time",),
    ),
    Mutant(
        "a ring takes a message more",
        _TIME,
        "steps = 2 ** len(levels) - 1",
        "steps = 2 ** len(levels)",
        ("costs/test_time",),
    ),
    Mutant(
        "compute at every level",
        _TIME,
        "if self.work is not None and splits.level == self.work.levels - 1:",
        "if self.work is not None:",
        ("costs/test_time",),
    ),
    Mutant(
        "compute is charged for one pass",
        _TIME,
        "per_second = self.per_second * len(self.communication.phases)",
        "per_second = self.per_second",
        ("costs/test_time",),
    ),
    Mutant(
        "the DRAM is never the slower",
        "costs/compute",
        "longer: Integers = np.maximum(loading, computing)",
        "longer: Integers = computing + 0 * loading",
        ("costs/test_time",),
    ),
    Mutant(
        "the optimizer keeps nothing",
        "costs/compute",
        "load = 2 * load + problem.constraints.optimizer_bytes(element_bytes) * shard",
        "load = 2 * load",
        ("search/test_constraints",),
    ),
    Mutant(
        "a ring's bytes cross the links of a pair",
        _ENERGY,
        "crossing = self._of_byte(self.rings.link(levels).hops) - self._of_byte(Fraction())",
        "crossing = self._of_byte(self.hops[levels[0]]) - self._of_byte(Fraction())",
        ("costs/test_energy",),
    ),
    Mutant(
        "the words before any choice are free",
        _ENERGY,
        "words: Integers = weights + inputs + outputs",
        "words: Integers = 0 * (weights + inputs + outputs)",
        ("costs/test_energy",),
    ),
)
