"""A sweep over keys of networks and arrays: each row is the problem with those keys set."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import rich

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.studies.sweep import sweep
from hypar_opt.studies.sweep.spec import read_spec
from hypar_opt.studies.sweep.vary import MAX_VARIANTS, Range, combinations
from hypar_opt.units import format_label, format_rate, format_ratio
from tests.cli.shell import Shell
from tests.fuzz.mutations import ODD
from tests.studies.test_sweep import spec_of

VARY = """
networks = ["sfc", "lenet-c"]
arrays = ["hmc-torus-4"]
batches = [64]
[vary]
"topology.link.bandwidth" = { from = "50 GB/s", to = "200 GB/s", steps = 3, log = true }
"utilisation" = [0.25, 0.5]
"""


def test_each_row_is_the_problem_with_those_keys_set(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    swept = sweep(spec_of(tmp_path, VARY), table, workers=1)
    varied = [tuple(row.varied.values()) for row in swept[:6]]
    assert varied == [(link * 10**9, use) for link in (50, 100, 200) for use in (0.25, 0.5)]
    assert [(row.network, row.array) for row in swept[::6]] == [
        ("SFC", "hmc-torus-4"),
        ("Lenet-c", "hmc-torus-4"),
    ]
    for row in swept[::5]:
        settings = {
            "link.bandwidth": f"{row.varied['topology_link_bandwidth_bytes_per_second']} B/s",
            "utilisation": row.varied["accelerator_utilisation"],
        }
        asked: Any = {"array": "hmc-torus-4", "batch": 64, "settings": settings}
        plan = ho.solve(row.network, solver="dp", **asked)
        assert (row.seconds, row.bytes) == (ho.simulate(plan).seconds, plan.cost.total)
        assert row.executed_bytes == plan.cost.executed_bytes
    # The table has a column for each key, between the case and its results.
    head = table.read_text().splitlines()[0].split(",")
    at = head.index("status")
    assert head[at - 2 : at] == list(swept[0].varied)
    assert list(swept.rows()[0]) == head
    again = sweep(spec_of(tmp_path, VARY.replace("0.5]", "0.5, 1.0]")), table, workers=1)
    assert (len(again), again.done_before) == (18, 12)


def test_parquet_has_numbers_that_a_query_compares(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    text = VARY.replace(', "lenet-c"', "") + 'collective = ["ring", "pairwise"]\n'
    sweep(spec_of(tmp_path, text), tmp_path / "t.parquet", workers=1)
    schema = parquet.read_schema(tmp_path / "t.parquet")
    assert [str(schema.field(name).type) for name in schema.names[11:14]] == [
        "int64",
        "double",
        "string",
    ]
    assert all(name.isidentifier() for name in schema.names)


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ({"from": 1024, "to": 8192, "steps": 4, "log": True}, [1024, 2048, 4096, 8192]),
        ({"from": 1, "to": 2, "steps": 3}, [1, 2, 2]),
        ({"from": 0.1, "to": 0.4, "steps": 4}, [0.1, 0.2, 0.3, 0.4]),
        ({"from": "0 s", "to": "1 us", "steps": 2}, None),
        ({"from": "0 us", "to": "1 us", "steps": 3}, ["0 us", "0.5 us", "1 us"]),
        ({"from": "1 GB/s", "to": "1 TB/s", "steps": 3}, None),
        ({"from": 0, "to": 4, "steps": 3, "log": True}, None),
        ({"from": True, "to": 4, "steps": 3}, None),
    ],
)
def test_a_range_has_both_its_ends_in_one_unit(
    table: dict[str, Any], values: list[Any] | None
) -> None:
    stated = validate(Range, table)
    if values is not None:
        assert stated.values() == values
        return
    with pytest.raises(ho.HyparError):
        stated.values()


def test_a_range_has_values_or_is_refused_whatever_its_ends() -> None:
    odd = [*ODD, "1e999 GB/s", "9" * 5000 + " GB/s", "0 GB/s", "1e-999 s", "1e-99 s", 10**61]
    taken = refused = 0
    for end, log in itertools.product(odd, (False, True)):
        for first, last in ((end, 4), (1, end), (end, end), (end, "3 GB/s")):
            stated = validate(Range, {"from": first, "to": last, "steps": 5, "log": log})
            try:
                values = stated.values()
            except ho.HyparError:
                refused += 1
            else:
                assert (len(values), values[0], values[-1]) == (5, first, last)
                taken += 1
    assert taken > 50
    assert refused > 200


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ((1000, 1000, 1000), "got 1,000,000,000 (1,000 x 1,000 x 1,000 values)"),
        ((317, 316), "got 100,172 (317 x 316 values)"),
    ],
)
def test_combinations_are_counted_before_they_are_listed(axes: tuple[int, ...], said: str) -> None:
    vary = {f"k{n}": {"from": 1, "to": 10**6, "steps": steps} for n, steps in enumerate(axes)}
    with pytest.raises(ho.HyparError) as refused:
        combinations(vary, "s.toml")
    problem = f"should have at most {MAX_VARIANTS:,} combinations"
    assert str(refused.value) == f"s.toml: vary: {problem}, {said}"


def test_networks_arrays_and_other_lists_count_too(tmp_path: Path, shell: Shell) -> None:
    thousand = "{ from = 1, to = 1000, steps = 1000 }"
    text = f"[vary]\nlayer.fc1.units = {thousand}\nlayer.conv1.filters = [1, 2]\n"
    arrays = 'networks = ["lenet-c"]\nlevels = [1, 2, 3, 4, 5]\nreadings = ["text", "executed"]\n'
    more = arrays.replace('["lenet-c"]', '"paper"')
    told = shell.refused("sweep", spec_of(tmp_path, more + text))
    assert told.endswith(
        "vary: should have at most 100,000 combinations, got 200,000 (1,000 x 2 values, of each of"
        " 100 networks, arrays and readings)"
    )
    spec = spec_of(tmp_path, f"{arrays}batches = {list(range(1, 100_002))}\n")
    told = f"{spec}: should have at most 1,000,000 cases, got 1,000,010: list fewer values"
    assert shell.refused("sweep", spec) == told


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('"a.b" = [1]', "vary: unknown key 'a.b'"),
        ("utilisation = 3", "vary, 'utilisation': should be a list of values, or a range"),
        ("utilisation = []", "vary, 'utilisation': should be a list of values"),
        ("topology = {}", "vary, 'topology': range: missing key 'from'"),
        ("utilisation = { from = 0.1 }", "vary, 'utilisation': range: missing key 'to'"),
        ('link.bandwidth = ["1 GB/s", "1000 MB/s"]', "bandwidth = 1000 MB/s is there twice"),
        ("element_bytes = [2]", "the table has a column 'element_bytes'"),
        ("utilisation = [0.5, 2.0]", "accelerator, utilisation: should be less than or equal to 1"),
    ],
)
def test_wrong_keys_and_values_are_named_before_any_work(
    line: str, said: str, tmp_path: Path, shell: Shell
) -> None:
    spec = spec_of(tmp_path, VARY.partition("[vary]")[0] + f"[vary]\n{line}\n")
    told = shell.refused("sweep", spec)
    assert told.startswith(f"{spec}: vary")
    assert said in told
    assert [file.name for file in tmp_path.iterdir()] == [spec.name]


def test_keys_may_be_tables_and_arrays_of_the_paper_keep_one_default(tmp_path: Path) -> None:
    """The paper's own bandwidth among others is not planned by another rule than they are."""
    text = 'networks = ["sfc"]\n[vary]\ntopology.link.bandwidth = ["1.6 Gb/s", "3.2 Gb/s"]\n'
    cases = read_spec(spec_of(tmp_path, text))
    assert {(case.cost, case.reading, case.choices) for case in cases} == {
        ("bytes", "text", "data,model")
    }
    assert [dict(case.varied) for case in cases] == [
        {"topology_link_bandwidth_bytes_per_second": number * 10**8} for number in (2, 4)
    ]


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        (
            VARY.replace('"utilisation" = [0.25, 0.5]\n', ""),
            ">SFC<|>100 GB/s<|>topology.link.bandwidth<",
        ),
        (VARY.replace(', "lenet-c"', ""), ">time of a step (ms)<|>accelerator.utilisation<"),
        (VARY.partition("[vary]")[0] + 'solvers = ["dp", "data"]', ">Pareto front<"),
        (VARY.partition("batches")[0] + "batches = [64, 128]", ">batch<"),
        (VARY, None),
    ],
)
def test_the_picture_is_lines_a_map_or_a_front(
    text: str, drawn: str | None, tmp_path: Path, shell: Shell
) -> None:
    pytest.importorskip("altair")
    spec, picture = spec_of(tmp_path, text), tmp_path / "p.svg"
    call = ("sweep", spec, "--workers", "1", "--picture", picture)
    if drawn is None:
        # The table is there all the same.
        assert "several of network" in shell.refused(*call)
        assert (tmp_path / "spec.csv").exists()
        return
    shell.output(*call)
    assert all(word in picture.read_text() for word in drawn.split("|"))


