"""``hypar-opt import``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hypar_opt.cli import completion, inputs, options, output

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network

EXAMPLES = (
    "hypar-opt import resnet50.onnx -o resnet50.toml",
    "hypar-opt import gpt2.onnx --dim sequence=1024",
    "hypar-opt import config.json -o llama.toml",
)


MODEL = typer.Argument(
    metavar="MODEL",
    help="An ONNX model, a program that torch.export has saved (.pt2), or the config.json of a"
    " language model; weights are not read.",
    autocompletion=completion.imported,
)
OUTPUT = options.result_option(help="The network file (default: print it).")
LOSS = typer.Option(
    help="The loss, which a model's file does not contain: cross-entropy (with the final softmax)"
    " or squared-error (half the squared distance from targets). Default: what the model's last"
    " layer suggests.",
    autocompletion=completion.one_of("cross-entropy", "squared-error"),
)
UNTIE = typer.Option(
    "--untie",
    help="Untie layers that share weights in the file, except a head tied to an embedding."
    " Exporters write equal tensors once.",
)
CAUSAL = typer.Option(
    "--causal",
    help="Assume that attention masks whose values the file lacks are causal.",
)
PARAMETERS = typer.Option(
    "--parameters",
    metavar="N",
    help="The model's number of parameters: a network with more or fewer is refused.",
)


def import_(
    model: Annotated[str, MODEL],
    output_file: Annotated[Path | None, OUTPUT] = None,
    dim: options.DIM = None,
    loss: Annotated[str | None, LOSS] = None,
    untie: Annotated[bool, UNTIE] = False,
    causal: Annotated[bool, CAUSAL] = False,
    parameters: Annotated[int | None, PARAMETERS] = None,
) -> None:
    from hypar_opt.documents.document import validate
    from hypar_opt.documents.files import check_outputs, write_whole
    from hypar_opt.documents.toml import toml_text
    from hypar_opt.models.imported import check_parameters, read_model
    from hypar_opt.workload.network import Network

    check_outputs([model], output_file)
    dims = inputs.dimensions(dim)
    content, notes = read_model(model, dims, loss=loss, untie=untie, causal=causal)
    # Before anything is written: what is not a network is refused by its file's name.
    network = validate(Network, content, file=model)
    check_parameters(network, parameters, model)
    text = toml_text(content)
    for note in notes:
        output.note(f"{model}: {note}")
    if output_file is None:
        output.print_text(text)
        output.note(_summary(network))
        return
    write_whole(output_file, text)
    output.print_line(_summary(network))


def _summary(network: Network) -> str:
    from hypar_opt.workload.description import describe
    from hypar_opt.workload.operators.maps import described

    total = describe(network, 1)["total"]
    vocabulary = getattr(network.input, "vocabulary", None)
    input_map, names = network.input.feature_map(), network.input_names
    shown = f"{input_map.tokens} tokens of {vocabulary:,}" if vocabulary else described(input_map)
    further = (f"{name} of {described(network.map_of(~n))}" for n, name in enumerate(names) if n)
    shown = ", ".join([shown, *further])
    return (
        f"{network.name}: {len(network.layers)} layers, {total['parameters']:,} parameters,"
        f" {total['macs']:,} multiply-accumulates; input of {shown}"
    )
