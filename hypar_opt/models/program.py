"""PyTorch modules, and exported programs, as networks: by torch.export, without weights.

A module is traced on tensors that have shapes only, and its program is translated by torch.onnx,
whose model `hypar_opt.onnx` reads. Parameters are given no values, so that neither torch nor ONNX
folds them into others or writes equal ones once: what is tied is what the module ties.

Source: PyTorch's documentation of ``torch.export`` and of the PT2 archive.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile, ZipFile

from hypar_opt.checked import checked
from hypar_opt.errors import HyparError, InputError

if TYPE_CHECKING:
    from onnx import ModelProto

    from hypar_opt.workload.network import Network

MAX_ARCHIVE = 2**27
"""Bytes of a program without its parameters: its graph, and the values of buffers."""

_NEEDED = ("torch", "onnx", "onnxscript")
_CPU = {"type": "cpu", "index": None}
_NUMBER = bytes(16)
"""The longest number: a complex one of double precision."""

_CONFIGS = {
    "data/weights/": "data/weights/model_weights_config.json",
    "data/constants/": "data/constants/model_constants_config.json",
}
"""The tables of an archive's tensors, by the folder of their values."""


@checked
def from_torch(
    module: Any,
    *example: Any,
    kwargs: Mapping[str, Any] | None = None,
    output: str | Path | None = None,
    dims: Mapping[str, int] | None = None,
    loss: str | None = None,
    untie: bool = False,
    causal: bool = False,
) -> Network:
    """Return a PyTorch module as a network, whose layers have the names of its modules.

    Nothing is computed and no weight is read or copied, so that the module may be on the meta
    device. Training and evaluation give the same layers; ``not_kept`` lists dropout in training.

    Parameters
    ----------
    module
        A ``torch.nn.Module``, or a program that ``torch.export.export`` has returned.
    *example
        Its arguments, as for ``torch.export.export``: tensors of the sizes of a batch. They are
        moved to the module's device.
    kwargs
        Further arguments by name.
    output
        Also write this network file.
    dims
        The sizes of a program's dynamic dimensions by name.
    loss, untie, causal
        As for `hypar_opt.import_`.

    Raises
    ------
    HyparError
        Where PyTorch is not installed, or cannot export the module, with its reason.
    InputError
        Names the node and the operator that no network has.
    """
    from hypar_opt.documents.files import write_whole
    from hypar_opt.documents.toml import toml_text
    from hypar_opt.onnx import imported_model

    _check_installed("modules")
    import torch

    name = type(module).__name__
    if isinstance(module, torch.export.ExportedProgram):
        program = module
    elif isinstance(module, torch.nn.Module):
        program = _program(module, example, dict(kwargs or {}))
    else:
        raise HyparError(f"module should be a module of PyTorch's, got {name}")
    model = _translated(name, program, _without_values(program))
    imported = imported_model(
        name,
        dims,
        loss=loss,
        untie=untie,
        causal=causal,
        model=model,
        source=f"PyTorch module {name}",
    )
    if output is not None:
        write_whole(output, toml_text(imported.content))
    return imported.network


def read_program(path: str | Path, *, values: bool = False) -> ModelProto:
    """Read an exported program, written by ``torch.export.save``, as an ONNX model.

    Nothing that is pickled is read.

    Parameters
    ----------
    values
        Whether parameters have their values. The graph is the same.

    Raises
    ------
    HyparError
        Where PyTorch is not installed.
    InputError
        Says what is wrong with the file.
    """
    from hypar_opt.documents.files import record_read
    from hypar_opt.onnx.functions import line_of

    file = str(path)
    record_read(path)
    try:
        archive, without = _archive(path, values=values)
    except InputError as error:
        raise InputError(error.problem, where=error.where, file=file) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=file) from None
    except (BadZipFile, LookupError, TypeError, ValueError, AttributeError, RecursionError):
        problem = "should be a program that torch.export.save has written"
        raise InputError(problem, file=file) from None
    _check_installed(file)
    import torch

    try:
        with _silent():
            program = torch.export.load(archive)
    except Exception as error:
        # PyTorch raises whatever its deserializer finds.
        problem = f"torch.export.load cannot read it: {line_of(_root(error))}"
        raise InputError(problem, file=file) from None
    return _translated(file, program, without, values=values)


def _check_installed(purpose: str) -> None:
    if not all(map(find_spec, _NEEDED)):
        raise HyparError(f"{purpose}: PyTorch's models need: pip install 'hypar-opt[torch]'")


