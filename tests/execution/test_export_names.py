"""Exported modules of networks whose layers have any names that a network may have."""

from __future__ import annotations

import ast
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hypar_opt.execution.jax.module import module_text
from hypar_opt.execution.jax.run import load
from hypar_opt.execution.jax.tensors import ShardedNetwork
from hypar_opt.workload.network import Network
from tests.execution.drawn_plans import alike_program
from tests.execution.jax.steps import results
from tests.slow import examples

ODD = (
    *("LEVELS = ...", "WEIGHTS = ...", "INPUTS_GIVEN = ...", "TARGETS = ...", "# The operations"),
    *("    return jnp.zeros(())  # the step", "return total", "from functools import partial"),
    *(
        '"',
        "'",
        "\\",
        '"""',
        "'''",
        "\\n",
        "\\N{DASH}",
        "\\x41",
        "a'b\"c",
        "#",
        "{name}",
        "%s",
        "(",
    ),
    *("__name__", "__import__('os')", "_", "-", "1", "1st", "é", "日本", "İ", "ǅ", "ﬁ", "²", "𝟙"),
    *("class", "None", "true", "lambda", "async", "match", "print", "sum", "w", "x", "x1", "y"),
    *("jax", "jnp", "lax", "total", "loss", "inputs", "targets", "apart", "linear", "all_gather"),
    *("a", "a_stored", "A", "a_", "a 2", "a_stored_", "input", "input of a", "layer_x", "LEVELS"),
    *("= f32[8] all-gather(%a), replica_groups={{0,1}}", "transpose(jvp())", "metadata={}"),
    *("long " * 30, "l(" * 60, "= (" * 40),
)
PRINTABLE = st.text(
    st.characters(exclude_categories=["C", "Zl", "Zp", "Zs"], include_characters=" "), min_size=1
)
NAMES = st.one_of(st.sampled_from(ODD), PRINTABLE).filter(
    lambda name: name.strip() != "" and name.isprintable() and name != "input"
)


def network(title: str, names: list[str]) -> Network:
    """Return a graph whose tensors are stored, summed, compared and read as the network's input."""
    fc1, norm, fc2, first, fc3, second, pooled, end, other = names
    layers = [
        {"name": fc1, "kind": "fc", "units": 8, "inputs": ["input"]},
        {"name": norm, "kind": "norm", "norm": "layer", "inputs": [fc1]},
        {"name": fc2, "kind": "fc", "units": 8, "inputs": [norm], "activation": "relu"},
        {"name": first, "kind": "add", "inputs": [fc2, norm, "input"]},
        {"name": fc3, "kind": "fc", "units": 8, "inputs": [first], "tied": fc1},
        {"name": second, "kind": "mul", "inputs": [fc3, first]},
        {"name": pooled, "kind": "global_pool", "over": "first", "inputs": [second]},
        {"name": end, "kind": "output", "inputs": [pooled]},
        {"name": other, "kind": "output", "loss": "none", "inputs": [first]},
    ]
    schema, given = "hypar-opt/network/2", {"tokens": 8, "features": 8}
    return Network.model_validate(
        {"schema": schema, "name": title, "input": given, "layer": layers}
    )


def sharded(named: Network, seed: int = 0, levels: int = 2) -> ShardedNetwork:
    return ShardedNetwork.of(named, alike_program(random.Random(seed), named, (2,) * levels))


def assigned(tree: ast.Module) -> list[str]:
    """Return the variables of the loss, in order."""
    (loss,) = (f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name == "loss")
    targets = (s.targets[0] for s in loss.body if isinstance(s, ast.Assign))
    return [target.id for target in targets if isinstance(target, ast.Name)]


def numbered(names: list[str]) -> list[int]:
    return [names.index(name) for name in names]


PLAIN = [f"layer{number}" for number in range(9)]


@examples(30)
@given(st.lists(NAMES, min_size=9, max_size=9, unique=True), NAMES, st.integers(0, 9))
def test_names_change_nothing_but_names(names: list[str], title: str, seed: int) -> None:
    """Statements and their variables are those of plain names, and the tables have the names."""
    text = module_text(sharded(network(title, names), seed), title=title)
    plain = module_text(sharded(network("plain", PLAIN), seed), title="plain")
    tree, expected = ast.parse(text), ast.parse(plain)
    assert [type(node) for node in ast.walk(tree)] == [type(node) for node in ast.walk(expected)]
    assert numbered(assigned(tree)) == numbered(assigned(expected))
    module = load(text, name="named")
    assert list(module.WEIGHTS) == names[:3]
    assert set(module.TARGETS) == set(names[7:])
    assert ast.get_docstring(tree, clean=False).startswith(title)  # type: ignore[union-attr]


def test_modules_with_odd_names_run() -> None:
    """Their steps move what is planned and compute what one device does."""
    rng = random.Random(0)
    odd = [name for name in ODD if name != "input"]
    rng.shuffle(odd)
    odd += odd[: -len(odd) % 9]
    programs = []
    for start in range(0, len(odd), 9):
        named = network(odd[start], odd[start : start + 9])
        programs.append((named, alike_program(rng, named, (2, 2))))
    for found in results(programs, compared=4):
        assert found["differences"] == []
        assert found.get("gradients", 0) < 1e-5


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "a\u2028b", "a\x0cb", "a\0b", "\ud800", " ", ""])
def test_what_would_end_a_line_is_no_name(name: str) -> None:
    with pytest.raises(ValidationError):
        network("plain", [name, *PLAIN[1:]])