def test_a_map_has_its_values_in_its_cells_where_there_is_room(tmp_path: Path) -> None:
    pytest.importorskip("altair")
    text = VARY.replace(', "lenet-c"', "")
    swept = sweep(spec_of(tmp_path, text), tmp_path / "t.csv", workers=1)
    drawn = swept.figure().to_dict()
    numbers = {(cell["x"], cell["y"]): cell["number"] for cell in drawn["datasets"]["cells"]}
    assert numbers == {
        (
            format_rate(row["topology_link_bandwidth_bytes_per_second"]),
            str(row["accelerator_utilisation"]),
        ): format_label(row["seconds"] * 1e3)
        for row in swept.rows()
    }
    assert [layer["mark"]["type"] for layer in drawn["layer"]] == ["rect", "text"]
    many = text.replace("steps = 3", "steps = 13")
    swept = sweep(spec_of(tmp_path, many), tmp_path / "many.csv", workers=1)
    assert [layer["mark"]["type"] for layer in swept.figure().to_dict()["layer"]] == ["rect"]


def test_a_terminal_has_what_is_varied_and_the_speed_up_by_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = VARY.replace(', "lenet-c"', "").replace("[vary]", 'costs = ["time"]\n[vary]')
    swept = sweep(spec_of(tmp_path, text), tmp_path / "t.csv", workers=1)
    assert swept.keys == {
        "topology_link_bandwidth_bytes_per_second": "topology.link.bandwidth",
        "accelerator_utilisation": "accelerator.utilisation",
    }
    rich.print(swept)
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    head = next(line for line in lines if "accelerator.utilisation" in line)
    assert "topology.link.bandwidth" in head
    assert any(line[0] == "200 GB/s" for line in lines)
    assert {format_ratio(row.speedup) for row in swept} <= {line[-1].strip() for line in lines}
    assert max(row.speedup or 0 for row in swept) > 1
