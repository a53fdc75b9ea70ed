"""Results in Python: one line, the shell's view, valid HTML, rows for a data frame."""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from rich.console import Console

import hypar_opt as ho
from hypar_opt.display.plan_grid import Stored, is_short_chain, plan_grid
from hypar_opt.display.terminal.memory import training_phrase
from hypar_opt.display.terminal.notebook import html_of
from hypar_opt.hardware.arrays import find_array
from hypar_opt.plan.arguments import problem_of
from hypar_opt.proofs.certificate import Certificate
from hypar_opt.results import Displayed, Documented, Results
from hypar_opt.studies.alternatives import Alternative, BestPlans
from hypar_opt.studies.installation import Check, Installation
from hypar_opt.studies.pareto import ParetoFront
from hypar_opt.studies.sweep import SweepResult, sweep
from hypar_opt.units import format_ratio
from tests.display.test_graph_reports import printed
from tests.public import STEPS, subclasses
from tests.slow import examples
from tests.strategies.networks import graph_networks

DOCS = Path(__file__).parents[2] / "docs"
HOSTILE = '<b>"x"</b> & [red]'
PARENTS = {
    "caption": {"table"},
    "thead": {"table"},
    "tbody": {"table"},
    "tfoot": {"table"},
    "tr": {"thead", "tbody", "tfoot"},
    "th": {"tr"},
    "td": {"tr"},
    "table": {"div"},
    "p": {"div"},
    "span": {"p", "td", "th", "caption"},
    "div": {"", "div"},
}
"""The elements of results, and in which others each of them may be."""


