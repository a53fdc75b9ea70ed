"""Measured steps beside calculated ones: published rows, one's own files, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.display.terminal.validation import step_line
from hypar_opt.errors import HyparError, InputError
from hypar_opt.studies.simulation import simulated_times
from hypar_opt.studies.validation import calculated
from hypar_opt.studies.validation.calculated import CalculatedStep, Calculator
from hypar_opt.studies.validation.machines import array_of, known_machines, read_constants
from hypar_opt.studies.validation.rows import read_steps
from tests.cli.shell import command
from tests.slow import slow_off_diagonal

ROW: dict[str, Any] = {
    "id": "one",
    "machine": "selene",
    "gpus": 8,
    "layers": 2,
    "hidden": 256,
    "heads": 8,
    "seq": 128,
    "vocab": 1000,
    "tp": 2,
    "pp": 1,
    "dp": 4,
    "mbs": 2,
    "gbs": 16,
    "recompute": "none",
    "sp": False,
    "zero": 0,
    "attention": "megatron",
    "precision": "fp16",
    "seconds": 0.05,
}


GPT: dict[str, Any] = {"layers": 2, "hidden": 256, "heads": 8, "tokens": 128, "vocabulary": 1000}
"""The row's network."""


def written(folder: Path, *rows: dict[str, Any], columns: list[str] | None = None) -> Path:
    """Write a file of measured steps."""
    columns = columns or list(ROW)
    # TOML writes special numbers in small letters.
    lines = ",\n".join(
        json.dumps([(ROW | row)[name] for name in columns]).replace("NaN", "nan") for row in rows
    )
    file = folder / "runs.toml"
    file.write_text(
        f'schema = "hypar-opt/measured/1"\ncolumns = {json.dumps(columns)}\n'
        f'[[set]]\nname = "mine"\nsource = "us"\nrows = [\n{lines}\n]\n[[images]]\nname = "x"\n'
    )
    return file


def step_of(name: str) -> CalculatedStep:
    """Return the calculated step of a published row, and check that it is near the measured one."""
    steps = read_steps(None)
    rows = {row["id"]: row for own in steps.sets for row in steps.rows_of(own)}
    found = Calculator().step(rows[name], known_machines())
    assert found.seconds == pytest.approx(rows[name]["seconds"], rel=0.05)
    return found


def test_published_steps_are_calculated_within_five_percent() -> None:
    """Narayanan et al., SC21, table 1; docs/validation.md has all rows, and their errors."""
    step_of("sc21-7.5B")
    # Of two stages, each with half of the blocks.
    step_of("sc21-39B")


