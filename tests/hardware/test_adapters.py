"""The network adapters of a node, which its accelerators share."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.errors import InputError
from hypar_opt.hardware.array import COLLECTIVES
from hypar_opt.hardware.arrays import load
from hypar_opt.studies.simulation import per_second
from tests.cli.shell import command
from tests.slow import slow_after

FABRIC = 160 * 10**9
"""Bytes per second of a node of the preset, in one direction."""


def nodes_of(per_node: int, adapters: int | None, **keys: Any) -> ho.Array:
    """Return four nodes of A100."""
    table = load("a100-4x8").description()
    topology = dict(table["topology"]) | {"per_node": per_node}
    topology |= {} if adapters is None else {"adapters": adapters}
    return validate(ho.Array, {**table, "topology": topology, **keys})


@pytest.mark.parametrize("per_node", [2, 4, 8])
@pytest.mark.parametrize("adapters", [1, 2, 4, 8])
def test_a_rank_gets_the_less_of_its_adapter_and_its_share(per_node: int, adapters: int) -> None:
    """Between two halves of the nodes all ranks send: each gets min(1/N, 1/ranks) of the fabric."""
    array = nodes_of(per_node, adapters)
    bisection = array.interconnect.bisection(array.placement[0])
    rank = FABRIC * min(Fraction(1, adapters), Fraction(1, per_node))
    assert 1 / bisection.seconds_per_byte == 4 * per_node * rank
    # Alone, a message has an adapter; inside a node it needs none.
    capacities = array.interconnect.capacities
    alone = array.interconnect.route(0, per_node)
    assert min(capacities[channel] for channel in alone.channels) == Fraction(FABRIC, adapters)
    # What stays in nodes takes what it takes without adapters, latencies included.
    plain = nodes_of(per_node, None).interconnect
    for digit in range(per_node.bit_length() - 1):
        assert array.interconnect.bisection(digit) == plain.bisection(digit)
    inside = array.interconnect.route(0, 1)
    assert (inside.hops, alone.hops) == (2, 4)
    assert min(capacities[channel] for channel in inside.channels) == 230 * 10**9


@pytest.mark.parametrize("adapters", [1, 3, 8, 16])
def test_a_route_leaves_by_the_senders_adapter_and_is_shortest(adapters: int) -> None:
    array, shared = nodes_of(8, adapters), nodes_of(8, None)
    links = array.interconnect.links
    for sender, receiver in ((0, 8), (5, 30), (7, 9), (20, 3), (9, 12)):
        route = array.interconnect.route(sender, receiver)
        crossed = {
            links[array.interconnect.channel_link[channel]].name for channel in route.channels
        }
        rails = {end for name in crossed for end in name.split("-") if end.startswith("rail")}
        apart = sender // 8 != receiver // 8
        assert rails == ({f"rail{sender % 8 * adapters // 8}"} if apart else set())
        assert set(route.shares) == {1}
        plain = shared.interconnect.route(sender, receiver)
        assert (route.hops, route.latency) == (plain.hops, plain.latency)
    numbers = np.arange(32)
    loads = array.interconnect.paths.traffic(numbers, (numbers + 8) % 32).loads(
        len(array.interconnect.channel_link)
    )
    assert loads.sum() == 32 * 4


@pytest.mark.parametrize("collective", slow_after(2, COLLECTIVES))
def test_a_step_takes_what_its_plan_is_charged(collective: str) -> None:
    seconds = []
    for adapters in (None, 4, 8):
        array = nodes_of(2, adapters, collective=collective)
        plan = ho.solve("lenet-c", array=array, batch=64, cost="time", bucket=0, overlap="none")
        taken = plan.cost.total / per_second(plan)
        assert ho.simulate(plan).closed_form == pytest.approx(taken, rel=1e-9)
        data = ho.solve("lenet-c", array=array, batch=64, cost="time", solver="data")
        seconds.append(ho.simulate(data).seconds)
    # Two ranks a node reach two adapters of four or eight.
    assert seconds[0] < seconds[1] < seconds[2]


def test_where_all_ranks_of_a_node_send_adapters_change_nothing() -> None:
    steps = [ho.simulate("gpt2", nodes_of(8, n), batch=64, solver="data") for n in (None, 4, 8)]
    assert len({step.seconds for step in steps}) == 1


def test_the_key_is_whole_and_of_nodes(tmp_path: Any) -> None:
    with pytest.raises(InputError, match="adapters: should be"):
        nodes_of(8, 0)
    table = load("hmc-torus-4").description()
    with pytest.raises(InputError, match="adapters"):
        validate(ho.Array, {**table, "topology": {**table["topology"], "adapters": 2}})
    done = command(["show", "a100-4x8", "--toml"], tmp_path)
    text = done.output.replace("per_node = 8", "per_node = 8\nadapters = 4")
    (tmp_path / "mine.toml").write_text(text)
    shown = command(["show", "mine.toml"], tmp_path)
    assert shown.status == 0
    assert "16 ×  switches                  40 GB/s" in shown.output