class Fragment(HTMLParser):
    """Checks that a fragment is valid; its tables as texts, and all its text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.text = ""
        self.titles: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.widths: list[list[int]] = []
        self.feed(html)
        self.close()
        assert self.open == []
        assert "\n\n" not in html  # a blank line ends HTML in Markdown
        for widths in self.widths:
            assert max(widths) <= max(widths[0], 2), "no row is wider than the heading"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        parent = self.open[-1] if self.open else ""
        assert parent in PARENTS[tag], (parent, tag)
        given = dict(attrs)
        assert len(given) == len(attrs)
        assert given.keys() <= {"style", "title", "scope", "colspan"}
        self.titles += filter(None, [given.get("title")])
        self.open.append(tag)
        if tag == "table":
            self.tables.append([])
            self.widths.append([])
        if tag == "tr":
            self.tables[-1].append([])
            self.widths[-1].append(0)
        if tag in {"td", "th"}:
            self.tables[-1][-1].append("")
            span = int(given.get("colspan") or 1)
            assert span > 0
            self.widths[-1][-1] += span

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open and self.open[-1] in {"td", "th", "span"} and {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data

    def handle_entityref(self, name: str) -> None:
        raise AssertionError(name)

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)


def hostile_network() -> ho.Network:
    return ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": HOSTILE,
            "source": "<script>",
            "input": {"features": 8},
            "layer": [
                {"name": "stem", "kind": "fc", "units": 8},
                {"name": "out", "kind": "fc", "units": 4, "inputs": [HOSTILE]},
            ],
            "block": [
                {
                    "name": HOSTILE,
                    "inputs": ["stem"],
                    "repeat": 3,
                    "layer": [
                        {"name": "<i>", "kind": "fc", "units": 8},
                        {"name": "add</td>", "kind": "add", "inputs": ["input", "<i>"]},
                    ],
                }
            ],
        }
    )


@cache
def plan() -> ho.Plan:
    return ho.solve("lenet-c", array="hmc-htree-4", search="joint")


@cache
def results() -> list[Any]:
    """One result of every kind, of a network with names that would be markup."""
    hostile = hostile_network()
    own = ho.solve(hostile, batch=8, array="hmc-htree-4", choices=("data", "model", "output"))
    fronts = ho.pareto(hostile, ["bytes"], batch=8, array="hmc-htree-4", points=2)
    with TemporaryDirectory() as folder:
        spec = Path(folder, "s.toml")
        spec.write_text('networks = ["lenet-c"]\nbatches = [2, 4]\narrays = ["hmc-htree-2"]\n')
        runs = Path(folder, "runs.toml")
        runs.write_text(STEPS.replace('"one"', json.dumps(HOSTILE)))
        steps, fitted = ho.validate(runs), ho.calibrate("a100-8", runs)
        swept = sweep(spec, spec.with_suffix(".csv"), workers=1)
    return [
        hostile,
        own,
        ho.simulate(own),
        ho.simulate(ho.solve(hostile, array="a100-8", batch=8, stages=2)),
        ho.memory(own),
        ho.run(own),
        ho.explore(own, "H1"),
        ho.regrets(own),
        ho.best_plans(own, 3),
        ho.compare([hostile], ["hmc-htree-4"], batches=[8]),
        ho.configure(hostile, "a100-8", batch=8),
        ho.solve_many(hostile, batch=[4, 8], levels=[1, 2]),
        ho.solve_all_batches(hostile, hi=9, levels=2),
        fronts,
        fronts[0],
        swept,
        steps,
        fitted,
        find_array("h100-8x8").model_copy(update={"name": HOSTILE}),
        ho.certify(plan()),
        ho.verify(own),
        Installation((Check(HOSTILE, "extra", "broken"),)),
        plan(),
        ho.solve("lenet-c", levels=0),
        ho.solve("lenet-c", array="hmc-htree-4", cost="time"),
    ]


def test_each_result_is_one_short_line() -> None:
    for result in results():
        for text in (repr(result), str(result), f"{result}"):
            assert re.match(rf"<{type(result).__name__}[ :]", text)
            assert len(text) <= 160
            assert "\n" not in text
    assert repr(plan()) == (
        "<Plan of Lenet-c: batch 256, on hmc-htree-4, reading text, dp joint, 5.076 MB>"
    )
    assert "batch 6, levels of 2 x 3 parts," in repr(ho.solve("sfc", batch=6, hierarchy=(6,)))


def test_every_public_result_shows_itself_and_is_documented() -> None:
    """The pages of the interface have all of them, and each is tried above."""

    shown = subclasses(Displayed) - {Displayed, Documented, Results}
    assert shown == {type(result) for result in results()}
    pages = "\n".join(page.read_text() for page in DOCS.glob("*.md"))
    classes = {name.rpartition(".")[2] for name in re.findall(r"autoclass:: (\S+)", pages)}
    modules = set(re.findall(r"automodule:: (\S+)", pages))
    for kind in shown:
        assert kind.__name__ in classes or kind.__module__ in modules, kind


def test_what_results_are_made_of_is_one_short_line_too() -> None:
    own = plan()
    step = ho.simulate(own, trace=True)
    assert step.trace is not None
    parts: list[Any] = [
        *(several[0] for several in results() if isinstance(several, Results)),
        *(own.cost, own.solver, own.network, own.array),
        *(step.trace, step.trace.links[0], ho.explore(own, "H1").own),
        ho.Problem(),
        problem_of(batch=32, array="h100-8x8", constraints={"memory": "8GB"}, cost="time"),
    ]
    for part in parts:
        for text in (repr(part), f"{part}"):
            assert len(text) <= 160, text
            assert "\n" not in text
    assert repr(parts[-1]) == (
        "<Problem: batch 32, on h100-8x8, data, model, output, the least time by the reading"
        " executed among runnable plans with --memory 8000000000>"
    )
    assert repr(find_array("h100-8x8")) == (
        "<Array h100-8x8: 64 accelerators, nodes, pairwise all-reduce>"
    )
    assert repr(own.cost) == (
        "<Cost 5.076 MB by the reading text, Data Parallelism 2.04 times that>"
    )


def test_best_plans_that_cost_alike_to_four_digits_are_told_apart() -> None:
    own = plan()
    first = own.cost.total
    best = BestPlans(
        tuple(Alternative(own.parallelism, first + more, 1) for more in (0, 2**20, 2**20 + 4)), own
    )
    shown = "".join(printed(best))
    extras = ["0 bytes", "1,048,576 bytes", "1,048,580 bytes"]
    assert all(extra in shown for extra in extras)


def test_html_is_valid_and_escapes_names() -> None:
    for result in results():
        fragment = Fragment(result._repr_html_())
        # A front and a certificate are of a plan that they do not name.
        nameless = isinstance(result, ParetoFront | Certificate | SweepResult)
        if "Lenet-c" not in repr(getattr(result, "plan", result)) and not nameless:
            assert HOSTILE in fragment.text, result


def test_the_grid_of_a_plan_has_each_choice_of_each_layer() -> None:
    (grid, *_) = Fragment(plan()._repr_html_()).tables
    head, *body = grid
    assert head == ["layer", "H1", "H2", "stored"]
    rows = {row[0]: row[1:] for row in body}
    for layer in plan().layers:
        *levels, stored = rows[layer]
        glyphs = {"data": "○", "model": "●"}
        assert levels == [glyphs[choice] for choice in plan()[layer].values()]
        assert len(stored) == 2
    assert [*rows][-2:] == ["communication", "total"]


@examples(15)
@given(network=graph_networks())
def test_the_grid_of_a_graph_says_what_each_row_stands_for(network: ho.Network) -> None:
    own = ho.solve(network, batch=8, levels=2, reading="executed")
    fragment = Fragment(own._repr_html_())
    alike = [row.positions for row in plan_grid(own, stored=Stored.ALL).rows]
    if is_short_chain(own):
        alike = [(n,) for n in range(len(own.layers))]
    assert sorted(n for positions in alike for n in positions) == list(range(len(own.layers)))
    words = [title.rpartition(": ")[2] for title in fragment.titles if "stored" not in title]
    assert words == [str(level[first]) for first, *_ in alike for level in own.parallelism]


def test_a_placement_is_said_by_the_dimensions_that_levels_split() -> None:
    placed: dict[str, Any] = {"array": "hmc-torus-16", "cost": "time", "search": "joint"}
    plan = ho.solve("lenet-c", **placed, placement=(1, 3, 0, 2))
    said = "placed (H2, H4 on dimension 1; H1, H3 on dimension 2)"
    assert said in " ".join(map(str.strip, printed(plan)))
    assert said in " ".join(map(str.strip, printed(ho.simulate(plan))))
    assert "placed" not in " ".join(printed(ho.solve("lenet-c", **placed)))


def test_shards_are_said_over_the_levels_that_split_the_batch() -> None:
    """Where none of a word's levels does, as within tensor parallelism, nothing is sharded."""
    between = [f"*@H{level}=data" for level in (1, 2)]
    inside = ["conv*@H{}=output", "fc*@H{}=model"]
    pins = [pin.format(level) for pin in inside for level in (3, 4, 5)]
    for options, said in (
        ({"solver": "data"}, "weights sharded over 8 inside the nodes, state over 32: "),
        (
            {"fix": [*between, *pins], "runnable": False},
            "optimizer state sharded over 4 between the nodes: ",
        ),
    ):
        asked: Any = {"training": {"shard": "state+weights@H3-H5"}, "optimizer": "adam", **options}
        plan = ho.solve("vgg-a", array="a100-4x8", batch=256, **asked)
        assert training_phrase(ho.memory(plan)).startswith(said)


