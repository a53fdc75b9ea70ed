"""What would take too long, or more memory than there is, is refused by name before it begins."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.display.terminal import network
from hypar_opt.errors import InputError, RefusedError
from hypar_opt.hardware.arrays import find_array
from hypar_opt.hardware.topologies import graph
from tests.cli.shell import chain
from tests.hardware.cubes import WIRED

MESH = WIRED.replace(
    '"graph"\nfile = "wires.json"',
    '"mesh"\nshape = [32, 32]\nlink = { bandwidth = "1 GB/s", latency = "1 us" }',
)


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

    A ring by number goes from the end of a mesh's row to the next row's start, on links of others.
    """
    (tmp_path / "mesh.toml").write_text(MESH)
    plan = ho.solve("lenet-c", solver="data", array=tmp_path / "mesh.toml", batch=1024)
    differ = "computations and messages of 1,024 accelerators that differ, about 4 minutes"
    with pytest.raises(RefusedError, match=rf"{differ}.*; it takes \d.*s or more"):
        ho.simulate(plan, collective="one-ring")


def test_a_network_of_many_layers_is_shown_in_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "MAX_ROWS", 5)
    file = chain(tmp_path, 7)
    assert run(["show", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "fc4 " in shown
    assert "fc5 " not in shown
    assert "The first 5 of 7 layers; --json has all." in shown
    assert run(["show", str(file), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["layers"]) == 7