def test_a_row_is_one_call_of_simulate() -> None:
    """Data parallelism alone needs no degrees: the network, the array and the options say all."""
    row = ROW | {"tp": 1, "dp": 8, "gbs": 32, "recompute": "full", "zero": 1}
    array = array_of(known_machines(), "selene", 8, fused=False, bucket="1 TB")
    network = "gpt:layers=2,hidden=256,heads=8,tokens=128,vocabulary=1000,dropout=true"
    plan = ho.solve(network, array=array, batch=32, solver="data")
    step = ho.simulate(plan, micro_batches=2, recompute="full", shard="state", exact_shares=True)
    calculated = Calculator().step(row, known_machines())
    assert calculated.seconds == pytest.approx(step.seconds)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"pp": 2}, "gpus: should be tp 2 times pp 2 times dp 4, got 8"),
        ({"machine": "mine"}, "machine: 'mine' is not described"),
        ({"mbs": ""}, "mbs: is not stated"),
        ({"sp": "?"}, "sp: is not stated"),
        ({"zero": ""}, "zero: is not stated"),
        ({"attention": "?"}, "attention: is not stated"),
        ({"attention": "sdpa"}, "attention: should be megatron or flash, got 'sdpa'"),
        ({"recompute": "block"}, "recompute: should be none, selective, op or full, got 'block'"),
        ({"dp": 8}, "gpus: should be tp 2 times dp 8, got 8"),
        ({"gbs": 20}, "gbs: should be whole micro-batches of mbs 2 times dp 4, got 20"),
        ({"gpus": 12, "dp": 6, "gbs": 12}, "gpus: should be whole nodes of 8, got 12"),
        ({"heads": 7}, "heads should divide the hidden size 256, got 7"),
        ({"mbs": "?"}, "mbs: is not stated"),
        ({"layers": "many"}, "layers: should be a number, got 'many'"),
        ({"sp": "yes"}, "sp: should be true or false, got 'yes'"),
        ({"zero": "2?"}, "zero: should be a number, got '2?'"),
        ({"zero": "?"}, "zero: is not stated"),
        ({"layers": 10_000}, "layers: 10,000 blocks are not calculated, but networks of at most"),
        ({"precision": "fp32"}, "precision: 'fp32' is not one of half precision"),
        (
            {"gpus": 24, "tp": 3, "dp": 8, "gbs": 16},
            "tp: should be the parts of inner levels of (3, 2, 2, 2), got 3",
        ),
    ],
)
def test_what_is_not_modelled_is_named(tmp_path: Path, wrong: dict[str, Any], why: str) -> None:
    (step,) = ho.validate(written(tmp_path, wrong))
    assert step.seconds is None
    assert str(step.why).startswith(why)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"layers": 2.5}, 'row "one", layers: should be a whole number of at most 2,147,483,647'),
        ({"layers": True}, "layers: should be a whole number"),
        ({"gbs": 2**31}, "gbs: should be a whole number of at most 2,147,483,647, or empty"),
        ({"recompute": 1}, "recompute: should be a word, or empty, got 1"),
        ({"sp": 1}, "sp: should be true or false, or empty, got 1"),
        ({"zero": 4}, "zero: should be 0 to 3, or empty, got 4"),
        ({"seconds": -1}, "seconds: should be above zero, from 1e-09 to 1e+09, or empty, got -1"),
        ({"seconds": 1e-320}, "seconds: should be above zero"),
        ({"seconds": 10**400}, "seconds: should be above zero"),
        ({"seconds": True}, "seconds: should be above zero"),
        ({"seconds": float("nan")}, "should be a finite number, got nan"),
        ({"seconds": [1]}, "should be text, a number, true or false, got [1]"),
        ({"id": "a\u001b[31m"}, "should be in printable characters, got 'a\\x1b[31m'"),
        ({"id": "a\nb"}, "should be in printable characters"),
        ({"machine": "a\u202e"}, "should be in printable characters"),
    ],
)
def test_a_wrong_value_is_refused_by_set_row_and_column(
    tmp_path: Path, wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError) as refused:
        read_steps(written(tmp_path, wrong))
    assert "runs.toml" in str(refused.value)
    assert said in str(refused.value)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    columns = [name for name in ROW if name != "zero"]
    with pytest.raises(InputError, match="columns: should have zero"):
        read_steps(written(tmp_path, {}, columns=columns))


def test_settings_change_the_step_as_they_do_on_a_machine() -> None:
    """Each of these only adds work, or takes some away."""
    calculator, machines = Calculator(), known_machines()

    def seconds(**row: Any) -> float:
        assert calculator.seconds(ROW | row, machines) == calculator.step(ROW | row, machines)[0]
        return calculator.seconds(ROW | row, machines)

    plain = seconds()
    assert seconds(recompute="full") > plain
    assert seconds(recompute="selective") >= plain
    assert seconds(attention="flash") < plain
    assert seconds(sp=True) <= plain  # norms and residuals are split, as many bytes move
    assert seconds(gbs=32) > 1.5 * plain
    assert seconds(zero=1) <= plain