def test_rich_prints_what_the_command_line_does() -> None:
    for result in results():
        # The same view, as text and as HTML, a plan's grid apart.
        shown = set(" ".join(printed(result)).split())
        assert len(shown) > 5
        if not isinstance(result, ho.Plan):
            fragment = Fragment(result._repr_html_())
            cells = (cell for table in fragment.tables for row in table for cell in row)
            assert shown <= {*fragment.text.split(), *" ".join(cells).split()}


def test_no_html_is_made_of_what_has_none() -> None:
    with pytest.raises(TypeError, match="no HTML is known"):
        html_of(Console())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="no view is known of 3"):
        ho.Plan.__rich__(3)  # type: ignore[arg-type]


def test_rows_are_flat_and_have_one_set_of_columns() -> None:
    for result in results():
        rows = result.rows()
        assert len({tuple(row) for row in rows}) == (1 if rows else 0)
        for row in rows:
            assert all(type(cell) in {str, int, float, type(None)} for cell in row.values()), row
        json.dumps(rows, allow_nan=False)


def test_rows_say_what_the_result_does() -> None:
    own = plan()
    rows = own.rows()
    assert len(rows) == len(own.layers) * own.levels
    for row in rows:
        assert own.parallelism[row["level"] - 1][own.layers.index(row["layer"])] == row["choice"]
    step = ho.simulate(own)
    spent = sum(row["compute"] + row["communication"] for row in step.rows())
    assert spent == pytest.approx(step.seconds)
    free = ho.explore(own, "H1")
    costs = [row["bytes"] for row in free.rows()]
    assert (min(costs), max(costs)) == (free.best_cost, free.highest_cost)
    assert {row["H2"] for row in free.rows()} == {"".join(map(str, own.assignments()[1]))}
    best = ho.best_plans(own, 2)
    first = Counter(row["choice"] for row in best.rows() if row["rank"] == 1)
    assert first == Counter(str(c) for level in best[0].parallelism for c in level)


def test_a_sweep_is_its_rows() -> None:
    (swept,) = (result for result in results() if isinstance(result, SweepResult))
    assert repr(swept) == "<SweepResult: 2 cases>"
    assert [row["batch"] for row in swept.rows()] == [2, 4]
    (table,) = Fragment(swept._repr_html_()).tables
    assert [row[0] for row in table] == ["batch", "2", "4"]
    reductions = [row["data_parallel_bytes"] / row["executed_bytes"] for row in swept.rows()]
    assert [row[-1] for row in table] == ["reduction", *map(format_ratio, reductions)]


def test_choices_are_looked_up_by_layer_and_by_level() -> None:
    own = plan()
    for level, row in zip(own.level_names, own.parallelism, strict=True):
        assert own.at(level) == dict(zip(own.layers, row, strict=True))
        assert all(own[layer][level] is own.at(level)[layer] for layer in own.layers)
    assert "fc1" in own
    assert "fc9" not in own
    with pytest.raises(ho.HyparError, match="unknown layer 'fc9': did you mean fc2"):
        _ = own["fc9"]
    with pytest.raises(ho.HyparError, match=r"unknown level 'H3': .*known: H1, H2"):
        own.at("H3")
    with pytest.raises(ho.HyparError, match="unknown layer 0"):
        _ = own[0]  # type: ignore[index]
