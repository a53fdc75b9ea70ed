"""Micro-batches, recomputation and sharding of a simulated step; and the host that launches it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.errors import HyparError
from hypar_opt.simulator.result import StepResult
from tests.simulator.plans import IN_LOCKSTEP, KERNELS, UNEVEN, array, plan_on, plans, run
from tests.slow import examples

NODES = IN_LOCKSTEP[5]
SMALL = ho.gpt(layers=2, hidden=16, heads=4, tokens=8, vocabulary=40)


def gpt_on(batch: int, **accelerator: Any) -> ho.Plan:
    return plan_on(
        SMALL, array(NODES, **KERNELS | accelerator), batch=batch, element_bytes=2, cost="bytes"
    )


def gradients(step: StepResult) -> float:
    return sum(layer.communication for layer in step.layers if layer.phase == "gradient")


def moved(plan: ho.Plan, **options: Any) -> float:
    return sum(level.bytes for level in run(plan, **options).levels)


@examples(10)
@given(
    plans(IN_LOCKSTEP + UNEVEN, readings=["executed"]),
    st.sampled_from(["none", "gradient", "branches"]),
    st.sampled_from(["none", "selective", "full"]),
    st.sampled_from(["none", "state", "gradients", "weights"]),
)
def test_each_further_micro_batch_takes_as_long_and_moves_as_much(
    plan: ho.Plan, overlap: str, recompute: str, shard: str
) -> None:
    options = {"overlap": overlap, "recompute": recompute, "shard": shard}
    one, two, four = (
        run(plan.model_copy(update={"batch": count * plan.batch}), micro_batches=count, **options)
        for count in (1, 2, 4)
    )
    assert four.seconds - two.seconds == pytest.approx(2 * (two.seconds - one.seconds))
    assert one.seconds <= two.seconds * (1 + 1e-12)
    for step in (one, two, four):
        assert step.lower_bound <= step.seconds * (1 + 1e-9)
        assert sum(level.bytes for level in step.levels) >= 0
        if overlap == "none":
            spent = sum(layer.compute + layer.communication for layer in step.layers)
            assert spent == pytest.approx(step.seconds)
    each = [sum(level.bytes for level in step.levels) for step in (one, two, four)]
    assert each[2] - each[1] == pytest.approx(2 * (each[1] - each[0]))


def test_gradients_accumulate_and_are_reduced_once() -> None:
    plan = gpt_on(32)
    once = gradients(run(plan))
    assert once > 0
    assert gradients(run(plan, micro_batches=4)) == pytest.approx(once)
    # In data parallelism nothing else moves, so that micro-batches move as much as one batch.
    assert moved(plan, micro_batches=4) == pytest.approx(moved(plan))


def test_sharding_moves_what_zero_says() -> None:
    """ZeRO, section 7: 2 W for stages 0 to 2, 3 W with weights; per micro-batch where it must."""
    plan = gpt_on(32)
    reduced = moved(plan)
    assert moved(plan, shard="state") == pytest.approx(reduced)
    assert moved(plan, shard="gradients") == pytest.approx(reduced)
    assert moved(plan, shard="gradients", micro_batches=4) == pytest.approx(5 / 2 * reduced)
    tied = 2 * sum(own for own in (40 * 16,))  # gathered by the embedding and by the head
    weights = sum(ho.Workload.of_network(SMALL, 1).stored)
    each = 3 / 2 + tied / weights / 2
    assert moved(plan, shard="weights") == pytest.approx(each * reduced)
    assert moved(plan, shard="weights", micro_batches=4) == pytest.approx(4 * each * reduced)


def test_sharded_parts_update_a_share_of_the_weights() -> None:
    plan = gpt_on(32, update="1 MB")
    whole = run(plan).compute - run(gpt_on(32, update="1 B")).compute
    shared = run(plan, shard="state").compute - run(gpt_on(32, update="1 B"), shard="state").compute
    assert whole == pytest.approx(8 * shared)


def test_full_recomputation_runs_the_forward_pass_of_blocks_again() -> None:
    plan = gpt_on(32)
    inside = [name for name in plan.layers if name.startswith("decoder.")]

    def forward(**options: str) -> dict[str, float]:
        layers = run(plan, **options).layers
        return {own.layer: own.compute for own in layers if own.phase == "forward"}

    kept, again, selected = forward(), forward(recompute="full"), forward(recompute="selective")
    for name in plan.layers:
        assert again[name] == pytest.approx((1 + (name in inside)) * kept[name])
        attends = name.endswith("attention")
        assert selected[name] == pytest.approx((1 + attends) * kept[name])


def test_a_fused_attention_has_nothing_to_select() -> None:
    plan = gpt_on(32, attention="fused")
    assert run(plan, recompute="selective").seconds == pytest.approx(run(plan).seconds)


def test_a_step_is_never_faster_than_the_host_launches_it() -> None:
    quick, slow = gpt_on(32), gpt_on(32, host="1000 s")
    device = run(quick).seconds
    assert run(gpt_on(32, host="1 us")).seconds == pytest.approx(device)
    # A block has 13 forward, 13 backward, 7 of gradients: attention's are 4, 4 and 3. Both tables
    # have 4, the sum of their rows 2, the last norm 2, the head 3 and the loss 6.
    kernels = 2 * (13 + 13 + 7) + 4 + 2 + 2 + 3 + 6
    step = run(slow, micro_batches=2)
    assert step.seconds == pytest.approx(2 * kernels * 1000)
    assert step.seconds == pytest.approx(
        sum(layer.compute + layer.communication for layer in step.layers)
    )
    again = run(slow, recompute="full").seconds
    assert again == pytest.approx((kernels + 2 * 13) * 1000)


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("micro_batches", 3, "micro_batches should divide the batch of 32, got 3"),
        ("micro_batches", 0, "micro_batches should be 1 or more, got 0"),
        ("recompute", "all", "unknown recompute 'all': known: none, selective, op, full"),
        ("shard", "x", "unknown shard 'x': known: none, state, gradients, weights"),
        ("shard", "weights@2", "shard should be none, state, gradients or weights, or that from"),
        ("shard", "weights@H2-H9", "shard should name levels down to H3, the last, got 'weights@H"),
    ],
)
def test_a_wrong_option_is_refused_by_name(option: str, value: object, said: str) -> None:
    with pytest.raises(HyparError) as refused:
        run(gpt_on(32), **{option: value})
    assert said in str(refused.value)
