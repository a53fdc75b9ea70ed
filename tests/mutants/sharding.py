"""Mutants of layouts, conversions between them, and a plan's program."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CONVERSIONS = "sharding/conversions"
_PROGRAM = "sharding/program"
_RULES = "step/rules"
_ORDER = "step/order"

SHARDING = (
    Mutant(
        "reduce-scatters from the topmost level down",
        _CONVERSIONS,
        "    for level in reversed(levels):\n        if source[level] == PARTIAL",
        "    for level in levels:\n        if source[level] == PARTIAL",
        ("execution/virtual/test_optima",),
    ),
    Mutant(
        "all-gathers from the deepest level up",
        _CONVERSIONS,
        "    for level in levels:\n        if is_split(now[level]) and target[level] == WHOLE",
        "    for level in reversed(levels):\n"
        "        if is_split(now[level]) and target[level] == WHOLE",
        ("execution/virtual/test_optima",),
    ),
    Mutant(
        "scattered always by channel",
        _CONVERSIONS,
        "target not in PART_WORDS else otherwise",
        'target not in PART_WORDS else "channel"',
        ("sharding/test_program",),
    ),
    Mutant(
        "an all-reduce moves as much at each level",
        _CONVERSIONS,
        "            copies //= sizes[level]\n",
        "",
        ("step/test_order",),
    ),
    Mutant(
        "a shuffle reads channels as they are stored",
        "workload/operators/axes",
        "return BY_SHUFFLED_CHANNEL",
        "return BY_CHANNEL",
        ("execution/test_run",),
    ),
    Mutant(
        "shared weights split as their first user",
        "sharding/weights",
        "weights[node] = replicated(workload, node) if whole else columns.pop()",
        "weights[node] = choice[users[0]]",
        ("sharding/test_program",),
    ),
    Mutant(
        "stored as the first reader wants it",
        _PROGRAM,
        "for number, edge in boundaries if not edge.weights}",
        "for number, edge in [*boundaries][::-1] if not edge.weights}",
        ("sharding/test_program", "execution/virtual/test_optima"),
        equivalent="what several layers read is a shared tensor, the only reader of its writer; and"
        " a shared tensor is never a partial sum, which alone asks for its reader",
    ),
    Mutant(
        "statistics are not reduced",
        _PROGRAM,
        "layouts = self._laid_out(self.workload.layouts.statistics, node)",
        "layouts = self.read[node]",
        ("execution/test_run",),
    ),
    Mutant(
        "no part has a remainder of both axes",
        "sharding/conversions",
        "both = (more_rows + more_columns - abs(more_rows - more_columns)) // 2",
        "both = 0 * more_rows",
        ("execution/virtual/test_random_plans",),
    ),
    Mutant(
        "each axis starts where another one's remainder ended",
        "execution/index_labels",
        "turns.get(among, 0)",
        "turns.get(among, len(turns) % size)",
        ("execution/virtual/test_random_plans",),
    ),
    Mutant(
        "backward as many statistics as forward",
        _RULES,
        "zip(factors, kinds, statistics, strict=True)",
        "zip(factors, kinds, statistics[[0, 0]], strict=True)",
        ("execution/test_run",),
    ),
    Mutant(
        "the errors of a conversion take its steps in their order",
        _ORDER,
        "joined != backward, level\n",
        "joined, exchange.level\n",
        ("step/test_order",),
    ),
    Mutant(
        "weights are gathered once for all layers that use them",
        _ORDER,
        "            for user, phase in uses:\n",
        "            for user, phase in uses[:2]:\n",
        ("step/test_order",),
    ),
    Mutant(
        "a group's channels may be torn apart",
        "execution/ties",
        "for parts in layer.parts(maps):",
        'for parts in layer.parts(maps) if layer.kind != "conv" else ():',
        ("execution/test_run", "execution/test_index_labels"),
    ),
    Mutant(
        "layers that share weights split them in any order",
        "execution/index_labels",
        "            if is_split(program.weights(node)[level]):\n",
        "            if level > 9:\n",
        ("sharding/test_program",),
    ),
    Mutant(
        "replicas are written as partial sums",
        "workload/operators/axes",
        "return WHOLE  # each part computes the whole result, not an addend",
        "return lacking",
        ("sharding/test_program",),
    ),
    Mutant(
        "a shuffle deals as it is dealt",
        "execution/ties",
        "return np.arange(channels).reshape(groups, -1).T.reshape(-1)",
        "return np.arange(channels).reshape(-1, groups).T.reshape(-1)",
        ("execution/virtual/test_arithmetic",),
    ),
    Mutant(
        "all-to-alls of two uneven axes are joined",
        _CONVERSIONS,
        "if len(axes - even) > 1:",
        "if len(axes - even) > 2:",
        ("execution/virtual/test_joined",),
    ),
    Mutant(
        "what has crossed a joined level crosses those below again",
        _RULES,
        "moved = [amount // above for amount in moved]",
        "moved = list(moved)",
        ("search/test_joined",),
    ),
)
