"""Mutants of what is trained: overlap, its bounds, configurations and their settings."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SCHEDULE = "simulator/schedule"
_PARTS = "simulator/repeated_parts"
_DEGREES = "search/degrees"
_BOUND = "costs/overlap"

TRAINED = (
    Mutant(
        "a key-value head in two parts is not replicated",
        "plan/configuration",
        "0 < role.kv_heads * inner <= configuration.tp",
        "0 < role.kv_heads * inner < configuration.tp",
        ("plan/test_configuration",),
    ),
    Mutant(
        "each degree has the fastest of all tensor parallelism",
        "studies/searched_degrees",
        "return one.tp == tp and allowed(one)",
        "return allowed(one)",
        ("studies/test_searched_degrees",),
    ),
    Mutant(
        "stages may cut through what a level shards",
        "instance/stage",
        "accelerators not in inner and accelerators % part.accelerators",
        "accelerators not in inner and accelerators < part.accelerators",
        ("search/test_stages",),
    ),
    Mutant(
        "a configuration in stages shards what it likes",
        "plan/configuration",
        'stated = stated.model_copy(update={"shard": shard})',
        'stated = stated.model_copy(update={"shard": None})',
        ("studies/test_comparison",),
    ),
    Mutant(
        "stages are balanced by the forward pass alone",
        "search/staged_degrees",
        "seconds[mesh, count] = (program.forward + program.backward)[places]",
        "seconds[mesh, count] = program.forward[places]",
        ("search/test_staged_degrees",),
    ),
    Mutant(
        "the heaviest of balanced stages is without its last layer",
        "search/cuts",
        "before = np.concatenate([[0], np.cumsum(weights)])[places]",
        "before = np.concatenate([np.cumsum(weights), [0]])[places]",
        ("search/test_staged_degrees",),
    ),
    Mutant(
        "the least memory is without blocks that run again",
        "search/staged_degrees",
        "evaluator, whole = evaluators[one.pp], one._replace(blocks=None)",
        "evaluator, whole = evaluators[one.pp], one",
        ("search/test_staged_degrees",),
    ),
    Mutant(
        "replicated projections are split",
        "plan/megatron",
        "fields[source] = whole",
        "continue",
        ("plan/test_configuration",),
    ),
    Mutant(
        "a block does not wait for its weights",
        _SCHEDULE,
        "        if gathered:\n            self.streams.wait(gathered)\n",
        "        if gathered:\n",
        ("simulator/test_prefetch",),
    ),
    Mutant(
        "the update does not wait for gradients",
        _SCHEDULE,
        "        self._scattered(self._root)\n        self.streams.wait_for_queue()",
        "        self._scattered(self._root)",
        ("simulator/test_prefetch",),
    ),
    Mutant(
        "gradients of the root are not reduced",
        _SCHEDULE,
        "        self._scattered(self._root)\n        self.streams.wait_for_queue()",
        "        self.streams.wait_for_queue()",
        ("simulator/test_prefetch", "search/test_degrees"),
    ),
    Mutant(
        "repetitions are alike whatever the queue still takes",
        _PARTS,
        "return self.queue == before.queue and all(",
        "return self.queue == before.queue or all(",
        ("search/test_degrees",),
    ),
    Mutant(
        "what overlaps in repetitions that are skipped is not counted",
        _PARTS,
        "self.overlapped += remaining * (self.overlapped - overlapped)",
        "self.overlapped += 0 * (self.overlapped - overlapped)",
        ("search/test_degrees",),
    ),
    Mutant(
        "a search of configurations ends at the first bound",
        _DEGREES,
        "                if order[0][0] >= slowest:\n                    break",
        "                if best:\n                    break",
        ("search/test_degrees",),
    ),
    Mutant(
        "a block is computed again beyond those that are",
        "search/step_bounds",
        "(blocks >= 0) & (blocks < configuration.blocks)",
        "(blocks >= 0) & (blocks <= configuration.blocks)",
        ("search/test_degrees",),
    ),
    Mutant(
        "the queue of a step is released as its micro-batch ends",
        "search/step_queues",
        "        remaining = released[::-1].cumsum()[::-1]",
        "        remaining = np.full_like(released, released.sum())",
        ("search/test_degrees",),
    ),
    Mutant(
        "a gather of weights waits for those behind it",
        "search/step_queues",
        "gathered = max(queue, now) + seconds",
        "gathered = max(queue, now) + 2 * seconds",
        ("search/test_degrees",),
    ),
    Mutant(
        "all that a step updates is updated in each micro-batch",
        "search/step_queues",
        "enumerate((updates, 0 * updates))",
        "enumerate((updates, updates))",
        ("search/test_degrees",),
    ),
    Mutant(
        "a micro-batch of any size holds in proportion",
        _DEGREES,
        "if micro_batch % self._parts_of_batch(mesh, short.lengths):",
        "if False:",
        ("search/test_degrees",),
    ),
    Mutant(
        "what is hidden is not priced in a later piece",
        _BOUND,
        "        rest: Integers = self.scale - hides",
        "        rest: Integers = self.scale - 0 * hides",
        ("search/test_overlap",),
    ),
    Mutant(
        "gradients that are scattered leave their buckets late",
        _BOUND,
        "    if not _scattered(workload):\n",
        "    if True:\n",
        ("search/test_overlap",),
    ),
    Mutant(
        "gathers have the price of the root's",
        _BOUND,
        "ahead + hidden[-1] if unit else root",
        "root",
        ("search/test_overlap",),
    ),
    Mutant(
        "gradients of all units are scattered behind the program",
        _BOUND,
        "hidden[unit.start - 1] if unit and unit.start > shared else root",
        "root",
        ("search/test_overlap",),
    ),
    Mutant(
        "collectives of a unit are joined over other levels",
        _SCHEDULE,
        "joined[4, level, over]",
        "joined[4, level, ()]",
        ("search/test_overlap",),
    ),
    Mutant(
        "no block is searched by operator",
        "search/free_modes",
        "OF_BLOCKS[::-1] if self.blocks",
        "OF_BLOCKS[:1] if self.blocks",
        ("search/test_within_memory",),
    ),
    Mutant(
        "sums of gradients of weights that stages share are not searched",
        "search/cuts",
        "        for number in range(len(fixed), len(holds)):\n",
        "        for number in ():\n",
        ("search/test_cuts",),
    ),
    Mutant(
        "sums of gradients of weights that stages share are not charged",
        "instance/staged",
        "for plan in self.plans], self.turns) + self._summed",
        "for plan in self.plans], self.turns)",
        ("instance/test_staged",),
    ),
    Mutant(
        "stages sum gradients before all that share them are done",
        "simulator/pipeline",
        "start = max(free[part] for part in reduction.parts)",
        "start = min(free[part] for part in reduction.parts)",
        ("simulator/test_pipeline",),
    ),
)
