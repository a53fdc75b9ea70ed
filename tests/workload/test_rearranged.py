"""Images enlarged by repeating their pixels, and maps seen as others."""

from __future__ import annotations

import numpy as np
import pytest

import hypar_opt as ho
from tests.execution.drawn import drawn_programs, run_as_one_device
from tests.execution.small_networks import enlarged, rearranged
from tests.execution.virtual.test_arithmetic import (
    assert_gradients_are_slopes,
    one_device,
    stated,
)

NETWORK, VIEWS = enlarged(), rearranged()


def test_each_pixel_is_a_block_of_equal_ones() -> None:
    _, up, *_ = one_device(NETWORK, *stated(NETWORK)).outputs.values()
    conv, *_ = one_device(NETWORK, *stated(NETWORK)).outputs.values()
    assert np.array_equal(up[1][0], np.kron(conv[1][0], np.ones((1, 1, 2, 3))))


def test_the_error_of_a_pixel_is_the_sum_of_its_blocks() -> None:
    assert_gradients_are_slopes(NETWORK, seed=0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("network", [NETWORK, VIEWS], ids=lambda one: one.name)
def test_bytes_and_numbers_are_those_modelled_and_of_one_device(
    network: ho.Network, seed: int
) -> None:
    for program in drawn_programs(network, seed, 2, ((2,), (2, 2))):
        run_as_one_device(network, program, seed)
