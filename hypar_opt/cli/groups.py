"""Groups of options that several commands take, as frozen dataclasses.

Each field is an option: its name, type, help and default.
`hypar_opt.cli.signatures.takes_groups` adds them to a command.
"""

# Annotations are evaluated with the classes: evaluated later from strings, one by one, they would
# take a tenth of the time of `--help`.

from dataclasses import dataclass
from typing import Annotated

from hypar_opt.cli import completion, options
from hypar_opt.cli.options import (
    charge_option,
    choice_option,
    problem_option,
    running_option,
    size_option,
    solving_option,
    step_option,
)
from hypar_opt.workload.parallelism import GATHERED, RECOMPUTED, SHARDED


@dataclass(frozen=True, eq=False, repr=False)
class SizeOptions:
    """Options for the size of a problem, and its array."""

    batch: Annotated[int, options.BATCH] = 256
    tokens: Annotated[int | None, options.TOKENS] = None
    accelerators: Annotated[int | None, options.ACCELERATORS] = None
    # None: the array fixes its levels.
    levels: Annotated[int | None, options.LEVELS] = None
    hierarchy: Annotated[str | None, options.HIERARCHY] = None
    whole_levels: Annotated[bool, options.WHOLE_LEVELS] = False
    array: Annotated[str | None, options.ARRAY] = None
    bucket: Annotated[str | None, options.BUCKET] = None
    settings: options.SETTINGS = None


@dataclass(frozen=True, eq=False, repr=False)
class CostOptions:
    """Options for the objective and the constraints."""

    # None, of this and what follows: the default depends on the array, which has not been read yet.
    cost: Annotated[
        str | None,
        problem_option(
            help="What to minimise: communication in bytes, or the time or energy of a step on an"
            " array. Default: time on an array other than the paper's, else bytes.",
            autocompletion=completion.costs,
        ),
    ] = None
    reading: options.READING = None
    element_bytes: Annotated[
        int | None,
        charge_option(
            help="Bytes per tensor element: 2 for fp16 and bf16, or 1, 4 or 8. Default: the"
            " network file's, else the array's, else 4."
        ),
    ] = None
    inference: Annotated[
        bool,
        charge_option(
            "--inference",
            help="Plan inference: only the forward pass is charged, without gradients and errors.",
        ),
    ] = False
    choices: Annotated[
        str | None,
        choice_option(
            help="The parallelisms that each layer may use: data,model (the paper's);"
            " data,tensor, row- and column-parallel, the same as data,model,output (in all readings"
            " but figures); with tokens, context and sequence parallelism (in executed and joined);"
            " or all. Default: data,tensor on an array other than the paper's, else data,model. See"
            " list choices.",
        ),
    ] = None
    level_weights: Annotated[
        str | None,
        charge_option(
            metavar="W,W,...", help="Weight of a byte at each level, H1 first, as 8,4,2,1."
        ),
    ] = None
    fix: Annotated[
        list[str] | None,
        choice_option(
            metavar="LAYER[@LEVEL]=CHOICE",
            help="Pin a layer's parallelism, as fc1@H2=data; the layer may be a pattern."
            " Repeatable.",
        ),
    ] = None
    even: Annotated[
        bool,
        choice_option(
            "--even",
            help="Require every split to be even, of the batch and of channels, as compiled"
            " programs do.",
        ),
    ] = False
    runnable: Annotated[
        bool | None,
        choice_option(
            "--runnable/--uneven",
            help="Require every part to hold at least one image, channel or head; --uneven allows"
            " any split, as the paper does. Default: --runnable on an array other than the"
            " paper's, else --uneven.",
        ),
    ] = None
    # A string: it may be the word `array`, or have a unit.
    memory: Annotated[
        str | None,
        problem_option(
            metavar="BYTES",
            help="Memory capacity per accelerator, as 8GB or 512MiB; array: that of the array.",
        ),
    ] = None
    optimizer: Annotated[str, options.OPTIMIZER] = "sgd"


@dataclass(frozen=True, eq=False, repr=False)
class ProblemOptions(CostOptions, SizeOptions):
    """A problem: first its sizes, then its cost (fields of the last base class come first)."""

    degrees: Annotated[
        str | None,
        problem_option(
            metavar="tp=N,pp=P,dp=M",
            help="Pin Megatron-LM's plan: tensor parallelism N inside data parallelism M (default:"
            " all other accelerators). Also takes cp, ep, dp_replicate and dp_shard, and on an"
            " array pp stages of v chunks each.",
        ),
    ] = None
    share: Annotated[
        str | None,
        size_option(
            metavar="S",
            help="On an array of two groups of accelerators, the first group's share of what H1"
            " splits, as 0.3; with more groups all shares, as 0.2,0.3,0.5. Default: for time the"
            " best shares, else equal parts.",
        ),
    ] = None


