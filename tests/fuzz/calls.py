"""Command lines: files of every kind that one may be wrong with, and options that may be."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import typer
from typer.core import TyperGroup

import hypar_opt as ho
from hypar_opt.cli.app import app
from hypar_opt.proofs.certificate import certify
from tests.fuzz.models import model
from tests.fuzz.mutations import ODD, mutated, mutated_text, to_json, to_toml

MODEL = "model.onnx"
NETWORK: dict[str, Any] = {
    "schema": "hypar-opt/network/1",
    "name": "mine",
    "source": "here",
    "input": {"channels": 2, "height": 8, "width": 8},
    "layer": [
        {
            "name": "conv1",
            "kind": "conv",
            "filters": 4,
            "kernel": [3, 3],
            "stride": 1,
            "padding": 1,
            "activation": "relu",
            "pool": {"kind": "max", "size": 2, "stride": 2, "padding": 0, "rounding": "up"},
        },
        {"name": "fc1", "kind": "fc", "units": 16},
        {"name": "fc2", "kind": "fc", "units": 8},
    ],
}
DEEP: dict[str, Any] = {
    "schema": "hypar-opt/network/2",
    "name": "deep",
    "input": {"tokens": 8, "vocabulary": 12},
    "layer": [
        {"name": "token", "kind": "embedding", "features": 8},
        {"name": "place", "kind": "embedding", "inputs": [], "vocabulary": 8, "features": 8},
        {"name": "sum", "kind": "add", "inputs": ["token", "place"]},
        {"name": "mean", "kind": "norm", "norm": "rms", "inputs": ["decoder"]},
        {"name": "head", "kind": "linear", "units": 12, "tied": "token", "bias": False},
        {"name": "loss", "kind": "output"},
    ],
    "block": [
        {
            "name": "decoder",
            "repeat": 2,
            "inputs": ["sum"],
            "layer": [
                {"name": "qkv", "kind": "fc", "units": 16, "bias": True},
                {"name": "core", "kind": "attention", "heads": 4, "kv_heads": 2, "causal": True},
                {"name": "add", "kind": "add", "inputs": ["input", "core"]},
                {"name": "gate", "kind": "mul", "inputs": ["add", "core"], "activation": "silu"},
            ],
        }
    ],
}
"""A network of tokens, with blocks, several readers and shared weights."""
LINK = {"bandwidth": "1.6 Gb/s", "latency": "1 us", "duplex": "full"}
GRAPH: dict[str, Any] = {
    "directed": False,
    "multigraph": False,
    "graph": {"name": "g"},
    "nodes": [*({"id": n, "accelerator": n} for n in range(4)), {"id": "s"}, {"id": [0, "t"]}],
    "edges": [
        *({"source": n, "target": "s", **LINK} for n in range(4)),
        {"source": "s", "target": [0, "t"], "bandwidth": "1 GB/s"},
    ],
}
TOPOLOGIES: tuple[dict[str, Any], ...] = (
    {"kind": "torus", "shape": [2, 2], "link": LINK},
    {"kind": "mesh", "shape": [4], "link": LINK},
    {"kind": "ring", "accelerators": 4, "link": LINK},
    {"kind": "htree", "accelerators": 4, "link": LINK, "growth": 2.0},
    {"kind": "nodes", "nodes": 2, "per_node": 2, "link": LINK, "fabric": LINK},
    {"kind": "graph", "file": "graph.json"},
    {"kind": "graph", "graph": GRAPH},
)
ARRAY: dict[str, Any] = {
    "schema": "hypar-opt/array/1",
    "name": "four",
    "source": "here",
    "collective": "pairwise",
    "accelerator": {
        "units": 2,
        "operations": "84 GOPS",
        "pe_array": {"rows": 12, "columns": 14},
        "mac_count": "input",
        "vaults": 2,
        "dram_bandwidth": "320 GB/s",
        "dram_capacity": "8 GB",
    },
    "topology": {},
    "energy": {
        "mac": "4.6 pJ",
        "dram": "640 pJ",
        "remote": "1280 pJ",
        "sram": "1 pJ",
        "hop": "0 J",
    },
}
PROFILE: dict[str, Any] = {
    "schema": "hypar-opt/profile/1",
    "batch": 256,
    "layer": [
        {"name": name, "forward": "1 us", "backward": "2 us", "gradient": "3 us"}
        for name in ("conv1", "fc1", "fc2")
    ],
}
SWEEP: dict[str, Any] = {
    "schema": "hypar-opt/sweep/1",
    "networks": ["net.toml"],
    "batches": [32],
    "element_bytes": [4],
    "arrays": ["array.toml", "hmc-htree-2"],
    "costs": ["bytes", "time"],
    "solvers": ["dp joint", "data"],
    "overlap": ["none"],
    "readings": ["text"],
}
VARY: dict[str, Any] = {
    "networks": ["net.toml"],
    "batches": [32],
    "arrays": ["array.toml"],
    "simulate": False,
    "vary": {
        "topology.link.bandwidth": ["1 GB/s", "2 GB/s"],
        "accelerator.dram_bandwidth": {
            "from": "10 GB/s",
            "to": "900 GB/s",
            "steps": 3,
            "log": True,
        },
        "layer.fc1.units": {"from": 4, "to": 16, "steps": 3},
    },
}
"""A sweep over keys of its network and its array."""
MEASURED: dict[str, Any] = {
    "schema": "hypar-opt/measured/1",
    "columns": [
        *("id", "machine", "gpus", "layers", "hidden", "heads", "seq", "vocab"),
        *("tp", "pp", "dp", "mbs", "gbs", "recompute", "sp", "zero", "attention", "precision"),
        *("seconds", "memory_gb"),
    ],
    "set": [
        {
            "name": "mine",
            "source": "here",
            "rows": [
                [
                    *("one", "selene", 8, 2, 1024, 8, 512, 5000),
                    *(tp, 1, 8 // tp, 1, 16, "full", False, 1, "flash", "bf16", 0.01, 20),
                ]
                for tp in (1, 2)
            ],
        }
    ],
}
MACHINES: dict[str, Any] = {
    "selene": {"accelerator": {"dram_bandwidth": "1500 GB/s"}},
    "ours": {
        "source": "here",
        "per_node": 4,
        "link": {"bandwidth": "100 GB/s", "latency": "1 us"},
        "fabric": {"bandwidth": "10 GB/s", "latency": "5 us"},
        "accelerator": {
            "operations": "100 TFLOPS",
            "dram_bandwidth": "1 TB/s",
            "dram_capacity": "40 GB",
            "gemm": 0.6,
            "elementwise": 0.7,
            "flash": 0.5,
            "launch": "5 us",
        },
    },
    "twin": {"like": "ours", "adapters": 2},
}
"""Constants of machines, one of which others of the package have already."""
THREE = ("--choices", "data,model,output", "--reading", "executed")
"""Plans of three choices that run."""
_OF_GRAPHS: tuple[tuple[str, ...], ...] = (
    ("show", "deep.json"),
    ("verify", "deep.json", "--certificate", "deep-proof.json"),
    ("verify", "deep.json", "--certificate", "deep-proof.json"),
    ("run", "deep.json", "--max-memory", "300MB"),
    ("run", "deep.json", "--scale-down"),
    ("simulate", "deep.json"),
    ("explore", "deep.json", "--free", "head"),
    ("export", "deep.json", "--to", "jax", "-o", "out.py"),
    ("report", "deep.json", "-o", "out.html"),
)
"""Plans of a graph, and their certificates."""
_OF_MODELS: tuple[tuple[str, ...], ...] = (
    *[("import", MODEL)] * 4,
    ("import", MODEL, "--dim", "tokens=4", "-o", "out.toml"),
    ("solve", MODEL, "--levels", "2"),
    ("show", MODEL),
)
_OF_MEASUREMENTS: tuple[tuple[str, ...], ...] = (
    *[("validate", "--file", "measured.toml", "--constants", "machines.toml")] * 3,
    ("validate", "--file", "measured.toml", "--csv", "out.rows"),
    *[("calibrate", "a100-8", "measured.toml", "-o", "out.toml")] * 2,
    ("calibrate", "a100-8", "measured.toml", "--fit", "gemm,link.latency"),
)
_SET = ("--set", "link.bandwidth=1 GB/s", "--set", "layer.fc1.units=8")
"""Values of keys, which a call may state wrongly."""
CALLS: tuple[tuple[str, ...], ...] = (
    ("solve", "net.toml"),
    ("solve", "net.toml", "--array", "array.toml"),
    ("solve", "net.toml", "--levels", "2", "--warm-start", "plan.json", "--solver", "cpsat"),
    ("solve", "net.toml", "--array", "array.toml", "--cost", "time"),
    ("solve", "net.toml", "--array", "array.toml", "--cost", "energy", "--reading", "executed"),
    ("model", "net.toml", "--levels", "2", "-o", "out.lp"),
    ("show", "net.toml"),
    ("solve", "deep.toml", "--levels", "2"),
    ("solve", "deep.toml", "--levels", "2", "--search", "joint", "--certificate", "out.proof"),
    ("show", "deep.toml"),
    ("verify", "deep.toml", "--solvers", "dp,cut,brute", "--levels", "1"),
    ("simulate", "deep.toml", "--array", "array.toml", "--overlap", "branches"),
    ("explore", "deep.toml", "--free", "head,H1", "--levels", "1"),
    ("solve", "deep.toml", *THREE, "--levels", "2", "--fix", "sum=whole"),
    ("solve", "net.toml", *THREE, "--levels", "2", "--regret"),
    ("simulate", "deep.toml", *THREE, "--array", "array.toml", "--overlap", "branches"),
    ("explore", "deep.toml", *THREE, "--free", "head", "--levels", "1"),
    ("verify", "deep.toml", *THREE, "--solvers", "dp,cpsat", "--levels", "1"),
    ("show", "plan.json"),
    ("show", "plan.json", "--rerun"),
    ("verify", "plan.json", "--certificate", "proof.json"),
    ("verify", "net.toml", "--solvers", "dp,brute", "--levels", "2"),
    ("simulate", "net.toml", "--array", "array.toml", "--profile", "profile.toml"),
    ("simulate", "plan.json"),
    ("run", "plan.json", "--max-memory", "300MB"),
    ("run", "plan.json", "--scale-down", "-o", "out.json", "--max-memory", "300MB"),
    ("compare", "net.toml", "--array", "array.toml"),
    ("explore", "plan.json", "--free", "H1"),
    ("explore", "net.toml", "--free", "fc1", "--levels", "2"),
    ("explore", "net.toml", "--free", "H1", "--array", "array.toml", "--objective", "time"),
    ("configure", "net.toml", "--array", "array.toml", "--bound", "none"),
    ("pareto", "net.toml", "--levels", "2"),
    ("pareto", "deep.toml", "--array", "array.toml", "--cost", "time", "--points", "2"),
    ("report", "net.toml", "--array", "array.toml", "-o", "out.html"),
    ("sweep", "sweep.toml", "--workers", "1", "-o", "out.csv"),
    *[("sweep", "vary.toml", "--workers", "1", "-o", "out.csv")] * 3,
    ("solve", "net.toml", "--array", "array.toml", *_SET),
    ("simulate", "net.toml", "--array", "array.toml", *_SET),
    ("memory", "deep.toml", "--array", "array.toml", "--set", "repeat=3"),
    ("compare", "net.toml", "--array", "array.toml", "--set", "fc1.units=3"),
    *_OF_MEASUREMENTS,
    *_OF_GRAPHS,
    *_OF_MODELS,
)
OPTIONS: dict[str, tuple[str, ...]] = {
    "--array": ("array.toml", "hmc-htree-4", "nowhere", "/dev/zero", "."),
    "--batch": ("1", "32", "0", "99999999999"),
    "--batches": ("1:9", "0:1", "9:1", "1:99999999999"),
    "--best": ("1", "3", "0"),
    "--bucket": ("25MB", "0", "1B", "1e3"),
    "--certificate": ("out.proof", "net.toml", "proof.json"),
    "--choices": ("data,model,output", "model", ""),
    "--collective": ("ring", "pairwise"),
    "--cost": ("bytes", "time", "energy"),
    "--constants": ("machines.toml", "array.toml", "/dev/zero"),
    "--degrees": ("tp=2", "tp=2,dp=2", "dp=3", "tp=0", "cp=2", "tp=9999999999999"),
    "--csv": ("out.rows", "sub/../net.toml"),
    "--element-bytes": ("1", "2", "8", "3"),
    "--even": (),
    "--fix": (
        "fc1=data",
        "fc*@H1=model",
        "fc1@H" + "9" * 5000 + "=data",
        "[=data",
        "fc1@H0=model",
        "sum=whole",
    ),
    "--file": ("measured.toml", "net.toml", "."),
    "--fit": ("gemm", "gemm,flash", "link.latency", "x", ""),
    "--free": ("all", "H1,H2", "fc1@H2", "H1,H1"),
    "--gap": ("0", "0.5", "nan"),
    "--gradient-bytes": ("2", "4", "0", "3"),
    "--hierarchy": ("4", "2,2", "3", "1", "2,,2", "1024,1024"),
    "--inference": (),
    "--json": (),
    "--level-weights": ("2,1", "1", "1,,1"),
    "--levels": ("0", "1", "3", "64", "65"),
    "--max-memory": ("300MB", "1", "1TB"),
    "--micro-batches": ("1", "4", "0", "1000000"),
    "--memory": ("8GB", "1", "array", "0.5B", "1e3"),
    "--objective": ("bytes", "time", "energy"),
    "--optimizer": ("adam", "12", "-1"),
    "--other-array": (),
    "--output": ("out.json", "net.toml", "plan.json", "no/folder", ""),
    "--overlap": ("gradient", "none"),
    "--page": ("out.html", "out.html", "net.toml"),
    "--picture": ("out.svg", "out.svg", "net.toml"),
    "--place": (),
    "--points": ("1", "2", "0"),
    "--recompute": ("none", "full", "selective", "op", "fc1=full", "fc1=x", "*=full"),
    "--relative": (),
    "--runnable": (),
    "--reading": ("tables", "figures", "executed"),
    "--regret": (),
    "--search": ("joint", "levelwise"),
    "--seed": ("1", "-1"),
    "--set": (
        "link.bandwidth=1 GB/s",
        "layer.fc1.units=0x" + "f" * 4000,
        "layer.fc1.units=-1",
        "layer.conv1.padding=2147483647",
        "units=3",
        "input.height=2147483647",
        "repeat=100000",
        "name=x",
        "=1",
        "layer=[]",
        "topology.shape=[2, 2]",
        "accelerator.units=1e308",
    ),
    "--shard": ("none", "optimizer", "weights", "weights@H1", "weights@H9", "x"),
    "--share": ("0.5", "0", "2", "nan", "0.1,0.9"),
    "--simulate": ("1", "2"),
    "--solver": ("dp", "data", "model", "trick", "brute"),
    "--threads": ("1", "0"),
    "--time-limit": ("0.01", "1", "0", "-1", "1e308", "inf"),
    "--tokens": ("4", "16", "0", "99999999999"),
    "--whole-levels": (),
    "--trace": ("out.trace", "array.toml"),
}
"""Options, and values that are more or less right for each."""


OUTPUTS = {"--output", "-o", "--certificate", "--csv", "--trace", "--picture", "--page"}


@dataclass(frozen=True)
class Call:
    """A command line, and the files that it finds."""

    args: tuple[str, ...]
    files: dict[str, bytes]

    def reads(self) -> set[str]:
        """Return the files that it may read: all but those that only an output names.

        Of an option that is given again, the last value counts.
        """
        writes = OUTPUTS - ({"--certificate"} if self.args[0] == "verify" else set())
        again = (place for place, each in enumerate(self.args) if each in self.args[place + 1 :])
        superseded = {place + 1 for place in again if OPTIONS.get(self.args[place])}
        outputs = {place + 1 for place, each in enumerate(self.args) if each in writes} | superseded
        read = {each for place, each in enumerate(self.args) if place not in outputs}
        if self.args[0] == "sweep":
            read |= {"net.toml", "array.toml"}
        return read | {"graph.json"} if "array.toml" in read else read


@cache
def valid() -> dict[str, Any]:
    """A document of every kind, by the name of its file; they fit one another."""
    network = ho.Network.model_validate(NETWORK)
    array = ho.Array.model_validate({**ARRAY, "topology": TOPOLOGIES[0]})
    plan = ho.solve(network, array=array, search="joint", constraints={"fix": ["fc1@H1=data"]})
    deep = ho.solve(
        ho.Network.model_validate(DEEP),
        levels=2,
        batch=8,
        search="joint",
        reading="executed",
        choices=("data", "model", "output"),
    )
    return {
        "net.toml": NETWORK,
        "deep.toml": DEEP,
        "array.toml": ARRAY,
        "graph.json": GRAPH,
        "profile.toml": PROFILE,
        "sweep.toml": SWEEP,
        "vary.toml": VARY,
        "measured.toml": MEASURED,
        "machines.toml": MACHINES,
        "plan.json": plan.document(),
        "proof.json": json.loads(certify(plan).to_json()),
        "deep.json": deep.document(),
        "deep-proof.json": json.loads(certify(deep).to_json()),
    }


@cache
def takes(command: str) -> list[str]:
    """Return those of `OPTIONS` that a command has."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    own = {name for option in group.commands[command].params for name in option.opts}
    return sorted(own & OPTIONS.keys())