def test_gradients_in_single_precision_take_more_and_inputs_that_are_gathered_again_hold_less() -> (
    None
):
    calculator, machines = Calculator(), known_machines()
    shape: dict[str, Any] = {"hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 8192, "seq": 1024}
    shape |= {"gated": True, "tied": False, "positions": "rotary"}

    def step(**row: Any) -> tuple[float, int]:
        return calculator.step(ROW | shape | row, machines)

    short, wide, unsaid = step(reduce=2), step(reduce=4), step()
    assert unsaid == (short[0], wide[1])  # reduced in two bytes, and kept in four
    assert (wide[0] > short[0], wide[1] > short[1]) == (True, True)
    # Queries, keys and values read one norm, and a gate and what it gates another.
    whole, split = (step(sp=own, tp=8, dp=1, gbs=8) for own in (False, True))
    asked = calculator._row_stages(ROW | shape | {"sp": True, "tp": 8, "dp": 1, "gbs": 8}, machines)
    (plan,) = asked.stages
    once: dict[str, Any] = {**plan.run, "gather": "once"}
    del once["early_stop"]
    assert whole[1] > ho.memory(plan.plan, plan.array, **once).total > split[1]


def test_constants_of_a_machine_replace_those_of_the_package(tmp_path: Path) -> None:
    file = tmp_path / "machines.toml"
    file.write_text('[selene.accelerator]\nhost = "1 ms"\n[ours]\nlike = "selene"\n')
    runs = written(tmp_path, {}, {"id": "two", "machine": "ours"})
    (before, unknown), (slower, like) = ho.validate(runs), ho.validate(runs, constants=file)
    assert unknown.why == "machine: 'ours' is not described"
    assert None not in (before.seconds, slower.seconds)
    assert float(slower.seconds or 0) > float(before.seconds or 0)
    assert like.seconds == slower.seconds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[selene]\ncolour = "red"', "selene: unknown key 'colour'"),
        ("[ours]\nlike = []", "ours.like: should be text, got []"),
        ("[ours]\nlike = {}", "ours.like: should be text"),
        ("[selene]\naccelerator = 5", "selene.accelerator"),
        ('[selene]\naccelerator = "x"', "selene.accelerator"),
        ("[selene]\nper_node = 0", "selene.per_node: should be greater than or equal to 1"),
        ('[selene]\nper_node = "x"', "selene.per_node: should be a whole number"),
        ("[selene]\nper_node = [8]", "selene.per_node: should be a whole number"),
        ('[ours]\naccelerator = { operations = "1 TFLOPS" }', "ours: missing key 'per_node'"),
        ('[selene.link]\nbandwidth = "fast"', "selene.link, bandwidth: should be a bandwidth"),
        ('[selene]\nsource = "\\u001b[31m"', "selene.source: should be in printable characters"),
        ("selene = 5", "selene: should be a table, got 5"),
        ('[ours]\nlike = "nobody"', "ours.like: should name a machine above it"),
        ("[ours]\nper_node = 4", "ours.like: should name a machine above it"),
        ("[selene.accelerator]\ngemm = 2", "gemm: should be less than or equal to 1"),
        ('[selene]\nlink = "fast"', "link"),
    ],
)
def test_wrong_constants_are_refused_by_machine_and_key(
    tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "machines.toml"
    file.write_text(text)
    with pytest.raises(InputError) as refused:
        read_constants(file)
    assert str(refused.value).startswith(str(file))
    assert said in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1


def test_the_command_shows_sets_steps_and_reasons(tmp_path: Path) -> None:
    written(tmp_path, {}, {"id": "wrong", "pp": 2, "seconds": ""})
    done = command(["validate", "--file", "runs.toml"], tmp_path)
    assert done.status == 0
    assert "one" in done.output
    assert "1  gpus: should be tp 2 times pp 2 times dp 4" in done.output
    done = command(["validate", "--file", "runs.toml", "--json"], tmp_path)
    document = json.loads(done.output)
    one, wrong = document["rows"]
    assert set(one) == {"id", "set", "calculated", "measured", "error", "why"}
    assert one["error"] == pytest.approx(one["calculated"]["seconds"] / 0.05 - 1)
    assert wrong["calculated"] is None
    assert wrong["measured"] == {"seconds": None, "bytes": None}
    (own,) = document["sets"]
    assert (own["name"], own["steps"], own["modelled"]) == ("mine", 2, 1)
    assert own["mean"] == pytest.approx(abs(one["error"]))


def test_measured_memory_stands_beside_the_bytes_of_the_count(tmp_path: Path) -> None:
    rows = [{"id": str(n), "memory_gb": own} for n, own in enumerate(["", 41, 40.5, "OOM"])]
    runs = written(tmp_path, *rows, columns=[*ROW, "memory_gb"])
    result = ho.validate(runs)
    assert [own.measured_bytes for own in result] == [None, 41 * 10**9, 405 * 10**8, "OOM"]
    array = array_of(known_machines(), "selene", 8, fused=False)
    sizes = array.hierarchy().sizes
    calculator = Calculator()
    _, plan = calculator._plan(ROW, calculator._network(ROW), sizes)
    assert plan.network.description == ho.gpt(**GPT, dropout=True)
    plan = plan.model_copy(update={"batch": 16})
    held = ho.memory(plan, array, micro_batches=2, exact_shares=True)
    assert held.categories["state"] == 6 * held.categories["weights"]
    assert {own.bytes for own in result} == {held.total}
    document = result.document()["rows"]
    assert document[3]["calculated"] == {"seconds": result[3].seconds, "bytes": held.total}
    assert document[3]["measured"] == {"seconds": 0.05, "bytes": "OOM"}
    done = command(["validate", "--file", "runs.toml"], tmp_path)
    assert "OOM" in done.output
    written(tmp_path, {})
    assert "memory" not in command(["validate", "--file", "runs.toml"], tmp_path).output
    for size in (-1, 5e-324):
        written(tmp_path, {"memory_gb": size}, columns=[*ROW, "memory_gb"])
        done = command(["validate", "--file", "runs.toml"], tmp_path)
        assert f"memory_gb: should be a byte or more, a word or empty, got {size}" in done.errors


def row_of(folder: Path, **row: Any) -> Any:
    """The step of a row with further columns."""
    columns = list(ROW | row)
    (step,) = ho.validate(written(folder, row, columns=columns))
    return step


STAGED = {"tp": 2, "pp": 2, "dp": 2}
LLAMA = {"layers": 2, "hidden": 256, "heads": 8, "seq": 128, "vocab": 1000, "attention": "flash"}
NO_SIZES = dict.fromkeys(("layers", "hidden", "heads", "seq", "vocab"), "")


def test_a_row_is_of_the_network_that_its_columns_say(tmp_path: Path) -> None:
    """By sizes, by a name with keys, and by a file beside that of the rows: one network."""
    shape = {"kv_heads": 2, "ffn": 704, "gated": True, "tied": False, "positions": "rotary"}
    name = (
        "gpt:layers=2,hidden=256,heads=8,tokens=128,vocabulary=1000,kv_heads=2,ffn=704,gated=true,"
        "tied=false,rotary=true"
    )
    by_sizes = row_of(tmp_path, **LLAMA, **shape, tp=1, dp=8)
    by_name = row_of(tmp_path, **NO_SIZES, attention="flash", network=name, tp=1, dp=8)
    network = tmp_path / "networks" / "mine.toml"
    network.parent.mkdir()
    network.write_text(
        """
schema = "hypar-opt/network/2"
name = "mine"
input = { tokens = 64, vocabulary = 1000 }
layer = [
  { name = "token", kind = "embedding", features = 256 },
  { name = "norm", kind = "norm", inputs = ["decoder"], norm = "rms" },
  { name = "head", kind = "fc", units = 1000 },
  { name = "loss", kind = "output" },
]
[[block]]
name = "decoder"
repeat = 2
inputs = ["token"]
layer = [
  { name = "norm1", kind = "norm", norm = "rms" },
  { name = "query", kind = "fc", inputs = ["norm1"], units = 256 },
  { name = "key", kind = "fc", inputs = ["norm1"], units = 64 },
  { name = "value", kind = "fc", inputs = ["norm1"], units = 64 },
  { name = "attention", kind = "attention", heads = 8, kv_heads = 2, causal = true, inputs = [
    "query", "key", "value",
  ] },
  { name = "proj", kind = "fc", units = 256 },
  { name = "add1", kind = "add", inputs = ["input", "proj"] },
  { name = "norm2", kind = "norm", norm = "rms" },
  { name = "gate", kind = "fc", inputs = ["norm2"], units = 704, activation = "silu" },
  { name = "up", kind = "fc", inputs = ["norm2"], units = 704 },
  { name = "gated", kind = "mul", inputs = ["gate", "up"] },
  { name = "down", kind = "fc", units = 256 },
  { name = "add2", kind = "add", inputs = ["add1", "down"] },
]
"""
    )
    own = {**NO_SIZES, "seq": 128, "attention": "flash", "tp": 1, "dp": 8}
    by_file = row_of(tmp_path, **own, network="mine")
    plain = row_of(tmp_path, **LLAMA, tp=1, dp=8)
    assert by_sizes.seconds == by_name.seconds == by_file.seconds
    assert by_sizes.bytes == by_name.bytes == by_file.bytes
    assert plain.seconds not in (None, by_sizes.seconds)


def test_images_are_a_row_by_their_networks_name(tmp_path: Path) -> None:
    row = {**NO_SIZES, "tp": 1, "dp": 8, "attention": "", "network": "resnet-50"}
    step = row_of(tmp_path, **row, zero=1, optimizer="momentum", mbs=32, gbs=256)
    assert step.why == "attention: is not stated"
    row |= {"attention": "flash", "zero": 1, "optimizer": "momentum", "mbs": 32, "gbs": 256}
    step = row_of(tmp_path, **row)
    array = array_of(known_machines(), "selene", 8, bucket="1 TB")
    plan = ho.solve("resnet-50", array=array, batch=256, solver="data")
    assert step.seconds == pytest.approx(ho.simulate(plan, shard="state").seconds)
    assert str(row_of(tmp_path, **row | {"seq": 64}).why).startswith("network: ")
    assert str(row_of(tmp_path, **row | {"tp": 2, "dp": 4}).why).startswith("tp: should be 1")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"experts": 8, "ep": 8}, "experts: mixtures of experts are not modelled but by network"),
        ({"top_k": 2}, "top_k: mixtures of experts are not modelled but by network, here 2"),
        ({"ep": 8}, "ep: should divide dp 4, got 8"),
        ({"ep": 2}, "ep: should be 1 for a network without experts"),
        ({"interleave": 2}, "interleave: should be empty without stages, got 2"),
        ({"cuts": "1+1"}, "cuts: should be empty without stages, got '1+1'"),
        ({"schedule": "gpipe"}, "schedule: should be empty without stages, got 'gpipe'"),
        ({**STAGED, "cuts": "?"}, "cuts: is not stated"),
        ({**STAGED, "cuts": "2+1"}, "cuts: should be 2 numbers of blocks, 2 in all, got '2+1'"),
        ({**STAGED, "cuts": "decoder.9"}, "cuts: no layer or block is called 'decoder.9'"),
        ({**STAGED, "cuts": "decoder.1 norm"}, "cuts: should name what 2 parts begin with, but"),
        ({**STAGED, "cuts": "decoder.1.proj"}, "layer 'decoder.1.proj', H1: no stage can begin"),
        ({**STAGED, "schedule": "dualpipe"}, "schedule: should be 1f1b, gpipe or zb-h1, got 'du"),
        ({**STAGED, "balance": "time"}, "balance: should be blocks or cost, got 'time'"),
        (
            {**STAGED, "interleave": 2},
            "pp: should divide the 2 blocks, or cuts say how many each stage has",
        ),
        (
            {**STAGED, "interleave": 2, "layers": 4, "gbs": 4},
            "interleave: interleaved stages need micro-batches in multiples of 2, got 1",
        ),
        (
            {**STAGED, "interleave": 2, "layers": 4, "schedule": "gpipe"},
            "interleave: schedule 'gpipe' has one chunk a device, got 2",
        ),
        (
            {**STAGED, "layers": 3},
            "pp: should divide the 3 blocks, or cuts say how many each stage has",
        ),
        ({**STAGED, "balance": "cost", "layers": 1}, "pp: should be parts of the 1 blocks, got 2"),
        (
            {"gpus": 24, "tp": 1, "pp": 2, "dp": 12, "gbs": 24},
            "stages should be 1, 3, 6 or 12 on the array",
        ),
        (
            {**STAGED, **NO_SIZES, "tp": 1, "dp": 4, "network": "vgg-a"},
            "pp: should divide the 0 blocks, or cuts say how many each stage has, got 2",
        ),
        (
            {**STAGED, **NO_SIZES, "tp": 1, "dp": 4, "network": "t5-base"},
            "layer 'decoder.0.norm1', H1: no stage can begin here",
        ),
        ({"etp": 2}, "etp: tensor parallelism inside experts is not modelled, here 2"),
        ({"kv_heads": "?"}, "kv_heads: is not stated"),
        ({"kv_heads": 3}, "kv_heads should divide the 8 heads, got 3"),
        ({"ffn": "wide"}, "ffn: should be a number, got 'wide'"),
        ({"gated": "?"}, "gated: is not stated"),
        ({"tied": "yes"}, "tied: should be true or false, got 'yes'"),
        ({"positions": "alibi"}, "positions: should be learned or rotary, got 'alibi'"),
        ({"early_stop": "?"}, "early_stop: is not stated"),
        ({"cp": "?"}, "cp: is not stated"),
        ({"cp": 2}, "gpus: should be tp 2 times cp 2 times dp 4, got 8"),
        ({"network": "gpt2"}, "layers: should be empty where network names one, got 2"),
        ({"network": "?"}, "network: is not stated"),
        ({**NO_SIZES, "network": "-"}, "network: should be a name or a file, got '-'"),
        ({**NO_SIZES, "network": "gpt2x"}, "network: unknown network 'gpt2x': did you mean gpt2?"),
        ({**NO_SIZES, "network": "none.toml"}, "network: none.toml: "),
        ({"shard": "half"}, "unknown shard 'half'"),
        ({"shard": "weights@H1-H9"}, "shard should name levels down to H3"),
        ({"optimizer": "lion"}, "optimizer: should be sgd, momentum or adam, got 'lion'"),
        ({"dropout": "some"}, "dropout: should be a number, got 'some'"),
    ],
)
def test_what_a_column_says_is_modelled_or_named(
    tmp_path: Path, more: dict[str, Any], why: str
) -> None:
    step = row_of(tmp_path, **more)
    assert step.seconds is None
    assert str(step.why).startswith(why)


