"""What `hypar-opt export --to torch` writes, without PyTorch; `tests/torch` runs such files."""

from __future__ import annotations

import ast
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.execution.export import _program, torch_file
from hypar_opt.plan.plan import Plan, write_plan
from hypar_opt.sharding.layouts import WHOLE
from hypar_opt.workload.network import Network
from tests.cli.shell import command
from tests.execution.small_networks import chain, cnn, enlarged, gpt

CHOICES = ("data", "model", "output")


def solved(network: str | Network, **problem: Any) -> Plan:
    of: dict[str, Any] = {"batch": 64, "levels": 3, "choices": CHOICES, "reading": "executed"}
    return ho.solve(network, **{**of, "constraints": {"even": True}, **problem})


def tables(text: str) -> dict[str, Any]:
    """Return a file's constants, in which calls are their texts."""

    class Call:
        def __init__(self, name: str) -> None:
            self.name = name

        def __call__(self, *given: object, **keys: object) -> str:
            stated = [*map(str, given), *(f"{key}={value}" for key, value in keys.items())]
            return f"{self.name}({', '.join(stated)})"

    styles = ("ColwiseParallel", "RowwiseParallel", "SequenceParallel")
    names = ("Shard", "Replicate", "Partial", "Sharded", "OnShards", *styles)
    scope: dict[str, Any] = {name: Call(name) for name in names}
    kept: list[ast.stmt] = [
        node for node in ast.parse(text).body if isinstance(node, (ast.Assign, ast.For))
    ]
    exec(compile(ast.Module(kept, []), "exported.py", "exec"), scope)
    return {name: value for name, value in scope.items() if name.isupper()}


def llama() -> Plan:
    return solved("llama-7b", levels=4, constraints={"fix": degrees("llama-7b", 4, 4)})


def degrees(name: str, levels: int, tensor: int) -> tuple[str, ...]:
    from hypar_opt.models import find_network
    from hypar_opt.plan.strategies import strategy_pins

    return strategy_pins(find_network(name), (2,) * levels, "megatron", tensor)


PLANS: dict[str, Callable[[], Plan]] = {
    "vgg": lambda: solved("vgg-a"),
    "vgg joint": lambda: solved("vgg-a", search="joint"),
    "two choices": lambda: solved("alexnet", choices=("data", "model")),
    "resnet": lambda: solved("resnet-18", levels=2),
    "gpt": lambda: solved(gpt(tied=True, blocks=2), batch=16, search="joint"),
    "cnn": lambda: solved(cnn(), batch=16, search="joint"),
    "chain": lambda: solved(chain(), batch=16),
    "llama": llama,
    "other parts": lambda: solved("lenet-c", batch=48, levels=2, hierarchy=(2, 3)),
}


@pytest.mark.parametrize("name", PLANS)
def test_each_weight_is_split_as_in_the_plan(name: str) -> None:
    plan = PLANS[name]()
    found = tables(text := torch_file(plan))
    compile(text, "exported.py", "exec")
    mesh = found["MESH"]
    assert prod(mesh.values()) == plan.accelerators
    program = _program(plan)
    network = plan.network.description
    for position, layer in enumerate(network.layers):
        if not layer.axes.weight:
            continue
        places = found["PLACEMENTS"][f"{layer.name}.weight"]
        parts = prod(
            size for own, size in zip(places, mesh.values(), strict=True) if own != "Replicate()"
        )
        layouts = program.weights(position + program.workload.shared)
        planned = plan.hierarchy.parts(
            level for level, layout in enumerate(layouts) if layout != WHOLE
        )
        # What has no rule in DTensor, or is tied to what is split otherwise, is whole.
        assert parts == planned or (parts < planned and f"{layer.name}" in notes(text)), layer.name
        # Each dimension of a weight is divided evenly.
        for dim, size in enumerate(found["SHAPES"][layer.name]):
            split = (
                n for own, n in zip(places, mesh.values(), strict=True) if own == f"Shard({dim})"
            )
            assert size % prod(split) == 0


