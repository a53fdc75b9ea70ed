"""Mutants of a run on virtual devices: what they exchange, compute, and count."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_STEP = "execution/virtual/micro_batch"
_FABRIC = "execution/virtual/fabric"
_RUNS = ("execution/virtual/test_optima",)

EXECUTION = (
    Mutant(
        "queries of a head are others than those that read its keys",
        "workload/operators/attention",
        "run._replace(scale=run.scale // heads.count, repeats=heads.count)",
        "run",
        ("execution/virtual/test_queries",),
    ),
    Mutant(
        "heads are tied where queries are split",
        "execution/ties",
        "        if parts.axis != split:\n            continue\n",
        "",
        ("execution/virtual/test_queries",),
    ),
    Mutant(
        "error of replicas counted twice",
        _STEP,
        "[block * (not within(n, addends)) for n, block in enumerate(blocks)]",
        "[block for block in blocks]",
        ("execution/virtual/test_last_layers",),
    ),
    Mutant(
        "replicas' losses are added",
        _STEP,
        "copies = self.program.parts(layouts, WHOLE)\n            whole",
        "copies = 1\n            whole",
        ("execution/virtual/test_last_layers",),
    ),
    Mutant(
        "shares' softmax losses are added",
        _STEP,
        "copies = self.program.parts(layouts, WHOLE, CHANNEL)",
        "copies = self.program.parts(layouts, WHOLE)",
        ("execution/virtual/test_random_plans",),
    ),
    Mutant(
        "the error of the last reader alone",
        _STEP,
        "blocks = [a + b for a, b in zip(self._errors[stored], blocks, strict=True)]",
        "blocks = list(blocks)",
        ("execution/virtual/test_arithmetic",),
    ),
    Mutant(
        "the gradient of the last user alone",
        _STEP,
        "self._shared_gradients[node][device][np.ix_(*indices)] += part",
        "self._shared_gradients[node][device][np.ix_(*indices)] = part",
        ("execution/virtual/test_arithmetic",),
    ),
    Mutant(
        "maxima of statistics are added",
        _STEP,
        "combine = self._arithmetic[position][0].combine if phase is Phase.FORWARD else np.add",
        "combine = np.add",
        ("execution/virtual/test_random_plans",),
    ),
    Mutant(
        "what arrives is counted once for all devices",
        _FABRIC,
        "self.received[crossed] += received[peer].size * self._elements(purpose)",
        "self.received[crossed] += received[peer].size * self._elements(purpose) * (device < 1)",
        _RUNS,
    ),
    Mutant(
        "an all-reduce gathers in the other order",
        _FABRIC,
        "for peer in self._group(device, purpose)]",
        "for peer in self._group(device, purpose)[::-1]]",
        _RUNS,
    ),
    Mutant(
        "an activation lets every error through",
        "execution/virtual/epilogue",
        "error = error * self._activation[1](self._output)",
        "error = error * 1",
        ("execution/virtual/test_arithmetic",),
    ),
    Mutant(
        "a grouped convolution keeps the first group's weights",
        "execution/virtual/weights",
        'indices["g"] = np.unique(written // sizes[layer.axes.weight[-1]])',
        'indices["g"] = np.unique(written * 0)',
        ("execution/test_run",),
    ),
    Mutant(
        "shared weights are kept whole",
        "execution/virtual/division",
        "for n, one in enumerate(layouts) if is_split(one)}",
        "for n, one in enumerate(layouts) if not one}",
        ("sharding/test_program",),
    ),
    Mutant(
        "numbers that are no numbers agree",
        "execution/result",
        "if difference is not None and not difference <= self.tolerance:",
        "if difference is not None and difference > self.tolerance:",
        ("execution/test_run",),
    ),
    Mutant(
        "prices are not compared",
        "execution/result",
        "            if priced != counted:",
        "            if False:",
        ("execution/test_run",),
    ),
    Mutant(
        "stored as the last reader wants it",
        "execution/virtual/division",
        "return self.tensor(position, readers[0] if len(readers) == 1 else None)",
        "return self.tensor(position, readers[-1] if readers else None)",
        ("execution/test_run", "execution/virtual/test_random_plans"),
        equivalent="a reader matters where it shuffles channels, and in that order a tensor with"
        " several readers is never stored",
    ),
    Mutant(
        "what is converted again is not dropped",
        "execution/virtual/micro_batch",
        "            for old, new in zip(self._stored[node], fresh, strict=True):",
        "            for old, new in ():",
        ("execution/virtual/test_training",),
    ),
    Mutant(
        "the gradient of the last micro-batch alone",
        "execution/virtual/trained_weights",
        "gradients = [before + gradient for before, gradient in pairs]",
        "gradients = [gradient for before, gradient in pairs]",
        ("execution/virtual/test_training",),
    ),
    Mutant(
        "what crosses a border of stages is sent again for what computes again",
        "execution/virtual/recomputation",
        "        return self._again.get(stored) is not None or stored in self._by_op",
        "        return self._again.get(position + self._shared) is not None",
        ("execution/virtual/test_stages",),
    ),
    Mutant(
        "stages that hold no shared weights reduce their gradients",
        _FABRIC,
        "if self.hierarchy.digit(peer, 0) in holders]",
        "if holders]",
        ("execution/virtual/test_stages",),
    ),
)