@pytest.mark.parametrize(
    ("column", "word"),
    slow_off_diagonal([name for name in ROW if name not in ("id", "seconds")], ["", "?", "some"]),
)
def test_a_word_in_any_column_leaves_its_row_out_and_no_other(
    tmp_path: Path, column: str, word: str
) -> None:
    """docs/validation.md says so; a whole file was refused for one of them."""
    without, with_all = ho.validate(written(tmp_path, {column: word}, {"id": "two"}))
    assert with_all.seconds is not None
    assert without.seconds is None
    assert str(without.why).startswith(column)


def test_a_word_for_the_seconds_leaves_no_error(tmp_path: Path) -> None:
    step = row_of(tmp_path, seconds="OOM")
    assert step.seconds is not None
    assert (step.measured, step.error) == (None, None)


def test_sets_have_columns_of_their_own_and_what_is_not_read_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, {"tp": 1, "dp": 8}, columns=[*ROW])
    text = file.read_text()
    columns = json.dumps([*ROW, "kv_heads", "weather"])
    own = json.dumps([*(ROW | {"id": "two", "tp": 1, "dp": 8}).values(), 2, "fair"])
    text += f'[[set]]\nname = "other"\nsource = "us"\ncolumns = {columns}\nrows = [{own}]\n'
    file.write_text(text)
    result = ho.validate(file)
    first, second = (step.seconds for step in result)
    assert first is not None
    assert second is not None
    assert second != first
    assert result.left_aside == ("weather",) == tuple(result.document()["left_aside"])
    done = command(["validate", "--file", file.name], tmp_path)
    assert done.errors == "hypar-opt: columns left aside: weather\n"
    file.write_text(text.replace(f"columns = {json.dumps([*ROW])}\n", ""))
    with pytest.raises(InputError, match="columns: should have id"):
        ho.validate(file)


