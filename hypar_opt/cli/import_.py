"""``hypar-opt import``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hypar_opt.cli import completion, options, output
from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network

EPILOG = (
    "Examples: [bold]hypar-opt import resnet50.onnx -o resnet50.toml[/bold];"
    " [bold]hypar-opt import gpt2.onnx --dim sequence=1024[/bold]"
)

MODEL = typer.Argument(
    metavar="MODEL.onnx",
    help="An ONNX model; its weights, and the files that hold them, are not read.",
    autocompletion=completion.onnx_files,
)
OUTPUT = options.file_option("-o", "--output", help="The network file (default: print it).")
DIM = typer.Option(
    metavar="NAME=N",
    help="The size of a dynamic dimension, as sequence=128. Repeatable. The batch size is not part"
    " of a network: --batch sets it when the network is used.",
)


def import_(
    model: Annotated[str, MODEL],
    output_file: Annotated[Path | None, OUTPUT] = None,
    dim: Annotated[list[str] | None, DIM] = None,
) -> None:
    from hypar_opt.documents.document import validate
    from hypar_opt.documents.files import check_outputs, write_whole
    from hypar_opt.documents.toml import toml_text
    from hypar_opt.onnx import read_model
    from hypar_opt.workload.network import Network

    check_outputs([model], output_file)
    content, notes = read_model(model, dict(map(_size, dim or [])))
    # Before anything is written: what is not a network is refused by its file's name.
    network = validate(Network, content, file=model)
    text = toml_text(content)
    for note in notes:
        output.note(f"{model}: {note}")
    if output_file is None:
        print(text, end="")
        output.note(_summary(network))
        return
    write_whole(output_file, text)
    print(_summary(network))


def _size(typed: str) -> tuple[str, int]:
    name, _, number = typed.rpartition("=")
    if not name or not number.isascii() or not number.isdecimal() or not 0 < len(number) < 10:
        raise HyparError(f"--dim should be NAME=N, as sequence=128; got {typed!r}")
    if not int(number):
        raise HyparError(f"--dim {name} should be at least 1")
    return name, int(number)


def _summary(network: Network) -> str:
    from hypar_opt.workload.description import describe
    from hypar_opt.workload.operators.maps import described

    total = describe(network, 1)["total"]
    vocabulary = getattr(network.input, "vocabulary", None)
    given = network.input.feature_map()
    shown = f"{given.tokens} tokens of {vocabulary:,}" if vocabulary else described(given)
    return (
        f"{network.name}: {len(network.layers)} layers, {total['parameters']:,} parameters,"
        f" {total['macs']:,} multiply-accumulates; input of {shown}"
    )
