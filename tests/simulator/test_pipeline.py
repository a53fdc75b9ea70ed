"""Passes of pipeline stages against the step they are part of, and steps in stages."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.costs.stage_messages import TiedReduction
from hypar_opt.hardware import arrays
from hypar_opt.hardware.array import Array
from hypar_opt.models.gpt import gpt
from hypar_opt.plan.stages import even_stages
from hypar_opt.planning.priced import plan_of_stages
from hypar_opt.simulator.pipeline import StagePasses, pipeline_step
from hypar_opt.simulator.pipeline_result import PipelineResult
from hypar_opt.studies.simulation import simulated_passes, simulated_times
from hypar_opt.workload.network import Network
from hypar_opt.workload.stages import stage_of
from tests.instance.test_staged import SMALL, nodes, problem
from tests.instance.test_staged import solved as solved_stages

GPT = gpt(layers=4, hidden=256, heads=4, tokens=64, vocabulary=512)


def array_of(**keys: Any) -> Array:
    described = arrays.load("a100-8").description()
    described["topology"]["per_node"] = 4
    described["accelerator"] |= keys.pop("accelerator", {})
    return Array.model_validate(described | keys)


def chunks_of(network: Network, *blocks: range) -> Network:
    """Return the network of a device that has some blocks of a GPT, from the first one on."""
    names = [layer.name for layer in network.layers]
    starts = [0, *(names.index(f"decoder.{n}.norm1") for n in range(1, 4)), len(names)]
    return stage_of(network, [range(starts[own.start], starts[own.stop]) for own in blocks])


def solved(network: Network, array: Array, batch: int) -> ho.Plan:
    sizes = array.hierarchy().sizes
    return ho.solve(network, hierarchy=sizes, batch=batch, reading="executed")


@pytest.mark.parametrize(
    ("array", "run"),
    [
        (array_of(), {}),
        (array_of(), {"recompute": "full"}),
        (array_of(overlap="prefetch"), {"shard": "weights", "recompute": "selective"}),
        (array_of(overlap="gradient", bucket="1 MB"), {"shard": "gradients"}),
        (array_of(accelerator={"host": "1 ms"}), {}),
    ],
    ids=["plain", "again", "sharded", "gradients", "host"],
)
def test_passes_of_a_stage_are_its_step(array: Array, run: dict[str, Any]) -> None:
    own = chunks_of(GPT, range(2), range(2, 3))
    plan = solved(own, array, 16)
    times = simulated_times(plan, array, micro_batches=4, **run)
    passes = simulated_passes(plan, array, micro_batches=4, **run)
    micro_batch = max(times.before, times.launching)
    assert passes.micro_batch == pytest.approx(micro_batch)
    assert micro_batch + passes.once == pytest.approx(max(times.last, micro_batch))
    # Two blocks and the embedding take longer than one, in either pass; and backward longer.
    for of_pass in (passes.forward, passes.backward):
        assert of_pass[0] > 1.5 * of_pass[1] > 0
    assert all(b > f for f, b in zip(passes.forward, passes.backward, strict=True))
    assert all(0 < w < b for w, b in zip(passes.gradients, passes.backward, strict=True))
    again = 2 if "recompute" in run else 1
    assert passes.backward[1] > again * passes.forward[1]
    assert passes.message == 0  # to nobody


def test_a_chunk_takes_what_it_takes_by_itself() -> None:
    array = array_of()
    both = solved(chunks_of(GPT, range(1, 2), range(3, 4)), array, 4)
    passes = simulated_passes(both, array)
    for number, block in enumerate((range(1, 2), range(3, 4))):
        alone = simulated_passes(solved(chunks_of(GPT, block), array, 4), array)
        assert passes.forward[number] == pytest.approx(alone.forward[0])
        assert passes.backward[number] == pytest.approx(alone.backward[0])


EQUAL = StagePasses((1.0,), (2.0,), (1.0,), 0.5, 0.1)


@pytest.mark.parametrize(
    ("schedule", "micro_batches", "message", "seconds"),
    [
        # (m + p - 1)(f + b) and the last backward passes of the stages before, of none.
        ("1f1b", 8, 0.0, 11 * 3 + 0.5),
        ("gpipe", 8, 0.0, 11 * 3 + 0.5),
        ("zb-h1", 8, 0.0, 8 * 3 + 3 * (1 + 1 - 1) + 0.5),
        # Each pass but one waits for a message, there and back.
        ("gpipe", 8, 0.1, 11 * 3 + 2 * 10 * 0.1 + 0.5),
    ],
)
def test_equal_stages_take_what_their_formula_says(
    schedule: str, micro_batches: int, message: float, seconds: float
) -> None:
    step = pipeline_step([EQUAL._replace(message=message)] * 4, schedule, micro_batches)
    assert step.seconds == pytest.approx(seconds)
    assert step.bubbles == pytest.approx([1 - (micro_batches * 3 + 0.5) / seconds] * 4)
    assert [len(own) for own in step.run.begun] == [len(own) for own in step.passes]


def test_blocking_messages_of_both_directions_pass_a_border_together() -> None:
    without = pipeline_step([EQUAL._replace(message=0.0)] * 4, "1f1b", 32)
    blocking = pipeline_step([EQUAL] * 4, "1f1b", 32)
    # A stage inside waits for one message a border and micro-batch.
    assert blocking.seconds - without.seconds == pytest.approx(2 * 0.1 * 32 + 3 * 0.1, rel=0.05)


def summed(*parts: int, seconds: int) -> TiedReduction:
    return TiedReduction("token", parts, 1, Fraction(seconds))


def test_gradients_of_shared_weights_are_summed_when_all_that_share_them_are_done() -> None:
    stages = [EQUAL, EQUAL._replace(once=9.0), EQUAL]
    first, longest, last = pipeline_step(stages, "1f1b", 4).run.ended
    assert longest > max(first, last) + 1
    ends = summed(0, 2, seconds=1)
    step = pipeline_step(stages, "1f1b", 4, tied=[ends])
    assert step.tied == ((max(first, last), ends),)
    assert step.seconds == longest
    assert step.busy == (12.5 + 1, 12.0 + 9, 12.5 + 1)
    # A later one of stages that are still in one waits for it.
    every = summed(0, 1, 2, seconds=2), summed(1, 2, seconds=4)
    step = pipeline_step(stages, "1f1b", 4, tied=[ends, *every])
    assert [start for start, _ in step.tied] == [max(first, last), longest, longest + 2]
    assert step.seconds == longest + 2 + 4
    assert step.bubbles == tuple(1 - own / step.seconds for own in step.busy)


def test_a_simulated_step_ends_with_the_gradients_of_tied_weights() -> None:
    """Of both nodes' four accelerators each exchanges a fourth with the one beside it, twice."""
    array = nodes(2, 4)
    stated = problem(array, 2, micro_batches=4)
    for element_bytes, reduce_bytes in ((2, None), (2, 4), (4, None)):
        update = {"element_bytes": element_bytes}
        trained = stated.training.model_copy(update={"reduce_bytes": reduce_bytes})
        own = stated.model_copy(update={**update, "training": trained})
        plan = plan_of_stages(solved_stages(SMALL, own, even_stages(SMALL, 2)))
        step = ho.simulate(plan, trace=True)
        assert isinstance(step, PipelineResult)
        link = array.stage_link(0, 2)
        size = 64 * 32 * (reduce_bytes or element_bytes)
        seconds = float(size * link.seconds_per_byte + 2 * link.latency)
        assert [own.tied for own in step.stages] == pytest.approx([seconds] * 2)
        assert step.trace is not None
        ends = [track.spans[-1] for track in step.trace.accelerators]
        assert [span.name for span in ends] == ["token H1 gradient"] * 2
        for span in ends:
            assert span.start_us + span.duration_us == pytest.approx(1e6 * step.seconds, abs=1e-3)
            assert span.duration_us == pytest.approx(1e6 * seconds, abs=1e-3)
        assert step.document()["stages"][0]["tied"] == step.stages[0].tied