def notes(text: str) -> str:
    return (
        text.partition("What is not as in the plan:")[2].partition('"""')[0].replace(".*.", ".0.")
    )


def test_degrees_become_dimensions_and_styles_of_pytorch() -> None:
    found = tables(text := torch_file(llama()))
    assert found["MESH"] == {"dp": 4, "tp": 4}
    assert "not as in the plan" not in text
    kinds = {
        name.rpartition(".")[2]: style.partition("(")[0] for name, style in found["PLAN"].items()
    }
    assert {kinds[name] for name in ("query", "key", "value", "gate", "up", "head")} == {
        "ColwiseParallel"
    }
    assert {kinds[name] for name in ("proj", "down")} == {"RowwiseParallel"}
    assert kinds["norm"] == "SequenceParallel"
    assert found["PLACEMENTS"]["decoder.31.up.weight"] == ("Replicate()", "Shard(0)")
    # One loop for all blocks.
    assert text.count("for n in range(0, 32):") == 3
    assert len(found["PLAN"]) == 32 * 9 + 3


def test_sharded_weights_are_fully_sharded_on_dp() -> None:
    of = {"levels": 4, "constraints": {"fix": degrees("llama-7b", 4, 4)}}
    for shard, reshards in (("weights", True), ("gradients", False)):
        text = torch_file(solved("llama-7b", **of, training={"shard": shard, "micro_batches": 4}))
        assert f'fully_shard(unit, mesh=mesh["dp"], reshard_after_forward={reshards})' in text
        assert "reduce_gradients" not in text
        assert "1/4 of each of 4 micro-batches of 16 images" in text
        found = tables(text)
        assert found["PLACEMENTS"]["token.weight"] == ("Shard(0)", "Shard(0)")
        assert [len(unit) for unit in found["UNITS"]] == [9] * 32 + [1] * 3


def test_layers_that_are_sharded_otherwise_are_units_of_their_own() -> None:
    of = {"levels": 4, "constraints": {"fix": degrees("llama-7b", 4, 4)}}
    shard = {"*": "weights", "decoder.3": "gradients", "decoder.5.up": "none", "head": "state"}
    text = torch_file(solved("llama-7b", **of, training={"shard": shard}))
    found = tables(text)
    units = {own[0]: (len(own), frees) for own, frees in found["UNITS"]}
    assert units["decoder.0.norm1"] == (9, True)
    assert units["decoder.3.norm1"] == (9, False)
    assert [units[f"decoder.5.{name}"] for name in ("gate", "down")] == [(1, True)] * 2
    assert "decoder.5.up" not in units
    assert units["head"] == (1, False)
    assert found["WHOLE"] == ["decoder.5.up"]
    assert found["PLACEMENTS"]["decoder.5.up.weight"] == ("Replicate()", "Shard(0)")
    assert found["PLACEMENTS"]["decoder.5.gate.weight"] == ("Shard(0)", "Shard(0)")
    assert "if parameter.grad is not None and not _is_sharded(parameter):" in text
    assert "head: fully_shard splits gradients too" in text


def test_what_dtensor_cannot_say_is_named() -> None:
    fixed = ["decoder.*.qkv=output", "decoder.*.attention=heads", "decoder.*.norm1=channel"]
    network = gpt(tied=False, blocks=2)
    text = torch_file(solved(network, batch=16, levels=1, constraints={"fix": fixed}))
    words = " ".join(notes(text).split())
    assert "decoder.0.attention: DTensor splits query, key and value in one tensor" in words
    assert (
        "decoder.0.norm1: DTensor gathers features that a norm sums over; by batch on tp" in words
    )
    # Its matrix is split all the same.
    assert tables(text)["PLACEMENTS"]["decoder.1.qkv.weight"] == ("Shard(0)",)


