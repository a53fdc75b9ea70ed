"""Plans in stages as files for PyTorch, without PyTorch; `tests/torch` runs such files."""

from __future__ import annotations

from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.execution.export import jax_module, jax_shardings, torch_file
from hypar_opt.models import find_network
from hypar_opt.models.gpt import gpt
from hypar_opt.plan.plan import Plan
from hypar_opt.plan.stages import Stages, even_stages
from hypar_opt.planning.priced import plan_of_stages
from hypar_opt.workload.network import Network
from hypar_opt.workload.stages import cuts
from tests.cli.shell import command
from tests.execution.test_torch_file import tables
from tests.instance.test_staged import nodes, problem, solved

GPT = gpt(layers=8, hidden=32, heads=4, tokens=8, vocabulary=64)


def planned(network: Network, stages: Stages, inside: int = 2, **fields: Any) -> Plan:
    stated = problem(nodes(stages.parts, inside), stages.parts, **fields)
    return plan_of_stages(solved(network, stated, stages))


@pytest.mark.parametrize(("parts", "chunks"), [(2, 1), (4, 1), (2, 2), (2, 4)])
def test_modules_of_chunks_have_the_layers_of_their_stages(parts: int, chunks: int) -> None:
    stages = even_stages(GPT, parts, chunks)
    plan = planned(GPT, stages)
    found = tables(torch_file(plan))
    pipeline = found["PIPELINE"]
    assert found["MESH"]["pp"] == pipeline["degree"] == parts
    assert prod(found["MESH"].values()) == plan.accelerators
    assert pipeline["schedule"] == ("1F1B" if chunks == 1 else "Interleaved1F1B")
    assert (pipeline["micro_batches"], pipeline["chunks"]) == (4, chunks)
    listed = [tuple(f"{own}." for own in modules) for modules in pipeline["modules"]]
    inside = [{GPT.layers[n].name for n in own} for own in stages.layers]
    for layer, (modules, names) in product(found["SHAPES"], zip(listed, inside, strict=True)):
        assert f"{layer}.".startswith(modules) == (layer in names)
    begins = [modules[0] for modules in pipeline["modules"][1:]]
    assert pipeline["split_spec"] == dict.fromkeys(begins, "BEGINNING")
    assert found["TIED"] == [{0: "token", parts - 1: "head"}]


def test_what_is_sent_has_the_layouts_of_the_plan() -> None:
    """By token, where blocks are split by token, and whole where tensor parallelism gathers."""
    stages = even_stages(GPT, 2)
    placed = {"batch": "Shard(0)", "token": "Shard(1)", "channel": "Shard(-1)"}
    laid_out = set()
    for pins in (["*=tokens"], ["*@H2=data", "*@H3=tokens"], ["*@H2=tokens", "*@H3=data"], []):
        plan = planned(
            GPT,
            stages,
            4,
            constraints={"fix": pins},
            choices=("data", "model", "output", "tokens", "first", "second"),
        )
        (border,) = stages.borders
        assert plan.layouts is not None
        stored = plan.layouts[plan.layers[border.writer]][1:]
        found = tables(torch_file(plan))
        inside = {name: size for name, size in found["MESH"].items() if name not in ("pp", "dp")}
        split = stored[1:] if "dp" in found["MESH"] and stored[0] == "batch" else stored
        split = split[:1] if len(inside) == 1 else split
        if inside:
            assert found["SENT"] == [tuple(placed.get(own, "Replicate()") for own in split)]
        laid_out |= {*split} if inside else set()
    assert "token" in laid_out


def test_a_chain_of_layers_is_cut_between_any_of_them() -> None:
    network = find_network("lenet-c")
    names = [layer.name for layer in network.layers if layer.axes.weight]
    for end in cuts(network)[:-1]:
        found = tables(torch_file(planned(network, Stages(network, 2, (end, len(network.layers))))))
        assert found["PIPELINE"]["modules"] == [names[:end], names[end:]]


@pytest.mark.parametrize(
    ("end", "micro_batches", "said"),
    [
        ("decoder.3.norm2", 4, "begins with layer 'decoder.3.norm2', inside a block"),
        ("decoder.4.norm1", 1, "takes 2 micro-batches or more for 2 stages, got 1; gpipe takes"),
        ("loss", 4, "the stage of layer 'loss' has no module with weights"),
    ],
)
def test_what_pytorch_has_no_stages_for_is_refused_by_name(
    end: str, micro_batches: int, said: str
) -> None:
    names = [layer.name for layer in GPT.layers]
    stages = Stages(GPT, 2, (names.index(end), len(names)))
    with pytest.raises(ho.HyparError, match=said):
        torch_file(planned(GPT, stages, micro_batches=micro_batches))


def test_a_shared_weight_is_sharded_alike_in_all_its_stages() -> None:
    stages = even_stages(GPT, 2)
    stated = problem(nodes(2, 2), 2, constraints={"fix": ["*=data"]})
    alike = {"*": "weights", "token": "none", "head": "none"}
    for shard in (alike, {"*": "weights", "head": "none"}):
        training = stated.training.model_copy(update={"shard": shard})
        plan = plan_of_stages(solved(GPT, stated.model_copy(update={"training": training}), stages))
        if shard == alike:
            assert {"token", "head"} <= {*tables(torch_file(plan))["WHOLE"]}
            continue
        with pytest.raises(ho.HyparError, match="'token' and 'head' share a weight in several"):
            torch_file(plan)


def test_jax_has_one_program_and_names_the_format_that_has_stages(tmp_path: Path) -> None:
    plan = planned(GPT, even_stages(GPT, 2))
    for export in (jax_module, jax_shardings):
        with pytest.raises(ho.HyparError, match=r"in pipeline stages, .*torch"):
            export(plan)
    plan.save(tmp_path / "plan.json")
    done = command(["export", "plan.json", "--to", "torch", "--output", "plan.py"], tmp_path)
    assert done.status == 0, done.errors
    assert (tmp_path / "plan.py").read_text() == torch_file(plan)
