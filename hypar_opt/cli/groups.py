"""Groups of options that several commands take, as frozen dataclasses.

A field is an option: its name, type, help and default stand once.
`hypar_opt.cli.signatures.takes_groups` makes them a command's.
"""

# Annotations are evaluated as the classes are made: as texts, to be evaluated one by one, they
# would make up a tenth of the time that `--help` takes.

from dataclasses import dataclass
from typing import Annotated

from hypar_opt.cli import completion, options
from hypar_opt.cli.options import problem_option, running_option, solving_option


@dataclass(frozen=True, eq=False, repr=False)
class SizeOptions:
    """How large a problem is, and on which array."""

    batch: Annotated[int, options.BATCH] = 256
    # None: an array has levels of its own.
    levels: Annotated[int | None, options.LEVELS] = None
    hierarchy: Annotated[str | None, options.HIERARCHY] = None
    array: Annotated[str | None, options.ARRAY] = None


@dataclass(frozen=True, eq=False, repr=False)
class CostOptions:
    """What is minimised, and within which constraints."""

    cost: Annotated[
        str,
        problem_option(
            help="The objective: bytes moved; time or energy of a step, on an array.",
            autocompletion=completion.costs,
        ),
    ] = "bytes"
    # None: the default depends on the array, which is not read yet.
    reading: options.READING = None
    # None: the default depends on the network.
    element_bytes: Annotated[
        int | None,
        problem_option(
            help="Bytes of a tensor's element: 4, or as the network's file says; 2 for half"
            " precision; 1, 8."
        ),
    ] = None
    inference: Annotated[
        bool,
        problem_option(
            "--inference",
            help="Plan inference: charge the forward pass alone, no gradients and no errors.",
        ),
    ] = False
    choices: Annotated[
        str,
        problem_option(
            help="The parallelisms that a layer may have: data,model or data,model,output"
            " (AccPar's Type III; readings text, tables and executed).",
        ),
    ] = "data,model"
    level_weights: Annotated[
        str | None,
        problem_option(
            metavar="W,W,...", help="Weight of a byte at each level, H1 first, as 8,4,2,1."
        ),
    ] = None
    fix: Annotated[
        list[str] | None,
        problem_option(
            metavar="LAYER[@LEVEL]=CHOICE",
            help="Pin a layer's parallelism, as fc1@H2=data; the layer may be a pattern."
            " Repeatable.",
        ),
    ] = None
    even: Annotated[
        bool,
        problem_option(
            "--even",
            help="Only partitions that divide the batch and the channels, so that the plan can"
            " run.",
        ),
    ] = False
    # A text: `array` is a word, and units may follow a number.
    memory: Annotated[
        str | None,
        problem_option(
            metavar="BYTES",
            help="Memory capacity of an accelerator, as 8GB or 512MiB; array for the array's.",
        ),
    ] = None
    optimizer: Annotated[
        str,
        problem_option(
            help="The optimizer, whose state takes memory: sgd (none), momentum, adam, or the"
            " bytes of state per weight.",
        ),
    ] = "sgd"


@dataclass(frozen=True, eq=False, repr=False)
class ProblemOptions(CostOptions, SizeOptions):
    """A problem: sizes, then cost; fields are collected from the last base to the first."""


@dataclass(frozen=True, eq=False, repr=False)
class SolvingOptions:
    """How a problem is solved."""

    # An input of the search and no field of a problem, though its help stands with those.
    place: Annotated[
        bool,
        problem_option(
            "--place",
            help="Optimise the placement too: which of the array's bisections is which level.",
        ),
    ] = False
    solver: Annotated[
        str | None,
        solving_option(
            help="The algorithm that solves a cost table (list solvers); dp unless given, and cut"
            " on a graph that is no chain.",
            autocompletion=completion.solvers,
        ),
    ] = None
    # None: the default depends on the cost (decision 7).
    search: Annotated[
        str | None,
        solving_option(
            help="levelwise: each level given those above, the paper's Algorithm 2, and the default"
            " for bytes; joint: all levels together, for time and energy.",
            autocompletion=completion.one_of("levelwise", "joint"),
        ),
    ] = None
    backend: Annotated[
        str | None,
        solving_option(help="The backend of ilp: cbc, highs, or another that PuLP finds."),
    ] = None
    solver_option: Annotated[
        list[str] | None,
        solving_option(
            metavar="K=V",
            help="A search parameter of the solver's backend. Repeatable.",
        ),
    ] = None
    time_limit: options.TIME_LIMIT = None
    gap: Annotated[
        float,
        solving_option(
            help="Relative optimality gap to stop at, (total - bound) / total; 0 asks for an"
            " optimum."
        ),
    ] = 0.0
    threads: Annotated[
        int | None, solving_option(help="Threads of the solver's backend; one unless given.")
    ] = None
    seed: Annotated[int | None, solving_option(help="Random seed of the solver's backend.")] = None
    hint: Annotated[
        bool,
        solving_option("--hint", help="Start the solver from dp's solution of the same table."),
    ] = False


@dataclass(frozen=True, eq=False, repr=False)
class RunningOptions:
    """How a step is run."""

    # None: the array's own.
    collective: Annotated[
        str | None,
        running_option(
            help="All-reduce algorithm: pairwise (the paper's) or ring; default the array's own.",
            autocompletion=completion.one_of("pairwise", "ring"),
        ),
    ] = None
    overlap: Annotated[
        str,
        running_option(
            help="What communication overlaps with computation: none, gradient (the gradients'"
            " all-reduce, with the rest of the backward pass), or branches (every exchange, with"
            " what does not wait for it).",
            autocompletion=completion.one_of("none", "gradient", "branches"),
        ),
    ] = "none"