def test_context_parallelism_is_that_of_the_pins(tmp_path: Path) -> None:
    row = {"tp": 1, "cp": 4, "dp": 2, "seq": 512, "attention": "flash", "zero": 0}
    step = row_of(tmp_path, **row)
    array = array_of(known_machines(), "selene", 8, bucket="1 TB")
    asked: Any = {"choices": ["data", "model", "output", "tokens"], "batch": 16, "micro_batches": 4}
    plan = ho.solve(ho.gpt(**GPT | {"tokens": 512}), array=array, degrees="cp=4,dp=2", **asked)
    assert step.seconds == pytest.approx(ho.simulate(plan).seconds, rel=0.02)
    assert step.seconds < row_of(tmp_path, **row | {"tp": 4, "cp": 1}).seconds * 4


def test_shards_inside_the_nodes_are_those_of_their_levels(tmp_path: Path) -> None:
    row = {"gpus": 24, "tp": 1, "dp": 24, "gbs": 48, "attention": "flash", "recompute": "full"}
    inside = row_of(tmp_path, **row, shard="weights@node")
    # Of three nodes of eight the levels have 3, 2, 2 and 2 parts.
    assert inside == row_of(tmp_path, **row, shard="weights@H2-H4")
    everywhere = row_of(tmp_path, **row, zero=3)
    assert everywhere == row_of(tmp_path, **row, zero="", shard="weights")
    assert everywhere.bytes < inside.bytes