def _program(module: Any, example: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the program of a module."""
    import torch
    from torch.utils._pytree import tree_map_only

    from hypar_opt.onnx.functions import line_of

    tensors = [*module.parameters(), *module.buffers()]
    device = tensors[0].device if tensors else torch.device("cpu")
    try:
        # Tensors that the module makes are on its device, too: on the meta device no other fits.
        with _silent(), device:
            example, kwargs = tree_map_only(
                torch.Tensor, lambda tensor: tensor.detach().to(device), (example, kwargs)
            )
            return torch.export.export(module, example, kwargs)
    except Exception as error:
        # PyTorch raises whatever the module does.
        name = type(module).__name__
        raise HyparError(f"{name}: torch.export cannot export it: {line_of(error)}") from None


def _without_values(program: Any) -> set[str]:
    """Return the tensors of a program without values: its parameters, and those of no device."""
    from torch._subclasses.fake_tensor import is_fake

    names = {name for name, _ in program.named_parameters()}
    tensors = {**dict(program.named_buffers()), **program.constants}
    return names | {
        name for name, one in tensors.items() if getattr(one, "is_meta", False) or is_fake(one)
    }


def _translated(name: str, program: Any, without: set[str], *, values: bool = False) -> ModelProto:
    """Return a program as an ONNX model, in which some tensors have shapes only.

    Parameters
    ----------
    values
        Whether they have their values after all, which no step of the translation has seen.
    """
    import onnxscript
    import torch
    from onnx_ir.passes import common
    from onnxscript.rewriter.rules.common import (
        remove_optional_bias_from_conv_rule,
        remove_optional_bias_from_conv_transpose_rule,
    )

    from hypar_opt.onnx.functions import line_of
    from hypar_opt.onnx.model import parsed

    without_bias = (
        remove_optional_bias_from_conv_rule,
        remove_optional_bias_from_conv_transpose_rule,
    )
    try:
        with _silent():
            translated = torch.onnx.export(program, dynamo=True, optimize=False, verbose=False)
            initialisers = translated.model.graph.initializers
            values_by_name = {}
            for initialiser in without & initialisers.keys():
                value = initialisers[initialiser].const_value
                values_by_name[initialiser] = (
                    value
                    if values
                    else onnxscript.ir.ExternalTensor(
                        "", None, None, value.dtype, shape=value.shape, name=initialiser
                    )
                )
                initialisers[initialiser].const_value = None
            # As `translated.optimize`, whose search for all its patterns is half of the time. One
            # is needed: convolutions without a bias are translated with one of zeros.
            onnxscript.optimizer.inline(translated.model)
            onnxscript.optimizer.fold_constants(translated.model)
            onnxscript.rewriter.rewrite(translated.model, without_bias)
            for simplified in (
                common.RemoveUnusedNodesPass(),
                common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
                common.DeduplicateInitializersPass(),
                common.CommonSubexpressionEliminationPass(),
            ):
                simplified(translated.model)
            for initialiser, value in translated.model.graph.initializers.items():
                if value.const_value is None:
                    value.const_value = values_by_name[initialiser]
            data = onnxscript.ir.to_proto(translated.model).SerializeToString()
    except Exception as error:
        # PyTorch raises whatever its exporter does.
        raise HyparError(
            f"{name}: torch.onnx cannot translate it: {line_of(_root(error))}"
        ) from None
    try:
        return parsed(data)
    except InputError as error:
        raise InputError(error.problem, where=error.where, file=name) from None


def _root(error: BaseException) -> Any:
    """Return the root cause behind errors that only name the step."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


@contextmanager
def _silent() -> Iterator[None]:
    """Silence PyTorch's warnings, such as those of optional packages not installed."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.WARNING))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _archive(path: str | Path, *, values: bool) -> tuple[BytesIO, set[str]]:
    """Return a program's archive, and its parameters, which have no values unless they should.

    Devices are the CPU, wherever it was exported.
    """
    copy, without = BytesIO(), set[str]()
    with ZipFile(path) as archive, ZipFile(copy, "w") as written:
        # Names begin with that of the file when it was written.
        names = {name.partition("/")[2]: name for name in archive.namelist()}
        sizes = {name: archive.getinfo(names[name]).file_size for name in names}
        remaining = MAX_ARCHIVE

        def read(name: str) -> bytes:
            nonlocal remaining
            remaining -= sizes[name]
            if remaining < 0 and not values:
                limit = MAX_ARCHIVE // 2**20
                raise InputError(f"should have at most {limit} MiB besides its parameters")
            return archive.read(names[name])

        def write(name: str, data: bytes) -> None:
            written.writestr(f"model/{name}", data)

        for folder, name in _CONFIGS.items():
            tensors = json.loads(read(name), object_hook=_on_cpu)["config"]
            for place, (tensor, one) in enumerate(sorted(tensors.items())):
                data = folder + one["path_name"]
                if one["use_pickle"] or one["tensor_meta"] is None:
                    raise InputError("is pickled, and not read", where=f"tensor {tensor!r}")
                empty = not sizes[data]
                if one["is_param"] or empty:
                    without.add(tensor)
                    empty = empty or not values
                if empty:
                    # One number, read over and over, has any shape without memory.
                    data = f"{folder}{one['path_name']}_{place}"
                    one["path_name"] = data.removeprefix(folder)
                    rank = len(one["tensor_meta"]["sizes"])
                    one["tensor_meta"]["strides"] = [{"as_int": 0}] * rank
                    one["tensor_meta"]["storage_offset"] = {"as_int": 0}
                if f"model/{data}" not in written.namelist():
                    write(data, _NUMBER if empty else read(data))
            write(name, json.dumps({"config": tensors}).encode())
        model = json.loads(read("models/model.json"), object_hook=_on_cpu)
        write("models/model.json", json.dumps(model).encode())
        # Pickled, and not needed.
        write("data/sample_inputs/model.pt", b"")
        for name in ("archive_format", "archive_version", "byteorder", ".data/version"):
            write(name, read(name))
    copy.seek(0)
    return copy, without


def _on_cpu(one: dict[str, Any]) -> dict[str, Any]:
    return _CPU if one.keys() == {"type", "index"} else one
