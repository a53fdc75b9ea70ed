"""Activations of network files: a run computes what an exported module does."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hypar_opt.execution.jax import operations
from hypar_opt.execution.jax.tensors import ACTIVATIONS as IN_MODULES
from hypar_opt.workload.activations import ACTIVATIONS


def test_every_activation_is_in_both() -> None:
    assert IN_MODULES.keys() == ACTIVATIONS.keys()


@pytest.mark.parametrize("word", ACTIVATIONS)
def test_an_activation_and_its_slope_are_those_of_an_exported_module(word: str) -> None:
    in_module = eval(IN_MODULES[word], vars(operations) | {"jax": jax, "jnp": jnp})
    x = np.linspace(-7.3, 7.1, 301)
    value, slope = ACTIVATIONS[word]
    with jax.enable_x64(True):
        given = jnp.asarray(x)
        assert np.allclose(in_module(given), value(x), rtol=1e-12, atol=1e-12)
        (found,) = jax.vjp(in_module, given)[1](jnp.ones_like(given))
    assert np.allclose(found, slope(x), rtol=1e-9, atol=1e-12)
