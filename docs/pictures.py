"""Draw the pictures of the README and of these pages from real runs: ``make picture``."""

from __future__ import annotations

from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from shlex import split
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from drawings import hierarchy, layer_splits

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.display.figures import (
    batch_ranges,
    draw_paper,
    network_graph,
    plan_dots,
    plans_side_by_side,
    save,
    surface,
    swept,
    timeline,
)
from hypar_opt.paper import reproduce
from hypar_opt.studies.sweep import SweepResult, sweep

if TYPE_CHECKING:
    from hypar_opt.display.figures.style import Figure

IMAGES = Path(__file__).parent / "images"
FIGURES = ("fig6", "fig8", "fig10", "fig11")


GALLERY = {
    "gallery-solve": "hypar-opt solve vgg-e --picture gallery-solve.svg",
    "gallery-simulate": "hypar-opt simulate alexnet --array h100-8 --picture gallery-simulate.svg",
    "gallery-stages": "hypar-opt simulate gpt:layers=8,hidden=2048,heads=16,tokens=1024,"
    "vocabulary=8192 --array a100-8 --batch 32 --stages 4 --micro-batches 8 --picture"
    " gallery-stages.svg",
    "gallery-compare": "hypar-opt compare alexnet vgg-a vgg-e --array h100-8x8 --picture"
    " gallery-compare.svg",
    "gallery-pareto": "hypar-opt pareto gpt2 --array a100-8 --batch 64 --optimizer adam --cost time"
    " --points 8 --picture gallery-pareto.svg",
    "gallery-explore": "hypar-opt explore lenet-c --free H1,H4 --objective time --picture"
    " gallery-explore.svg",
    "gallery-memory": "hypar-opt memory llama-7b --array h100-8 --batch 8 --optimizer adam --shard"
    " weights --picture gallery-memory.svg",
    "gallery-configure": "hypar-opt configure llama-7b --array h100-8 --batch 64 --best 5 --bound"
    " none --picture gallery-configure.svg",
    "gallery-degrees": "hypar-opt configure llama-70b --array h100-8x8 --batch 64 --fix"
    " zero=state,cp=1 --by-degrees --picture gallery-degrees.svg",
    "gallery-batches": "hypar-opt sweep alexnet --batches 1:1000000 --picture gallery-batches.svg",
    "gallery-network": "hypar-opt show resnet-18 --picture gallery-network.svg",
    "gallery-topology": "hypar-opt show hmc-torus-16 --picture gallery-topology.svg",
    "gallery-roofline": "hypar-opt show h100-8x8 --roofline --picture gallery-roofline.svg",
    "figure5": "hypar-opt reproduce fig5 --reading text --figures . --format svg",
}
"""Pictures of docs/gallery.md, each by its command."""


def draw_gallery(folder: Path) -> list[Path]:
    """Draw the gallery into a folder, by its commands."""
    with chdir(folder), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        for command in GALLERY.values():
            status = run(split(command)[1:])
            assert status == 0, command
    return [folder / f"{name}.svg" for name in GALLERY]


def draw(folder: Path) -> list[Path]:
    """Draw all into a folder; the same runs give the same files."""
    plan = ho.solve("vgg-a", array="hmc-htree-16")
    step = ho.simulate(plan, trace=True)
    graph = folder / "gpt2.svg"
    save(network_graph(ho.load("gpt2")), graph)
    dots, time = folder / "plan-vgg-a.svg", folder / "step-vgg-a.svg"
    save(plan_dots(plan), dots)
    title = f"A step of VGG-A on hmc-htree-16: {step.seconds:.2f} s"
    save(timeline(step, accelerators=[0], links=[], title=title), time)
    blocks = folder / "megatron-gpt2-xl.svg"
    save(plans_side_by_side(_gpt_plans()), blocks)
    longer = folder / "tokens-llama-70b.svg"
    save(plans_side_by_side(_longer_plans()), longer)
    space = folder / "space-vgg-e.svg"
    save(_design_space(), space)
    batches = folder / "batches-vgg-e.svg"
    save(batch_ranges(ho.solve_all_batches("vgg-e")), batches)
    links = folder / "links.svg"
    save(swept(_links()), links)
    splits, levels = folder / "layer-splits.svg", folder / "hierarchy.svg"
    save(layer_splits(), splits)
    save(hierarchy(), levels)
    drawn = [graph, dots, time, blocks, longer, space, batches, links, splits, levels]
    return [*drawn, *draw_paper(reproduce(FIGURES), folder, ("svg",))]


def _design_space() -> Figure:
    """Return VGG-E's optima of 170 problems, as docs/explore.md has it."""
    batches, levels = [2**n for n in range(17)], range(1, 11)
    many = ho.solve_many("vgg-e", batch=batches, levels=levels, reading="executed", search="joint")
    share = many.counts[:, 0, 0].mean(axis=-1).T / [[level] for level in levels]
    return surface(
        share,
        list(map(str, batches)),
        list(map(str, levels)),
        xlabel="batch",
        ylabel="levels",
        name="share of model parallelism",
        title="VGG-E: the plans that move the fewest bytes",
        star=False,
    )


def _links() -> SweepResult:
    """Return the sweep of links that docs/sweep.md has."""
    page = (Path(__file__).parent / "sweep.md").read_text(encoding="utf-8")
    text = page.partition("<!-- file: links.toml -->\n```toml\n")[2].partition("```")[0]
    with TemporaryDirectory() as scratch:
        spec = Path(scratch) / "links.toml"
        spec.write_text(text, encoding="utf-8")
        return sweep(spec, spec.with_suffix(".csv"), workers=1)


def _longer_plans() -> dict[str, ho.Plan]:
    """Return plans of LLaMA-70B for one sequence of some lengths, for docs/strategies.md."""
    return {
        f"{tokens:,} tokens": ho.solve(
            "llama-70b", tokens=tokens, batch=1, levels=3, choices="all", search="joint", even=True
        )
        for tokens in (4096, 32768, 131072, 1048576)
    }


def _gpt_plans() -> dict[str, ho.Plan]:
    """Return the optima of GPT-2 XL on eight accelerators, by the batch."""
    return {
        f"batch {batch}": ho.solve(
            "gpt2-xl",
            batch=batch,
            levels=3,
            search="joint",
            reading="executed",
            choices=("data", "model", "output"),
        )
        for batch in (4, 8, 16, 64, 256)
    }


if __name__ == "__main__":
    draw(IMAGES)
    draw_gallery(IMAGES)