@cache
def texts() -> dict[str, bytes]:
    """Return the files of all documents that are right."""
    return {name: _text(name, document).encode() for name, document in valid().items()}


def _text(name: str, document: Any) -> str:
    return to_toml(document) if name.endswith(".toml") else to_json(document)


def call(seed: int) -> Call:
    """Return the call of a seed: one file wrong, or the command line, or both."""
    rng = Random(seed)
    array = ARRAY | {"topology": rng.choice(TOPOLOGIES)}
    files = {**texts(), "array.toml": to_toml(array).encode()}
    args = [*rng.choice(CALLS)]
    named = [name for name in files if name in args]
    if args[0] == "sweep" or "array.toml" in args:
        named += ["net.toml", "array.toml", "graph.json"]
    wrong = rng.choice(named) if named and rng.random() < 0.8 else None
    if wrong:
        document = mutated(array if wrong == "array.toml" else valid()[wrong], rng)
        files[wrong] = mutated_text(_text(wrong, document), rng)
    if MODEL in args:
        wrong, files[MODEL] = MODEL, model(rng)
    if wrong is None or rng.random() < 0.3:
        args = _wrong_call(args, rng)
    return Call(tuple(args), files)


def _wrong_call(args: list[str], rng: Random) -> list[str]:
    odd = [str(each)[:3000] for each in ODD if isinstance(each, str | float | bool)]
    known = takes(args[0]) if rng.random() < 0.95 else sorted(OPTIONS)
    for _ in range(rng.choice((1, 1, 2, 4))):
        name = rng.choice(known)
        values = OPTIONS[name]
        given = [rng.choice(values if rng.random() < 0.8 else odd)] if values else []
        args = [*args, name, *given]
    if rng.random() < 0.05:
        args[rng.randrange(len(args))] = rng.choice(odd)
    # No argument of a process has a null byte, and a surrogate only for what is no UTF-8.
    return [
        each.replace("\0", "").replace("\ud800", "\udc80").replace("\udfff", "\udcff")
        for each in args
    ]


def place(made: Call, folder: Path) -> None:
    """Put a call's files into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "sub").mkdir(parents=True)
    for name, data in made.files.items():
        (folder / name).write_bytes(data)
