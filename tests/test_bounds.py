"""What would take too long, or more memory than there is, is refused by name before it begins."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.documents.parsing import MAX_BITS, MAX_DEPTH, parse_json, parse_toml
from hypar_opt.errors import InputError, RefusedError
from hypar_opt.hardware.arrays import find_array
from hypar_opt.hardware.topologies import graph
from hypar_opt.report.terminal import network
from tests.hardware.cubes import WIRED

RING = WIRED.replace(
    '"graph"\nfile = "wires.json"',
    '"torus"\nshape = [32, 32]\nlink = { bandwidth = "1 GB/s", latency = "1 us" }',
)


def chain(layers: int) -> str:
    layer = '[[layer]]\nname = "fc{}"\nkind = "fc"\nunits = 9\n'
    return 'name = "chain"\ninput.features = 9\n' + "".join(map(layer.format, range(layers)))


def interconnect(links: list[tuple[int, int]]) -> str:
    """A graph of two accelerators and any number of switches, as networkx writes it."""
    nodes = {node: {"accelerator": node} if node < 2 else {} for link in links for node in link}
    return json.dumps(
        {
            "nodes": [{"id": node} | more for node, more in nodes.items()],
            "edges": [{"source": s, "target": t, "bandwidth": "1 GB/s"} for s, t in links],
        }
    )


def test_a_graph_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = [(node, node + 1) for node in range(graph.MAX_NODES)]
    (tmp_path / "array.toml").write_text(WIRED)
    (tmp_path / "wires.json").write_text(interconnect(path[:-1]))
    assert find_array(tmp_path / "array.toml").levels == 1
    (tmp_path / "wires.json").write_text(interconnect(path))
    with pytest.raises(InputError, match="nodes: should be at most 4,096, got 4,097"):
        find_array(tmp_path / "array.toml")
    monkeypatch.setattr(graph, "MAX_EDGES", 5)
    (tmp_path / "wires.json").write_text(interconnect(list(combinations(range(4), 2))))
    with pytest.raises(InputError, match="edges: should be at most 5, got 6"):
        find_array(tmp_path / "array.toml")


def test_a_step_of_millions_of_messages_is_not_simulated(tmp_path: Path) -> None:
    """Each of 1,024 accelerators sends 2,046 messages for each of four layers' gradients.

    Some of them have two links to cross and others one, so that none stands for the others.
    """
    (tmp_path / "ring.toml").write_text(RING)
    plan = ho.solve("lenet-c", solver="data", array=tmp_path / "ring.toml")
    events = 1024 * 4 * (3 + 2046)
    with pytest.raises(
        RefusedError, match=f"{events:,} computations and messages, about 4 minutes"
    ):
        ho.simulate(plan, collective="ring")


def test_a_key_given_twice_among_many_is_found_in_one_pass() -> None:
    keys = ",".join(f'"{number}": 0' for number in range(200_000))
    with pytest.raises(InputError, match="key '199999' is given twice"):
        parse_json(f'{{{keys}, "199999": 1}}', file="f")  # to look among all for each takes hours


def test_a_network_of_many_layers_is_shown_in_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "MAX_ROWS", 5)
    file = tmp_path / "chain.toml"
    file.write_text(chain(7))
    assert run(["show", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "fc4 " in shown
    assert "fc5 " not in shown
    assert "The first 5 of 7 layers; --json has all." in shown
    assert run(["show", str(file), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["layers"]) == 7


def test_numbers_and_depth_have_an_end() -> None:
    most = 2**MAX_BITS - 1
    assert parse_toml(f"a = {most:#x}", file="f") == {"a": most}
    assert parse_json(f"[{most}]", file="f") == [most]
    for text in (f"a = {2 * most:#x}", f"b.a = [{2 * most:#x}]"):
        with pytest.raises(InputError, match=r"^f: (b, )?a: should have at most 1,000 digits$"):
            parse_toml(text, file="f")
    with pytest.raises(InputError, match="should have at most 1,000 digits"):
        parse_json(str(2 * most), file="f")
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse_json(deep, file="f") == json.loads(deep)
    for parse, text in ((parse_json, f'{{"a": {deep}}}'), (parse_toml, f"a = {deep}")):
        with pytest.raises(InputError, match=f"^f: a: should be at most {MAX_DEPTH} tables or"):
            parse(text, file="f")


@pytest.mark.parametrize("text", ['"\\ud800"', '{"\\udfff": 1}', '["\\ud83d\\ud83d"]'])
def test_half_a_surrogate_pair_is_no_text(text: str) -> None:
    with pytest.raises(InputError, match="should be Unicode text, got half a surrogate pair"):
        parse_json(text, file="f")
    assert parse_json('"\\ud83d\\ude00"', file="f") == "😀"
