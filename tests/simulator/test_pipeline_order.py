"""Schedules of pipeline stages: against their formulas on equal stages, and bounds on others."""

from __future__ import annotations

import random
from itertools import product

import pytest

from hypar_opt.errors import HyparError
from hypar_opt.sharding.passes import Phase
from hypar_opt.simulator.pipeline_order import (
    MessageEnd,
    in_flight,
    orders,
    walked,
    with_messages,
)
from hypar_opt.workload.parallelism import SCHEDULES


def times(
    schedule: str, forward: list[float], backward: list[float], chunks: int = 1
) -> dict[Phase, list[list[float]]]:
    """Return the seconds of equal chunks; half of a backward pass is of the weights in ZB-H1."""
    share = 0.5 if schedule == "zb-h1" else 1.0
    return {
        Phase.FORWARD: [[seconds / chunks] * chunks for seconds in forward],
        Phase.BACKWARD: [[seconds * share / chunks] * chunks for seconds in backward],
        Phase.GRADIENT: [[seconds / 2] for seconds in backward],
    }


def flights(schedule: str, p: int, m: int, v: int = 1) -> list[int]:
    return [sum(in_flight(order, [1.0] * v)) for order in orders(schedule, p, m, v)]


CASES = [
    (schedule, p, m, v)
    for schedule, p, m, v in product(SCHEDULES, (1, 2, 3, 4, 8), (1, 2, 3, 4, 8, 16), (1, 2, 3, 4))
    if v == 1 or (schedule == "1f1b" and m % p == 0)
]


