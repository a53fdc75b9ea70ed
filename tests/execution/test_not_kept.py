"""What is run and exported is the model, or says what of it is not; in the plan's element type."""

from __future__ import annotations

import ast
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.documents.document import validate
from hypar_opt.execution.export import jax_module
from hypar_opt.execution.formats import FORMATS
from hypar_opt.execution.settings import FRAMEWORKS
from hypar_opt.plan.plan import Plan, write_plan
from hypar_opt.workload.network import Network
from tests.commands import ended
from tests.execution.small_networks import chain, gpt
from tests.onnx.graph_writer import EXPORTED, write_masks

PHRASES = ("rotary positions (node 'a\"b\\' (Mul))", "dropout")
REMARK = "layers a and b share one initializer"


def solved(network: Network, **problem: Any) -> Plan:
    of = {"batch": 8, "levels": 2, "choices": ("data", "model", "output"), "reading": "executed"}
    return ho.solve(network, **{**of, "constraints": {"even": True}, **problem})


def imported(network: Network) -> Network:
    """Return a network as an import would have written it."""
    said = {"not_kept": PHRASES, "remarks": (REMARK,)}
    return validate(Network, {**network.description(), "schema": "hypar-opt/network/2", **said})


def biased() -> Network:
    return gpt(tied=True)  # its fused projection has a bias


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (imported(chain()), list(PHRASES)),
        (imported(biased()), list(PHRASES)),
    ],
)
def test_a_model_that_is_not_all_kept_is_exported_on_request_alone(
    network: Network, said: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, file = str(tmp_path / "plan.json"), tmp_path / "model.py"
    # Traces are of a plan on an array.
    write_plan(solved(network, levels=None, array="hmc-htree-4"), plan)
    for name in FORMATS.keys() - FRAMEWORKS.keys():
        file.unlink(missing_ok=True)
        status = run(["export", plan, "--to", name, "-o", str(file)])
        error = capsys.readouterr().err
        # Which level splits which weights is so whatever the model computes with them.
        assert status == (0 if name == "json" else 2)
        assert file.exists() == (name == "json")
        assert error.count("\n") == 1
        assert all(phrase in error for phrase in said)
        assert ("--approximate exports it" in error) == (name != "json")
        assert run(["export", plan, "--to", name, "--approximate", "-o", str(file)]) == 0
        assert capsys.readouterr().err == ""
        text = file.read_text()
        assert text == ho.export(plan, name, approximate=True)
        if name == "json":
            assert text == ho.export(plan, name)
            continue
        with pytest.raises(ho.HyparError, match="not all of the model is kept"):
            ho.export(plan, name)
        if name == "chakra":
            docstring = "\n".join(line[2:] for line in text.splitlines() if line[:2] == "# ")
        else:
            docstring = ast.get_docstring(ast.parse(text)) or ""
        if name == "jax":
            _, _, listed = docstring.partition("Not kept of the model:\n\n")
            assert f"How the model was read:\n\n- {REMARK}" in docstring
            assert " ".join(listed.split()) == " ".join(f"- {phrase}" for phrase in said)
        else:
            assert f"does not count it: {'; '.join(said)}." in " ".join(docstring.split())


def test_a_model_that_is_kept_needs_no_word() -> None:
    with pytest.raises(ho.HyparError, match=r"not all of the model is kept.*approximate=True"):
        jax_module(solved(imported(chain())))
    for network in (chain(), biased()):
        plan = solved(network)
        assert "Not kept" not in jax_module(plan)
        assert jax_module(plan) == jax_module(plan, approximate=True)


def test_a_run_says_of_which_model_its_numbers_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for network, said in (
        (chain(), ()),
        (imported(biased()), PHRASES),
    ):
        plan = solved(network)
        assert ho.run(plan).not_kept == said
        assert ho.run(plan, scale_down=True).not_kept == said
        write_plan(plan, tmp_path / "plan.json")
        assert run(["run", str(tmp_path / "plan.json")]) == 0
        words = " ".join(capsys.readouterr().out.split())
        tail = " of this network match a single device within 1e-09 (relative);"
        tail += f" not kept of its model: {'; '.join(said)}."
        plain = " match a single device within 1e-09 (relative)."
        assert f"Values and gradients{tail if said else plain}" in words


def test_what_is_not_kept_and_remarks_stand_beside_a_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error: what is priced and printed is the same."""
    printed = []
    for network in (chain(), imported(chain())):
        write_plan(solved(network), tmp_path / "plan.json")
        assert run(["show", str(tmp_path / "plan.json")]) == 0
        out, err = capsys.readouterr()
        printed.append(out)
        said = [f"not kept of its model: {'; '.join(PHRASES)}", REMARK]
        assert [line in err for line in said] == [network.remarks is not None] * 2
        assert run(["show", str(tmp_path / "plan.json"), "--json"]) == 0
        json.loads(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_an_imported_language_model_is_exported_causal_and_with_its_loss(tmp_path: Path) -> None:
    """With its masks beside it; what it has of rotary positions is what is missing."""
    shutil.copy(EXPORTED / "llama-gqa.onnx", tmp_path)
    write_masks(tmp_path, "llama-gqa")
    plan = solved(ho.read_network(tmp_path / "llama-gqa.onnx"), levels=1)
    with pytest.raises(ho.HyparError, match="rotary positions") as refused:
        jax_module(plan)
    assert "mask" not in str(refused.value)
    text = jax_module(plan, approximate=True)
    assert "causal=True" in text
    assert "causal=False" not in text
    assert "total += softmax_loss(" in text
    assert "squared_error(" not in text


# Element types.


def test_a_module_computes_in_the_plans_element_type_and_moves_its_bytes(tmp_path: Path) -> None:
    """In one process, double precision last, since jax keeps to single until it is told.

    XLA for the processor keeps float16 as it is and carries bfloat16 as float32: so the step of
    two bytes has no exchange of four.
    """
    calls, expected = [], []
    kinds = [(2, "bfloat16"), (2, "float16"), (8, "float64")]
    for number, (element_bytes, kind) in enumerate(kinds):
        plan = solved(gpt(tied=True), element_bytes=element_bytes, levels=1)
        text = jax_module(plan, approximate=True)
        planned = "bfloat16" if kind == "float16" else kind
        assert f"Elements are of {planned}.\n" in text
        file = tmp_path / f"model_{number}.py"
        file.write_text(text.replace(f"DTYPE = jnp.{planned}\n", f"DTYPE = jnp.{kind}\n"))
        calls.append(f"runpy.run_path({str(file)!r}, run_name='__main__')")
        expected.append(plan.cost.total)
    done = ended(sys.executable, "-c", "; ".join(["import runpy", *calls]))
    said: dict[str, list[int]] = {"all ": [], "of which gradients of biases": []}
    for line in done.stdout.splitlines():
        for start, totals in said.items():
            if line.startswith(start):
                totals += [int(word.replace(",", "")) for word in line.split() if word[0].isdigit()]
    moved = [a - b for a, b in zip(*said.values(), strict=True)]
    assert moved == expected
    assert said["of which gradients of biases"] == [192, 192, 768]


def test_a_run_in_jax_says_whose_bytes_it_counts() -> None:
    """Its gradients are compared in single precision, whatever the plan's elements are."""
    pytest.importorskip("jax")
    plan = solved(chain(), element_bytes=2, levels=0)
    environment = dict(os.environ)
    assert ho.run(plan, backend="jax").notes[0].endswith("the plan's elements have 2 bytes")
    assert os.environ == environment
