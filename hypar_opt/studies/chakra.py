"""Export to MLCommons Chakra: traces of a plan's step, and ASTRA-sim's configuration for its array.

Source: astra-sim/astra-sim, astra-sim/workload/Workload.cc at 0383c20 (traces, communicators) and
astra-sim/system/Sys.cc at 013fe67 (the system); astra-sim/astra-network-analytical,
common/network-parser/NetworkParser.cc at 047ef65 and common/NetworkFunction.cc at 0f6d65e (the
network, whose gigabytes are of 2^30 bytes).
"""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import groupby
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from hypar_opt.errors import printable
from hypar_opt.execution.export import check_kept, check_splits, not_counted
from hypar_opt.execution.formats import ExportFormat
from hypar_opt.planning.priced import plans_of_stages
from hypar_opt.sharding.passes import Phase
from hypar_opt.studies.targets import own_array
from hypar_opt.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.hardware.array import Array
    from hypar_opt.hardware.interconnect import Interconnect
    from hypar_opt.plan.plan import Plan
    from hypar_opt.simulator.chakra import Traces, Turn
    from hypar_opt.simulator.options import RunOptions
    from hypar_opt.simulator.pipeline_order import StagePass
    from hypar_opt.workload.tensors import Workload

_RINGS = ("torus", "ring")
"""Topologies whose dimensions are rings."""

_SCRIPT = """
name=$(basename "$0")
files=$(dirname "$0")/${name%.*}
"${ASTRA_SIM:-AstraSim_Analytical_Congestion_Unaware}" \\
  --workload-configuration="$files" \\
  --comm-group-configuration="$files.groups.json" \\
  --system-configuration="$files.system.json" \\
  --network-configuration="$files.network.json" \\
  --remote-memory-configuration="$files.memory.json" \\
  "$@"
"""


class Chakra(ExportFormat):
    """Chakra's traces, and a script that runs ASTRA-sim on them."""

    summary: ClassVar[str] = "MLCommons Chakra traces, one a device, and ASTRA-sim's configuration"

    def text(self, plan: Plan, *, approximate: bool) -> str:
        # Imported late: that package lists all formats.
        from hypar_opt.execution.settings.framework import commented

        check_kept(plan, approximate)
        check_splits(plan)
        stages, array = _traces(plan)
        what = f"{printable(plan.network.name)}, batch {plan.batch:,}, on {plan.accelerators:,}"
        step = "a step of inference" if plan.inference else "a training step"
        remarks = [
            f"{what} devices: {step} as MLCommons Chakra traces of schema {stages[0].schema}, by"
            f" hypar-opt {__version__}.",
            "Beside this script: NAME.RANK.et, each device's trace, and ASTRA-sim's configuration,"
            " NAME.groups.json, .system.json, .network.json and .memory.json.",
            *not_counted(plan),
            *(f"Not expressed: {lack}." for lack in _unexpressed(stages, array)),
        ]
        return "#!/bin/sh\n" + commented(remarks) + _SCRIPT.lstrip()

    def files(self, plan: Plan) -> Iterator[tuple[str, bytes]]:
        stages, array = _traces(plan)
        for traces in stages:
            for accelerator in range(traces.interconnect.accelerators):
                yield f".{traces.first + accelerator}.et", traces.of(accelerator)
        dimensions = _dimensions(array)
        communicators = _communicators_of_tied(plan)
        for traces in stages:
            communicators |= traces.communicators
        for name, document in (
            ("groups", communicators),
            ("system", _system(array, dimensions)),
            ("network", _network(dimensions)),
            ("memory", {"memory-type": "NO_MEMORY_EXPANSION"}),
        ):
            yield f".{name}.json", f"{json.dumps(document, indent=2)}\n".encode()


def _traces(plan: Plan) -> tuple[list[Traces], Array]:
    """Return the traces of a plan's step as it runs, by stages, and its array.

    The array of a plan without stages has the plan's levels.
    """
    from hypar_opt.simulator.chakra import Traces, by_micro_batch
    from hypar_opt.simulator.step import program

    if plan.is_staged:
        return Traces.of_stages(_turns(plan), len(_communicators_of_tied(plan))), own_array(plan)
    step, rows = _step_run(plan)
    _, _, array, options = step
    turns = by_micro_batch(program(*step, rows=rows), options.micro_batches)
    return Traces.of_stages([(turns, array.interconnect)]), array


def _step_run(plan: Plan) -> tuple[tuple[Plan, Workload, Array, RunOptions], Rows]:
    """Return what a step is of, whatever the reading of its plan, as it runs."""
    from hypar_opt.search.plan_file import repriced
    from hypar_opt.studies.simulation import step_of

    executed = repriced(plan, reading=plan.problem.run_reading)
    return step_of(executed, own_array(plan), {})