def test_steps_that_differ_in_micro_batches_alone_are_what_simulate_says(tmp_path: Path) -> None:
    """What they have in common is calculated once; with a slow host, too."""
    constants = tmp_path / "machines.toml"
    constants.write_text('[slow]\nlike = "selene"\n[slow.accelerator]\nhost = "1 ms"\n')
    machines = read_constants(constants).machines
    calculator = Calculator()
    for name, zero, tp in (("selene", 3, 1), ("selene", 0, 2), ("slow", 3, 2), ("slow", 1, 1)):
        for count in (1, 2, 5):
            row = ROW | {"machine": name, "zero": zero, "tp": tp, "dp": 8 // tp, "sp": True}
            row["gbs"] = 2 * row["dp"] * count
            (asked,) = calculator._row_stages(row, machines).stages
            step = ho.simulate(asked.plan, asked.array, **asked.run)
            seconds, held = calculator.step(row, machines)
            assert seconds == pytest.approx(step.seconds, rel=1e-12)
            assert held == step.memory


def test_what_calibrate_writes_is_validated(tmp_path: Path) -> None:
    rows = [
        {"id": f"{n}", "machine": "", "hidden": n * 2048, "seq": 512, "seconds": n * 0.05}
        for n in (1, 2)
    ]
    file = written(tmp_path, *rows)
    fitted = ho.calibrate("a100-8", file, fit=["gemm"], test=file)
    done = command(["calibrate", "a100-8", file.name, "--fit", "gemm", "-o", "ours.toml"], tmp_path)
    assert done.status == 0
    by_file = ho.validate(file, constants=tmp_path / "ours.toml")
    assert [step.seconds for step in by_file] == pytest.approx([step.after for step in fitted])
    assert fitted.tested == ho.validate(file, constants=fitted.array) == by_file
    assert by_file.mean == pytest.approx(fitted.mean)
    preset = ho.validate(file, constants="a100-8")
    assert [step.seconds for step in preset] == pytest.approx([step.before for step in fitted])
    with pytest.raises(HyparError, match="should be nodes of equal accelerators, got mesh"):
        ho.validate(file, constants="tpu-v4-8")
    with pytest.raises(HyparError, match="mi300x-8: should say what kernels achieve, by gemm"):
        ho.validate(file, constants="mi300x-8")


def test_rows_come_as_they_are_calculated(tmp_path: Path) -> None:
    came: list[Any] = []
    told: list[int] = []
    file = written(tmp_path, {}, {"id": "two", "pp": 2}, {"id": "three"})

    def progress(done: int, _total: int) -> None:
        told.append(done)
        assert len(came) == done

    result = ho.validate(file, each=came.append, progress=progress)
    assert came == list(result)
    assert told == [1, 2, 3]
    line = step_line(came[0]).plain
    assert line.startswith("one ")
    assert line.endswith("%")
    assert step_line(came[1]).plain.endswith("-  gpus: should be tp 2 times pp 2 times dp 4, got 8")


def test_on_a_terminal_rows_are_printed_as_they_are_calculated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, {}, {"id": "two", "pp": 2})
    printed: list[int] = []
    calculate = Calculator.step

    def step(self: Calculator, *asked: Any) -> Any:
        printed.append(len(capsys.readouterr().out.splitlines()))
        return calculate(self, *asked)

    monkeypatch.setattr(Calculator, "step", step)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(["validate", "--file", str(file)]) == 0
    assert printed == [1, 1]  # the header before the first, the first before the second
    assert "set" in capsys.readouterr().out


