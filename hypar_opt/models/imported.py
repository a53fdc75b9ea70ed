"""Imports of models as network files: ONNX, PyTorch programs, and config.json files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypar_opt.checked import checked
from hypar_opt.documents.files import check_outputs, read_text, write_whole
from hypar_opt.documents.kinds import check_kind
from hypar_opt.errors import HyparError, InputError, argument

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypar_opt.workload.network import Network


def read_model(
    path: str | Path,
    dims: Mapping[str, int] | None = None,
    *,
    loss: str | None = None,
    untie: bool = False,
    causal: bool = False,
) -> tuple[dict[str, Any], list[str]]:
    """Read a model as the content of a network file, with notes on what was left out.

    Parameters
    ----------
    path
        The model's file: its ``config.json`` (``-`` is one on standard input), ONNX, or a program
        that ``torch.export.save`` has written; files beside it that hold weights are not read.
    dims
        The sizes of its dynamic dimensions by name; the batch is not a dimension of a network.
    loss
        ``cross-entropy`` or ``squared-error``, in place of what the model's end suggests.
    untie
        Give layers that share weights in the file weights of their own, except a head that shares
        an embedding's.
    causal
        Take masks of attention whose values are not known to hide all later tokens.

    Raises
    ------
    HyparError
        If a configuration is read, which has no such choices, and one is stated.
    InputError
        Names the file, the node and the operator, or the key, and says what would be right.
    """
    if str(path).endswith(".toml"):
        check_kind("model", read_text(path), str(path))
        models = "an ONNX model, a program of PyTorch's (.pt2) or a config.json"
        raise InputError(f"is TOML, and should be {models}", file=str(path))
    if str(path) != "-" and not str(path).endswith(".json"):
        from hypar_opt.onnx import imported_model

        model, source = None, ""
        if str(path).endswith(".pt2"):
            from hypar_opt.models.program import read_program

            model, source = read_program(path), f"PyTorch program {Path(path).name}"
        imported = imported_model(
            path, dims, loss=loss, untie=untie, causal=causal, model=model, source=source
        )
        return imported.content, imported.notes
    from hypar_opt.models.config import read_config
    from hypar_opt.workload.omitted import sentences

    stated = {"dims": dims, "loss": loss, "untie": untie, "causal": causal}
    for name, value in stated.items():
        if value:
            raise HyparError(f"{argument(name)} goes with an ONNX model, or a program of PyTorch's")
    content = read_config(path)
    return content, [*sentences(content.get("not_kept", ()), content.get("remarks", ()))]


@checked
def import_(
    model: str | Path,
    output: str | Path | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    loss: str | None = None,
    untie: bool = False,
    causal: bool = False,
    parameters: int | None = None,
) -> Network:
    """Return a model as a network, as ``hypar-opt import`` does (a keyword in Python).

    The network's ``not_kept`` and ``remarks`` say what was left out, and how it was read.

    Parameters
    ----------
    model
        The model's file: its ``config.json``, ONNX, or a program that ``torch.export.save`` has
        written.
    output
        Also write this network file.
    dims, loss, untie, causal
        As for `read_model`.
    parameters
        How many the model has.

    Raises
    ------
    HyparError, InputError
        As `read_model`, or if the network has more or fewer parameters.
    """
    from hypar_opt.documents.document import validate
    from hypar_opt.documents.files import file_name
    from hypar_opt.documents.toml import toml_text
    from hypar_opt.workload.network import Network

    check_outputs([model], output)
    content, _ = read_model(model, dims, loss=loss, untie=untie, causal=causal)
    # Before anything is written: what is not a network is refused by its file's name.
    network = validate(Network, content, file=file_name(model))
    check_parameters(network, parameters, file_name(model))
    if output is not None:
        write_whole(output, toml_text(content))
    return network


def check_parameters(network: Network, stated: int | None, file: str) -> None:
    """Check that a network has the stated number of parameters."""
    from hypar_opt.workload.description import describe

    if stated is None:
        return
    count: int = describe(network, 1)["total"]["parameters"]
    if count == stated:
        return
    difference = f"{abs(count - stated):,} {'more' if count > stated else 'fewer'} than {stated:,}"
    raise HyparError(
        f"{file}: the network has {count:,} parameters, {difference}: exporters fold norms into"
        " convolutions and write equal tensors once, and a tied weight twice"
    )
