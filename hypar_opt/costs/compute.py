"""The memory of an accelerator as the paper counts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.integers import exact_dtype
from hypar_opt.workload.layouts import FIRST_SPLIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hypar_opt.integers import Integers
    from hypar_opt.plan.problem import ProblemFields
    from hypar_opt.workload.tensors import Workload


def memory_load(workload: Workload, parts: Integers, problem: ProblemFields) -> Integers:
    """Return each layer's share of an accelerator's memory, in bytes of all accelerators together.

    An accelerator holds its part of the weights, as many gradients and the optimizer's state for
    each; of the input, and of the output before pooling, feature map and error of both. Inference
    has no gradients, errors or state. Multiplied by the number of accelerators these are integers,
    also for states of fewer levels: at the other levels each part has a copy.

    Parameters
    ----------
    parts : (choices, layers)
        Into how many parts each layer's choices split it, at most the accelerators together.
    problem
        Its levels, element bytes, optimizer, and whether it is inference, are used.
    """
    element_bytes = problem.element_bytes
    accelerators = problem.hierarchy.accelerators
    each = 2 * element_bytes + problem.constraints.optimizer_bytes(element_bytes)
    dtype = exact_dtype(each * workload.elements * accelerators)
    parts = parts.astype(dtype)
    undecided = accelerators // parts.prod(axis=0)

    def held(elements: tuple[int, ...], numbers: NDArray[np.intp]) -> Integers:
        copied = np.where(numbers < FIRST_SPLIT, parts, 1).prod(axis=0)
        load: Integers = np.array(elements, dtype) * copied * undecided
        return load

    return load_of(workload, problem, held).astype(object)


def load_of(
    workload: Workload,
    problem: ProblemFields,
    held: Callable[[tuple[int, ...], NDArray[np.intp]], Integers],
) -> Integers:
    """Return the bytes of memory of what `held` counts: the elements of each layer's tensor.

    It is given a tensor's elements by node, and the layouts of the tensor by choice and node.
    """
    layouts, element_bytes = workload.layouts, problem.element_bytes
    shard = held(workload.stored, layouts.weight)
    maps = held(workload.outputs, layouts.output)
    for elements, numbers in zip(workload.operand_sizes, layouts.inputs, strict=True):
        maps = maps + held(elements, numbers)
    load: Integers = element_bytes * (shard + maps)
    if not problem.inference:
        # Gradients are as large as weights, and errors as feature maps.
        load = 2 * load + problem.constraints.optimizer_bytes(element_bytes) * shard
    return load