def test_what_steps_have_in_common_is_calculated_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of other numbers of micro-batches are no other simulation, and no other plan."""
    solved: list[Any] = []
    simulated: list[Any] = []

    def solve(*asked: Any, **more: Any) -> Any:
        solved.append(more["solver"])
        return ho.solve(*asked, **more)

    def times(*asked: Any, **more: Any) -> Any:
        simulated.append(asked)
        return simulated_times(*asked, **more)

    monkeypatch.setattr(calculated, "solve", solve)
    monkeypatch.setattr(calculated, "simulated_times", times)
    batches = [{"id": f"{n}", "gbs": 8 * n} for n in (1, 2, 3, 4)]
    result = ho.validate(
        written(tmp_path, *batches, *(own | {"tp": 1, "dp": 8, "mbs": 1} for own in batches))
    )
    assert [step.seconds is not None for step in result] == [True] * 8
    assert len({step.seconds for step in result[:4]}) == 4
    assert solved == [None, "data"]  # where the batch alone is split nothing is searched
    assert len(simulated) == 2


def test_stages_are_what_their_columns_say(tmp_path: Path) -> None:
    """Two of eight accelerators, or of any number of them; with weights that both ends have."""
    whole = {**STAGED, "layers": 4, "gbs": 16}
    even = row_of(tmp_path, **whole)
    for cuts in ("2+2", "decoder.2", "decoder.2.norm1"):
        assert row_of(tmp_path, **whole, cuts=cuts) == even
    uneven, first, last = (row_of(tmp_path, **whole, cuts=own) for own in ("3+1", "4+0", "0+4"))
    assert even.seconds < uneven.seconds < min(first.seconds, last.seconds)
    # The head multiplies as a third of a block does.
    assert row_of(tmp_path, **whole, balance="cost") == even
    head = {**whole, "vocab": 30_000}
    assert row_of(tmp_path, **head, balance="cost") == row_of(tmp_path, **head, cuts="3+1")
    tied, untied = (row_of(tmp_path, **head, gated=False, tied=own) for own in (True, False))
    gradients = 30_000 * 256 * 2 // 2  # of two bytes, between two accelerators
    # In two exchanges, each over the links of two accelerators.
    assert tied.seconds - untied.seconds == pytest.approx(gradients / 230e9 + 2 * 2 * 7e-6)
    assert tied.bytes == untied.bytes


def test_schedules_of_stages_differ_as_they_do(tmp_path: Path) -> None:
    row = {**STAGED, "layers": 8, "gbs": 32}
    plain = row_of(tmp_path, **row)
    assert row_of(tmp_path, **row, schedule="1f1b") == plain
    gpipe, late = (row_of(tmp_path, **row, schedule=own) for own in ("gpipe", "zb-h1"))
    assert gpipe.seconds == pytest.approx(plain.seconds, rel=1e-3)
    assert gpipe.bytes > late.bytes > plain.bytes
    assert late.seconds < plain.seconds
    interleaved = row_of(tmp_path, **row, interleave=2)
    assert plain.bytes < interleaved.bytes < gpipe.bytes
    # Of as many micro-batches a stage takes its passes, and a bubble of one chunk's.
    assert row_of(tmp_path, **row | {"gbs": 64}).seconds < 2 * plain.seconds
    single = row_of(tmp_path, **{**row, "tp": 1, "pp": 8, "dp": 1, "gbs": 16})
    assert single.seconds is not None


def test_experts_are_split_between_parts_of_the_batch(tmp_path: Path) -> None:
    network = {**NO_SIZES, "network": "mixtral-8x7b", "seq": 64, "attention": "flash"}
    row = {**network, "tp": 1, "gpus": 16, "mbs": 1, "gbs": 16}
    own = row_of(tmp_path, **row, pp=8, dp=2, ep=2)
    copies = row_of(tmp_path, **row, pp=8, dp=2)
    assert own.bytes < 0.6 * copies.bytes
    assert str(row_of(tmp_path, **row, pp=1, dp=16, ep=3).why).startswith("ep: should di")