def _turns(plan: Plan) -> Iterator[tuple[list[Turn], Interconnect]]:
    """Yield what the accelerators of each stage do, and how they are connected.

    Finally, the gradients of weights shared by several stages are summed.
    """
    from hypar_opt.instance.staged import StagedPlan
    from hypar_opt.simulator.chakra import TracedEnd, TracedPass, TracedSum
    from hypar_opt.simulator.pipeline import stage_tasks
    from hypar_opt.simulator.pipeline_order import MessageEnd, orders, with_messages

    stages, training, staged = plan.stages, plan.training, StagedPlan.of_plan(plan)
    assert stages is not None
    count, borders = training.micro_batches or 1, stages.borders
    passes_of = orders(training.schedule, stages.parts, count, stages.chunks)
    gradients = any(one.phase is Phase.GRADIENT for one in passes_of[0])
    order = with_messages(passes_of)
    per_stage, layers = plan.accelerators // stages.parts, plan.network.description.layers
    crossing = [Fraction(size, per_stage * count) for size in staged.border_bytes]
    for part, stage in enumerate(plans_of_stages(plan)):
        step, rows = _step_run(stage)
        turns: list[Turn] = []
        ended: dict[StagePass, int] = {}
        passes, once = stage_tasks(*step, rows=rows, gradients=gradients)
        for one in order[part]:
            if not isinstance(one, MessageEnd):
                ended[one] = len(turns)
                turns.append(TracedPass(passes[one.phase, one.chunk], one.micro_batch))
                continue
            backward = one.phase is Phase.BACKWARD
            peer = part + (1 if backward != one.is_sent else -1)
            what = "error" if backward else "output"
            turns.append(
                TracedEnd(
                    f"{layers[borders[one.border].writer].name} {what} H1",
                    peer % stages.parts * per_stage,
                    2 * (one.border + one.micro_batch * len(borders)) + backward,
                    crossing[one.border],
                    ended[one.of_pass] if one.is_sent else None,
                    (one.border, one.phase),
                )
            )
        turns.append(TracedPass(once, count - 1))
        for number, tied in enumerate(staged.tied):
            if part in tied.parts:
                name, size = f"{tied.layer} gradients H1", Fraction(tied.size, per_stage)
                turns.append(TracedSum(name, size, 1 + number * per_stage))
        yield turns, step[2].interconnect


def _communicators_of_tied(plan: Plan) -> dict[str, list[int]]:
    """Return the communicators that sum gradients of weights shared by several stages.

    Each consists of the accelerators at one position in their stages.
    """
    stages = plan.stages
    if stages is None:
        return {}
    per_stage = plan.accelerators // stages.parts
    groups = [
        [part * per_stage + place for part in tied.parts]
        for tied in stages.tied
        for place in range(per_stage)
    ]
    return {str(number): group for number, group in enumerate(groups, 1)}


def _unexpressed(stages: Sequence[Traces], array: Array) -> Iterator[str]:
    """Yield what traces and ASTRA-sim's configuration cannot express."""
    if any(traces.overlaps_exchanges for traces in stages):
        yield "exchanges side by side: ASTRA-sim runs one at a time on a device"
    if any(traces.has_uneven for traces in stages):
        yield "uneven shards: all devices of a group send the mean"
    if array.efficiency_of_overlap < 1:
        yield "overlap_efficiency: what runs side by side keeps its rate"
    if any(accelerator.host for accelerator in array.accelerators_of_parts):
        yield "host: a device waits for no launch"
    if array.topology.kind not in (*_RINGS, "nodes", "htree"):
        kind = array.topology.kind
        yield f"the links of a {kind}: a dimension is a switch with the bandwidth of its bisection"


class _Dimension(NamedTuple):
    """A dimension of ASTRA-sim's network: of accelerators on a switch, or around a ring."""

    topology: str
    accelerators: int
    bytes_per_second: Fraction
    latency: Fraction


def _dimensions(array: Array) -> list[_Dimension]:
    """Return an array's dimensions, innermost first.

    A ring keeps its links. Any other dimension is a switch, with the bandwidth and latency of an
    accelerator's exchanges across it.
    """
    interconnect = array.interconnect
    dimension_of = dict(zip(array.placement, array.dimensions_of(array.placement), strict=True))
    is_ring = array.topology.kind in _RINGS
    link = interconnect.links[0]

    def rates(digit: int) -> tuple[int, Fraction, Fraction]:
        if is_ring:
            return dimension_of[digit], link.bytes_per_second, link.latency
        across = interconnect.bisection(digit)
        seconds_per_byte = 1 / (across.seconds_per_byte * interconnect.accelerators)
        return dimension_of[digit], seconds_per_byte, across.latency

    return [
        _Dimension(
            "Ring" if is_ring else "Switch",
            prod(interconnect.place(digit).parts for digit in digits),
            *rate[1:],
        )
        for rate, digits in groupby(range(interconnect.levels), rates)
    ]


def _network(dimensions: Sequence[_Dimension]) -> dict[str, Any]:
    """Return the file of the analytical network: JSON, which is YAML, too."""
    return {
        "topology": [dimension.topology for dimension in dimensions],
        "npus_count": [dimension.accelerators for dimension in dimensions],
        "bandwidth": [float(one.bytes_per_second / 2**30) for one in dimensions],  # GB/s
        "latency": [float(dimension.latency * 10**9) for dimension in dimensions],  # ns
    }


def _system(array: Array, dimensions: Sequence[_Dimension]) -> dict[str, Any]:
    """Return the system layer's file: compute times come from the traces, messages are unsplit."""
    pairs = array.collective == "pairwise"
    reductions = [
        "halvingDoubling" if pairs and dimension.accelerators.bit_count() == 1 else "ring"
        for dimension in dimensions
    ]
    return {
        "scheduling-policy": "FIFO",
        "endpoint-delay": 1,
        "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
        "all-reduce-implementation": reductions,
        "all-gather-implementation": reductions,
        "reduce-scatter-implementation": reductions,
        "all-to-all-implementation": ["direct"] * len(dimensions),
        "collective-optimization": "baseline",
        "roofline-enabled": 0,
        "replay-only": 0,
    }
