"""Kinds of layers as data: what is derived from axes is what the tables say."""

from __future__ import annotations

import json
import random
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.level_tables import level_table
from hypar_opt.execution.jax import values
from hypar_opt.execution.virtual import arithmetic
from hypar_opt.sharding.layouts import BATCH, CHANNEL, PARTIAL, WHOLE
from hypar_opt.sharding.passes import TRAINING, Phase
from hypar_opt.studies.random_networks import random_graph
from hypar_opt.workload.operators import OPERATORS
from hypar_opt.workload.operators.axes import ADDENDS, DATA_CHOICE, OUTPUT, REPLICATED, Contraction
from hypar_opt.workload.parallelism import CHOICES, CHOICES_WITH_QUERIES, PAPERS_CHOICES
from hypar_opt.workload.tensors import Workload, workload_of
from tests.commands import forked
from tests.strategies.networks import networks
from tests.strategies.plans import READINGS
from tests.test_docs import ROOT, install_page

FACTORS: dict[str, dict[str, Any]] = {
    "text": {"dW": 8, "F": 8, "E": 8, "dp-mp": 1, "mp-mp": 2, "mp-dp": 2, "first": False},
    "tables": {"dW": 4, "F": 4, "E": 4, "dp-mp": 1, "mp-mp": 2, "mp-dp": 2, "first": True},
    "figures": {"dW": 8, "F": 8, "E": None, "dp-mp": 2, "mp-mp": 0, "mp-dp": 0},
    "executed": {"dW": 8, "F": 4, "E": None, "dp-mp": 2, "mp-mp": 0, "mp-dp": 0, "gathered": 4},
}
"""Tables 1 and 2 and AccPar's Type III as they were written before the axes: quarters of an
element, both directions where the reading counts both."""


def written_out(
    workload: Workload, reading: str, choices: int, counts: np.ndarray[Any, Any], phase: Phase
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return a level's charges in bytes, as W * 2^d, F * 2^m and A * 2^o say them."""
    row = FACTORS[reading]
    forward, backward, gradient = (phase is each for each in Phase)
    d, m, o = (*counts.astype(object), 0 * counts[0].astype(object))[:3]
    outputs = workload.outputs if reading == "executed" else workload.pooled
    weights, reduced, inputs = (
        np.array(sizes, object) for sizes in (workload.weights, outputs, workload.inputs)
    )
    node = np.zeros((len(workload.layers), choices), object)
    node[:, 0] = row["dW"] * gradient * weights << d
    node[:, 1] = (row["F"] * forward + row.get("gathered", 0) * backward) * reduced << m
    edge = np.zeros((len(workload.ends), choices, choices), object)
    boundary = np.array(workload.boundary_sizes, object)
    if choices == 3:
        node[:, 2] = row["E"] * backward * inputs << o
        if not row["first"]:
            node[0, 2] = 0
        boundary = boundary << o[workload.ends[:, 1]]
        edge[:, 0, 2] = edge[:, 2, 2] = 2 * forward * boundary
        edge[:, 2, 0] = (forward + backward) * boundary
    edge[:, 0, 1] = row["dp-mp"] * (forward + backward) * boundary
    if reading == "executed":
        # An image and a channel in the same half stay.
        for number, (images, channels, *extent) in enumerate(b.shape for b in workload.boundaries):
            moved = images // 2 * -(-channels // 2) + -(-images // 2) * (channels // 2)
            edge[number, 0, 1] = 4 * (forward + backward) * moved * prod(extent)
    edge[:, 1, 1] = row["mp-mp"] * backward * boundary
    edge[:, 1, 0] = row["mp-dp"] * backward * boundary
    return node, edge


@given(networks(longest=5), st.integers(1, 9), st.sampled_from(sorted(READINGS)), st.data())
def test_every_entry_is_what_tables_1_and_2_and_type_iii_say(
    network: ho.Network, batch: int, reading: str, data: st.DataObject
) -> None:
    choices = data.draw(st.sampled_from([2, 3] if FACTORS[reading]["E"] else [2]))
    workload = workload_of(network, batch, CHOICES[:choices])
    levels, layers = data.draw(st.integers(0, 9)), len(workload.layers)
    above = [[data.draw(st.integers(0, choices - 1)) for _ in range(layers)] for _ in range(levels)]
    made = np.array(above, int).reshape(levels, layers)
    counts = (made == np.arange(choices)[:, None, None]).sum(axis=1)
    for phase in TRAINING:
        cost = CommunicationCost(reading, phases=(phase,))
        node, edge = written_out(workload, reading, choices, counts, phase)
        table = level_table(cost, workload, above)
        assert table.node.tolist() == node.tolist()
        assert table.edge.tolist() == edge.tolist()


def test_layouts_follow_from_the_axes() -> None:
    """Data reads and writes by batch; model by channel and partial; output whole and by channel."""
    layouts = workload_of(ho.load("lenet-c"), 4, CHOICES).layouts
    names = np.array(layouts.names)
    assert names[layouts.inputs[0]].T.tolist() == [[BATCH, CHANNEL, WHOLE]] * 4
    assert names[layouts.output].T.tolist() == [[BATCH, PARTIAL, CHANNEL]] * 4


@pytest.mark.parametrize("seed", range(40))
def test_parts_take_every_channel_that_a_layer_writes_once(seed: int) -> None:
    network = random_graph(random.Random(seed))
    for layer, maps in zip(network.layers, network.maps(), strict=True):
        taken = Counter[str]()
        for parts in layer.parts(maps):
            for run in parts.runs:
                count = parts.count * run.scale * run.repeats
                assert run.offset + count <= [*maps.inputs, maps.output][run.tensor].channels
                taken[parts.axis] += count * (run.tensor == OUTPUT)
        assert {*taken.values()} <= {0, maps.output.channels}


@pytest.mark.parametrize("kind", OPERATORS.built_in_names())
def test_a_kind_of_the_package_has_an_arithmetic_and_a_program_in_jax(kind: str) -> None:
    assert kind in arithmetic.KINDS
    assert kind in values.KINDS


@pytest.mark.parametrize("kind", OPERATORS)
def test_a_kind_halves_axes_that_it_has_data_first(kind: str) -> None:
    operator = OPERATORS[kind]
    contraction = operator.contraction
    tensors = (*contraction.inputs.values(), contraction.weight, contraction.output)
    axes = {axis for tensor in tensors for axis in tensor}
    assert operator.choices["data"] == DATA_CHOICE
    assert list(operator.choices) == [
        word for word in CHOICES_WITH_QUERIES if word in operator.choices
    ]
    assert {*PAPERS_CHOICES} <= {*operator.choices}
    halved = [own.axis for own in operator.choices.values() if own not in (REPLICATED, ADDENDS)]
    assert set(halved) <= axes
    assert len(set(halved)) == len(halved)  # or --even would count an axis's parts wrong
    assert operator.trick in set(operator.choices)


@pytest.mark.parametrize("text", ["x[b,i] w[i,o] -> y[b,o]", "x[b,i] * w[i,o]", ""])
def test_what_is_no_contraction_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="should be as"):
        Contraction.parse(text)