def test_both_ends_of_messages_may_wait_for_each_other() -> None:
    """A device goes on once the other is at the other end: all of them come to their end."""
    for schedule, p, m, v in CASES:
        passes = orders(schedule, p, m, v)
        turns = with_messages(passes)
        messages = [[one for one in turn if isinstance(one, MessageEnd)][::-1] for turn in turns]
        for turn, order in zip(turns, passes, strict=True):
            assert [one for one in turn if not isinstance(one, MessageEnd)] == [*order]
            for n, one in enumerate(turn):
                if isinstance(one, MessageEnd):
                    assert one.is_sent == (turn.index(one.of_pass) < n)
        assert sum(map(len, messages)) == 2 * 2 * m * (p * v - 1) * (p > 1)
        while any(messages):
            last = {turn[-1]: device for device, turn in enumerate(messages) if turn}
            met = [
                (device, last[other])
                for one, device in last.items()
                for part in [one.border + (one.phase is Phase.FORWARD)]
                for other in [one._replace(is_sent=False, chunk=part // p)]
                if one.is_sent and last.get(other) == part % p
            ]
            assert met, (schedule, p, m, v)
            for ends in met:
                for device in ends:
                    messages[device].pop()


@pytest.mark.parametrize(("schedule", "p", "m", "v"), CASES)
def test_equal_stages_take_and_hold_what_the_formulas_of_their_schedule_say(
    schedule: str, p: int, m: int, v: int
) -> None:
    f, b, w = 1.0, 1.0, 1.0
    ran = walked(orders(schedule, p, m, v), times(schedule, [f] * p, [b + w] * p, v))
    if schedule == "zb-h1":
        if m < 2 * p:  # no formula
            assert ran.seconds <= (m + p - 1) * (f + b + w) + 1e-9
            return
        assert ran.seconds == pytest.approx(m * (f + b + w) + (p - 1) * (f + b - w))
        assert flights(schedule, p, m) == [min(m, p)] * p
        return
    assert ran.seconds == pytest.approx(m * (f + b + w) + (p - 1) * (f + b + w) / v)
    in_flight_at_peak = {
        "gpipe": [m] * p,
        "1f1b": [min(m, p - i) for i in range(p)],
        "interleaved": [min(m * v, 2 * (p - i - 1) + (v - 1) * p + 1) for i in range(p)],
    }
    assert flights(schedule, p, m, v) == in_flight_at_peak["interleaved" if v > 1 else schedule]


@pytest.mark.parametrize(("schedule", "p", "m", "v"), CASES)
def test_every_pass_runs_once_and_after_the_one_whose_result_it_reads(
    schedule: str, p: int, m: int, v: int
) -> None:
    passes = orders(schedule, p, m, v)
    phases = 3 if schedule == "zb-h1" else 2
    for order in passes:
        assert len(set(order)) == len(order) == phases * m * v
    ran = walked(passes, times(schedule, [1.0] * p, [2.0] * p, v))
    for order, begun in zip(passes, ran.begun, strict=True):
        assert [*begun] == sorted(begun)
        at = dict(zip(order, begun, strict=True))
        for one, start in at.items():
            if one.phase is not Phase.FORWARD:
                assert start > at[one._replace(phase=Phase.FORWARD)]


def test_four_stages_of_eight_micro_batches() -> None:
    """One forward second and two backward; half of these of the weights in ZB-H1."""

    def seconds(schedule: str, m: int = 8, v: int = 1) -> float:
        return walked(orders(schedule, 4, m, v), times(schedule, [1] * 4, [2] * 4, v)).seconds

    assert (seconds("1f1b"), flights("1f1b", 4, 8)) == (33, [4, 3, 2, 1])
    assert (seconds("gpipe"), flights("gpipe", 4, 8)) == (33, [8, 8, 8, 8])
    assert (seconds("1f1b", v=2), flights("1f1b", 4, 8, 2)) == (28.5, [11, 9, 7, 5])
    assert (seconds("zb-h1"), flights("zb-h1", 4, 8)) == (27, [4, 4, 4, 4])
    assert (seconds("1f1b", 4, 2), flights("1f1b", 4, 4, 2)) == (16.5, [8, 8, 7, 5])


def test_stages_that_differ() -> None:
    def seconds(schedule: str, forward: list[float], backward: list[float], m: int) -> float:
        passes = orders(schedule, len(forward), m)
        return walked(passes, times(schedule, forward, backward)).seconds

    assert seconds("1f1b", [1, 2, 1], [2, 4, 2], 4) == 28
    assert seconds("gpipe", [1, 2, 1], [2, 4, 2], 4) == 30
    assert seconds("1f1b", [3, 1, 2], [6, 2, 4], 6) == 57
    assert seconds("gpipe", [3, 1, 2], [6, 2, 4], 6) == 63
    assert seconds("zb-h1", [3, 1, 2], [6, 2, 4], 6) == 54


def test_messages_take_time_and_devices_may_wait_for_them() -> None:
    passes, of = orders("1f1b", 4, 8), times("1f1b", [1] * 4, [2] * 4)
    messages = [0.1] * 4
    assert walked(passes, of, messages=messages).seconds == pytest.approx(36.8)
    assert walked(passes, of, once=[0, 3, 1, 0]).seconds == pytest.approx(34)


def test_one_forward_one_backward_of_any_stages_keeps_to_its_bounds() -> None:
    """STAGES 1: from below by the longest stage with what is before and behind it."""
    chosen = random.Random(1)
    for _ in range(300):
        p, m = chosen.choice([1, 2, 3, 4, 8]), chosen.choice([1, 2, 4, 9, 16])
        forward = [chosen.uniform(0.2, 2) for _ in range(p)]
        backward = [seconds * chosen.uniform(1, 3) for seconds in forward]
        took = walked(orders("1f1b", p, m), times("1f1b", forward, backward)).seconds
        t = [seconds + back for seconds, back in zip(forward, backward, strict=True)]
        least = max(
            sum(t[:i]) + m * t[i] + max(0.0, sum(t[i + 1 :]) - min(m - 1, p - 1 - i) * forward[i])
            for i in range(p)
        )
        assert least - 1e-9 <= took <= sum(t) + (m - 1) * max(t) + 1e-9


def test_chunks_that_no_schedule_has_are_refused() -> None:
    with pytest.raises(HyparError, match="has one chunk a device, got 2"):
        orders("gpipe", 4, 8, 2)
    with pytest.raises(HyparError, match="micro-batches in multiples of 4, got 6"):
        orders("1f1b", 4, 6, 2)
