"""Whether a mask keeps a token from the tokens after it."""

from __future__ import annotations

import numpy as np

from hypar_opt.workload.onnx.budget import MOST_ELEMENTS
from hypar_opt.workload.onnx.constants import Constant


def masks_the_future(mask: Constant) -> bool:
    """Whether a constant that meets the scores is a causal mask.

    Its values tell: one above the diagonal of queries and keys, another on and below it. A mask
    whose values are not in the file is none.
    """
    if not mask.known or mask.elements > MOST_ELEMENTS or len(mask.shape) < 2:
        return False
    queries, keys = mask.shape[-2:]
    if queries != keys or keys < 2:
        return False
    square = mask.value.reshape(-1, queries, keys)[0]
    above = np.triu(np.ones((queries, keys), bool), 1)
    hidden, seen = square[above], square[~above]
    return bool((hidden == hidden[0]).all() and (seen == seen[0]).all() and hidden[0] != seen[0])