SEPARABLE = """
name = "separable"
input = { channels = 8, height = 8, width = 8 }
layer = [
  { name = "dw", kind = "depthwise", kernel = 3, padding = 1 },
  { name = "pw", kind = "conv", filters = 16, kernel = 1 },
  { name = "dw2", kind = "depthwise", kernel = 3 },
  { name = "fc", kind = "fc", units = 10 },
]
"""


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """The kind of layer that CONTRIBUTING adds by entry point; and a network of it."""
    install_page(ROOT / "CONTRIBUTING.md", tmp_path)
    (tmp_path / "net.toml").write_text(SEPARABLE)
    return tmp_path


def hypar(folder: Path, *args: str, status: int = 0) -> str:
    done = forked(list(args), folder)
    assert done.status == status, done.errors
    return done.errors if status else done.output


@pytest.mark.parametrize(
    "asked",
    ["--reading text", "--reading figures", "--reading executed", "--choices data,model,output"],
)
def test_a_kind_from_outside_is_solved_by_all_solvers_alike(asked: str, elsewhere: Path) -> None:
    """With two choices, and with three, of which the kind has only two."""
    solvers = ("--solvers", "dp,ilp,cpsat,brute")
    sizes = (*("net.toml", "--batch", "4", "--levels", "2"), *asked.split())
    rows = json.loads(hypar(elsewhere, "verify", *sizes, *solvers, "--json"))["rows"]
    assert {(row["search"], row["verdict"]) for row in rows} == {
        ("levelwise", "agrees"),
        ("joint", "agrees"),
    }
    plan = json.loads(hypar(elsewhere, "solve", *sizes, "--search", "joint", "--json"))
    assert {word for row in plan["parallelism"] for word in row[::2]} <= {"data", "channel"}


def test_a_kind_from_outside_is_proved_simulated_pinned_and_reported(elsewhere: Path) -> None:
    asked = ["net.toml", "--batch", "4", "--array", "hmc-htree-4", "--reading", "figures"]
    plan = ["--output", "plan.json", "--certificate", "proof.json"]
    shown = hypar(elsewhere, "solve", *asked, "--search", "joint", "--fix", "dw*=channel", *plan)
    assert "model parallelism (channel)" in shown  # one symbol for both: each is a second choice
    assert "proved" in hypar(elsewhere, "verify", "plan.json", "--certificate", "proof.json")
    step = json.loads(hypar(elsewhere, "simulate", "plan.json", "--json"))
    moved = json.loads((elsewhere / "plan.json").read_text())["cost"]["total"]
    assert sum(level["bytes"] for level in step["levels"]) == pytest.approx(moved)
    hypar(elsewhere, "explore", "plan.json", "--free", "dw")
    hypar(elsewhere, "report", "plan.json", "-o", "page.html")
    page = (elsewhere / "page.html").read_text()
    assert "model parallelism (channel)" in page
    assert "H1 dw: channel" in page


def test_a_pin_is_in_the_words_of_the_layers_kind(elsewhere: Path) -> None:
    asked = ["net.toml", "--batch", "4", "--levels", "2", "--choices", "data,model,output"]
    wrong = hypar(elsewhere, "solve", *asked, "--fix", "dw=output", status=2)
    assert "output is not among the choices of dw (depthwise): data, channel" in wrong
    assert wrong.count("\n") == 1


def test_a_depthwise_layer_by_channel_moves_nothing_of_its_own(elsewhere: Path) -> None:
    asked = ["net.toml", "--batch", "4", "--levels", "1", "--reading", "figures", "--json"]
    whole = json.loads(hypar(elsewhere, "solve", *asked, "--fix", "*w*=data", "--fix", "fc=data"))
    pinned = ["--fix", "dw=channel", "--fix", "pw=data", "--fix", "dw2=data", "--fix", "fc=data"]
    split = json.loads(hypar(elsewhere, "solve", *asked, *pinned))
    # The gradient of 3 x 3 x 8 weights in data parallelism, both ways; an all-to-all of the map
    # of 4 x 8 x 8 x 8 elements behind it, both ways in both passes.
    saved, converted = 2 * 4 * 3 * 3 * 8, 4 * 4 * 8 * 8 * 8
    assert split["cost"]["total"] - whole["cost"]["total"] == converted - saved