@dataclass(frozen=True, eq=False, repr=False)
class SolvingOptions:
    """Options for solving a problem."""

    # An argument of the search, not a field of a problem, though its help is shown with those.
    place: Annotated[
        bool,
        size_option(
            "--place",
            help="Also optimise the placement: the assignment of levels to the array's bisections.",
        ),
    ] = False
    stages: Annotated[str | None, options.STAGES] = None
    cuts: Annotated[
        str | None,
        choice_option(
            metavar="BLOCK,...",
            help="With pp among --degrees: the layer or block at which each stage but the first"
            " begins, as decoder.10,decoder.22; with v chunks per stage, each chunk. Default:"
            " equal numbers of blocks.",
        ),
    ] = None
    solver: Annotated[
        str | None,
        solving_option(
            help="The algorithm that solves a cost table (see list solvers). Default: dp on a"
            " chain, cut on any other graph.",
            autocompletion=completion.solvers,
        ),
    ] = None
    # None: the default depends on the cost (decision 7).
    search: Annotated[
        str | None,
        solving_option(
            help="levelwise: each level given those above, as in the paper's Algorithm 2 (the"
            " default for bytes); joint: all levels together (for time and energy, and --reading"
            " joined).",
            autocompletion=completion.one_of("levelwise", "joint"),
        ),
    ] = None
    backend: Annotated[
        str | None,
        solving_option(help="The backend of ilp: cbc, highs, or another one that PuLP supports."),
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
            help="Relative optimality gap at which to stop, (total - bound) / total; 0 requires an"
            " optimum."
        ),
    ] = 0.0
    threads: Annotated[
        int | None, solving_option(help="Threads of the solver's backend (default 1).")
    ] = None
    seed: Annotated[int | None, solving_option(help="Random seed of the solver's backend.")] = None
    hint: Annotated[
        bool,
        solving_option("--hint", help="Start the solver from dp's solution of the same table."),
    ] = False


@dataclass(frozen=True, eq=False, repr=False)
class RunningOptions:
    """Options for running a step."""

    # None: the array's.
    collective: Annotated[
        str | None,
        running_option(
            help="All-reduce algorithm: pairwise (the paper's); ring (of a torus, those of all"
            " dimensions at once); one-ring; or hierarchical (a ring for each level of the"
            " hardware, in turn). Default: the array's.",
            autocompletion=completion.collectives,
        ),
    ] = None
    overlap: Annotated[
        str | None,
        running_option(
            help="Communication that overlaps with computation: none; gradient (the all-reduce of"
            " gradients, with the rest of the backward pass); branches (every exchange, with"
            " all that does not depend on it); or prefetch (a block's weights, gathered with the"
            " block before it, and gradients). Default: the array's, or none.",
            autocompletion=completion.overlaps,
        ),
    ] = None


@dataclass(frozen=True, eq=False, repr=False)
class TrainingOptions:
    """Options for what a training step keeps, and what it does in parts."""

    # None: the plan's, or what the memory of the array's accelerators needs.
    micro_batches: Annotated[
        int | None,
        running_option(
            metavar="M", help="Split the batch into M micro-batches, whose gradients accumulate."
        ),
    ] = None
    recompute: Annotated[
        str | None,
        running_option(
            metavar="WHAT",
            help="What the backward pass recomputes: none; selective (attention, where it writes"
            " its scores); op (in the network's blocks, everything but attention and products with"
            " weights: norms, activations, gates, sums); or full (all layers of the blocks). By"
            " layer or block: none,decoder.0=full.",
            autocompletion=completion.one_of(*RECOMPUTED),
        ),
    ] = None
    shard: Annotated[
        str | None,
        running_option(
            metavar="WHAT",
            help="What data parallelism shards: none; state (optimizer state: ZeRO-1); gradients"
            " (and state: ZeRO-2); or weights (all three: ZeRO-3, FSDP). weights@H4-H6 shards over"
            " these levels only and replicates above them; state+weights@H4-H6 also shards the"
            " state above; weights@node shards inside the nodes. By layer or block:"
            " state,head=weights.",
            autocompletion=completion.one_of(*SHARDED),
        ),
    ] = None
    schedule: Annotated[str | None, options.SCHEDULE] = None
    gather: Annotated[
        str | None,
        step_option(
            metavar="WHEN",
            help="Whether a tensor with several readers is gathered once and kept in the layout"
            " that they read, or kept as its writer stored it, such as by token, and gathered"
            " again in the backward pass: once or again. By writer or block: once,decoder=again."
            " Default: once; with --degrees of tensor parallelism again.",
            autocompletion=completion.one_of(*GATHERED),
        ),
    ] = None
    reduce_bytes: Annotated[int | None, options.REDUCE_BYTES] = None
