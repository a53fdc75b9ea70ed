"""The four readings of the paper's communication model: one model, a row of numbers each.

The paper prints, for the exchange between the two halves of a group at one level,

* Table 1, intra-layer: A(dW_l) in data parallelism, A(F_{l+1}) in model parallelism;
* Table 2, inter-layer: dp-dp 0; dp-mp 0.25 A(F_{l+1}) + 0.25 A(E_{l+1});
  mp-mp 0.5 A(E_{l+1}); mp-dp 0.5 A(E_{l+1}),

with A(.) the number of elements. Its text, its figures and a run on real tensors each
count these exchanges differently:

``tables``
    Tables 1 and 2 to the letter: what one side fetches. Also the objective of the
    authors' later AccPar.
``text``
    Intra-layer exchanges count both directions, as the worked example does (section 3.4:
    56 KB = 2 x 70 x 100 x 4 B); inter-layer exchanges as printed. The default without an array,
    and on the paper's.
``figures``
    What Figures 5 to 13 imply: both directions throughout, and no charge for mp-mp and
    mp-dp. Reproduces all 40 rows of Figure 5.
``executed``
    What a program that runs the plan well moves, all directions added; the default on every
    other array. It reduce-scatters partial sums, before the pool, into the layout that the next
    layer reads, and all-gathers the error on its way back; so mp-mp and mp-dp move nothing more.
    ``figures``, but for the maps in front of pools.

`docs/decisions/0003-readings.md` says why there are four and what each reproduces.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Phase(StrEnum):
    """The three passes of a training step.

    Source: section 3.1; docs/simulator.md.
    """

    FORWARD = "forward"
    """Model parallelism's partial sums; the feature-map half of dp-mp."""
    BACKWARD = "backward"
    """The error half of dp-mp; all of mp-mp and mp-dp; the errors that a run all-gathers."""
    GRADIENT = "gradient"
    """Data parallelism's all-reduce of gradients."""


TRAINING = (Phase.FORWARD, Phase.BACKWARD, Phase.GRADIENT)
INFERENCE = (Phase.FORWARD,)


@dataclass(frozen=True)
class Reading:
    """What one reading charges, in quarters of an element so that all are whole numbers.

    Parameters
    ----------
    gradient
        A layer in data parallelism, per element of dW.
    partial_sum
        A layer in model parallelism, per element of its output: all-reduced forward, or
        reduce-scattered where the error is gathered.
    gathered_error
        A layer in model parallelism, per element of its output: the error that is all-gathered
        backward, the dual of the reduce-scatter.
    data_model
        A boundary from data to model parallelism, per element of A, in each of the two
        passes that exchange: feature maps forward, errors backward.
    model_model, model_data
        The two boundaries behind model parallelism: errors, backward.
    input_error
        A layer in output parallelism, per element of its own input: the error that leaves it
        is a partial sum. None where the reading has no such choice.
    first_input_error
        Whether that is charged for a network's first layer too, although nobody needs the
        error of the network's input: the convention of AccPar.
    before_pool
        Whether a layer's output is counted before pooling, where a run reduces it, or after.
    """

    gradient: int
    partial_sum: int
    data_model: int
    model_model: int
    model_data: int
    input_error: int | None = None
    first_input_error: bool = False
    gathered_error: int = 0
    before_pool: bool = False


READINGS = MappingProxyType(
    {
        "text": Reading(8, 8, data_model=1, model_model=2, model_data=2, input_error=8),
        "tables": Reading(
            4, 4, data_model=1, model_model=2, model_data=2, input_error=4, first_input_error=True
        ),
        "figures": Reading(8, 8, data_model=2, model_model=0, model_data=0),
        "executed": Reading(
            8, 4, data_model=2, model_model=0, model_data=0, gathered_error=4, before_pool=True
        ),
    }
)
