"""Mutants of layouts, conversions between them, and a plan's program."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CONVERSIONS = "sharding/conversions"
_PROGRAM = "sharding/program"

SHARDING = (
    Mutant(
        "reduce-scatters from the topmost level down",
        _CONVERSIONS,
        "    for level in reversed(levels):\n        if source[level] is Layout.PARTIAL",
        "    for level in levels:\n        if source[level] is Layout.PARTIAL",
        ("execution/virtual/test_optima",),
    ),
    Mutant(
        "all-gathers from the deepest level up",
        _CONVERSIONS,
        "    for level in levels:\n"
        "        if now[level] in _SPLIT and target[level] is Layout.WHOLE",
        "    for level in reversed(levels):\n"
        "        if now[level] in _SPLIT and target[level] is Layout.WHOLE",
        ("execution/virtual/test_optima",),
    ),
    Mutant(
        "scattered always by channel",
        _CONVERSIONS,
        "return target if target in _SPLIT else Layout.BATCH",
        "return target if target in _SPLIT else Layout.CHANNEL",
        ("sharding/test_program",),
    ),
    Mutant(
        "an error is as split as its tensor was before the step",
        _CONVERSIONS,
        "unsplit = step.unsplit - (step.source not in _SPLIT) + (step.target not in _SPLIT)",
        "unsplit = step.unsplit",
        ("execution/virtual/test_optima",),
    ),
    Mutant(
        "an all-reduce moves as much at each level",
        _CONVERSIONS,
        "unsplit - (len(levels) - 1 - above),",
        "unsplit,",
        ("execution/virtual/test_optima",),
    ),
    Mutant(
        "a shuffle reads channels as they are stored",
        "sharding/layouts",
        "read = np.where(workload.shuffles & (read == Layout.CHANNEL), Layout.SHUFFLED, read)",
        "read = np.where(workload.shuffles & (read == Layout.WHOLE), Layout.SHUFFLED, read)",
        ("execution/test_run",),
    ),
    Mutant(
        "shared weights split as their first user",
        "sharding/weights",
        "weights[node] = columns.pop() if len(columns) == 1 else DATA",
        "weights[node] = choice[users[0]]",
        ("sharding/test_program",),
    ),
    Mutant(
        "stored as the first reader wants it",
        _PROGRAM,
        "                reader[boundary.source] = self.read[boundary.target]",
        "                reader.setdefault(boundary.source, self.read[boundary.target])",
        ("sharding/test_program", "execution/virtual/test_optima"),
        equivalent="what several layers read is a shared tensor, the only reader of its writer; and"
        " a shared tensor is never a partial sum, which alone asks for its reader",
    ),
    Mutant(
        "statistics are not reduced",
        _PROGRAM,
        "kept = {Layout.CHANNEL: Layout.PARTIAL, Layout.SHUFFLED: Layout.PARTIAL}",
        "kept = {Layout.SHUFFLED: Layout.PARTIAL}",
        ("execution/test_run",),
    ),
    Mutant(
        "partial sums are scattered after the pool",
        _PROGRAM,
        "self.output_steps(node), workload.outputs[node])",
        "self.output_steps(node), workload.pooled[node])",
        ("execution/test_run",),
    ),
    Mutant(
        "backward as many statistics as forward",
        _PROGRAM,
        "workload.nodes[node].statistics[1]",
        "workload.nodes[node].statistics[0]",
        ("execution/test_run",),
    ),
    Mutant(
        "a group's channels may be torn apart",
        "sharding/ties",
        "for parts in layer.parts(maps):",
        'for parts in layer.parts(maps) if layer.kind != "conv" else ():',
        ("execution/test_run", "sharding/test_index_labels"),
    ),
    Mutant(
        "layers that share weights split them in any order",
        "sharding/index_labels",
        "            if program.rows[level][node]:\n",
        "            if program.rows[level][node] > 9:\n",
        ("sharding/test_program",),
    ),
    Mutant(
        "replicas are written as partial sums",
        "sharding/layouts",
        "(np.where(whole, Layout.WHOLE, layout) for layout in (read, written))",
        "(np.where(whole, Layout.WHOLE, read), written)",
        ("sharding/test_program",),
    ),
    Mutant(
        "a shuffle deals as it is dealt",
        "sharding/ties",
        "return np.arange(channels).reshape(groups, -1).T.reshape(-1)",
        "return np.arange(channels).reshape(-1, groups).T.reshape(-1)",
        ("execution/virtual/test_arithmetic",),
    ),
)