def test_what_a_plan_exchanges_over_several_dimensions_at_once_is_named() -> None:
    """DTensor takes one dimension after the other, which moves more."""
    names = [layer.name for layer in gpt(tied=False).layers]
    fixed = [f"{n}@{h}=data" for n in names if "down" not in n for h in ("H1", "H2")]
    fixed = [pin for pin in fixed if pin != "head@H1=data"] + ["*.down=model", "head@H1=output"]
    asked: dict[str, Any] = {"batch": 16, "levels": 2, "constraints": {"fix": fixed}}
    said = "decoder.0.down: DTensor exchanges dimension by dimension what the plan exchanges at"
    for reading in ("executed", "joined"):
        plan = solved(gpt(tied=False), **asked, reading=reading, search="joint")
        assert (said in " ".join(notes(torch_file(plan)).split())) == (reading == "joined")


@pytest.mark.parametrize("training", [{"recompute": "full"}, {"shard": "state"}])
def test_how_a_plan_trains_is_said(training: dict[str, str]) -> None:
    of = {"levels": 2, "constraints": {"fix": ["*=data"]}, "training": training}
    text = torch_file(solved("lenet-c", **of))
    said = {
        "recompute": "recomputation (full) is left to torch.utils.checkpoint",
        "shard": "fully_shard splits gradients too, not the optimizer's state alone",
    }
    assert said[next(iter(training))] in text


def test_names_are_literals() -> None:
    name = 'a"b\\{c}'
    layers = [{"name": name, "kind": "fc", "units": 16}, {"name": "loss", "kind": "output"}]
    described = {"name": 'x"""y', "input": {"features": 16}, "layer": layers}
    network = validate(Network, {"schema": "hypar-opt/network/2", **described})
    text = torch_file(solved(network, levels=1, constraints={"fix": [f"{name}=output"]}))
    assert tables(text)["SHAPES"] == {name: (16, 16)}
    assert str(ast.get_docstring(ast.parse(text))).startswith('x"""y, batch 64')


def test_ranks_are_numbers_of_accelerators_wherever_levels_are_placed() -> None:
    pins = {"fix": degrees("llama-7b", 4, 4)}
    own = solved("llama-7b", levels=4, constraints=pins, array="hmc-htree-16", cost="bytes")
    assert tables(torch_file(own))["MESH"] == {"dp": 4, "tp": 4}
    assert "ORDER" not in torch_file(own)
    # H1 and H2 split the two least significant digits of a number.
    swapped = own.model_copy(update={"placement": (1, 0, 3, 2)})
    found = tables(torch_file(swapped))
    assert (found["DIGITS"], found["ORDER"]) == ((2, 2, 2, 2), (2, 3, 0, 1))


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        ({"inference": True}, "cannot export an inference plan"),
        ({"levels": 0}, "a plan on one accelerator splits nothing"),
        ({"batch": 6, "constraints": {}}, "should be divisible by"),
    ],
)
def test_what_has_no_file_is_refused_in_a_line(
    problem: dict[str, Any], message: str, tmp_path: Path
) -> None:
    write_plan(solved("lenet-c", **problem), tmp_path / "plan.json")
    done = command(["export", "plan.json", "--to", "torch"], tmp_path)
    assert (done.status, done.output, done.errors.count("\n")) == (2, "", 1)
    assert message in done.errors


def test_layers_of_other_kinds_are_named_and_replicated() -> None:
    text = torch_file(solved("mixtral-8x7b", levels=2, cost="bytes"))
    words = " ".join(notes(text).split())
    assert "no module is known for layers of kind 'experts': weights are replicated" in words
    assert not any("experts" in name for name in tables(text)["SHAPES"])


def test_a_transposed_convolution_has_its_inputs_first() -> None:
    """As nn.ConvTranspose2d has them; it is replicated, and the file says so."""
    fix = ("transposed=model",)
    text = torch_file(solved(enlarged(), batch=8, levels=1, constraints={"even": True, "fix": fix}))
    found = tables(text)
    assert found["SHAPES"]["transposed"] == (4, 4, 3, 2)
    assert found["PLAN"]["transposed"].startswith("OnShards(weight=('Replicate()',)")
    assert "a transposed convolution is not split" in text
