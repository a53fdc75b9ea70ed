"""The zoo: the ten networks of the paper, and today's, one TOML file each.

Source: section 6.1, with the shapes that the paper's figures imply; each file's ``source``.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from hypar_opt.workload.network import Network

PAPER_NETWORKS = (
    *("sfc", "sconv", "lenet-c", "cifar-c", "alexnet"),
    *("vgg-a", "vgg-b", "vgg-c", "vgg-d", "vgg-e"),
)
"""The paper's ten, in the order of its figures, which is neither alphabetical nor a folder's."""


@cache
def names() -> tuple[str, ...]:
    """The zoo's names, the paper's ten in the paper's order, then any further file."""
    packaged = {
        f.name.removesuffix(".toml") for f in files(__name__).iterdir() if f.name.endswith(".toml")
    }
    return (*PAPER_NETWORKS, *sorted(packaged.difference(PAPER_NETWORKS)))


def named(word: str) -> tuple[str, ...]:
    """Return the networks that a word stands for: ``all``, ``paper``, or itself."""
    return {"all": names(), "paper": PAPER_NETWORKS}.get(word, (word,))


def load(name: str) -> Network:
    """Return a network of the zoo by its name, in any case.

    Raises
    ------
    UnknownNameError
        Suggesting the nearest name.
    """
    # Imported late, as below: listing names must not import pydantic (`--help` stays quick).
    from hypar_opt.documents import load_preset
    from hypar_opt.workload.network import Network

    return load_preset("network", Network, __name__, names(), name)


def find_network(network: str | Path | Network) -> Network:
    """Return a network of the zoo by its name, in any case, or read a network file.

    Raises
    ------
    InputError
        If the file cannot be read or is no network.
    UnknownNameError
        If there is neither such a name nor such a file; it suggests the nearest name.
    """
    from hypar_opt.documents import find
    from hypar_opt.workload.network import Network, read_network

    return find("network", network, Network, names(), load, read_network)
