"""Files that people write or keep: read strictly, written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from hypar_opt.errors import InputError

LARGEST_SIZE = 2**31 - 1
"""Sizes and batches end here, so that every total still has a float beside it."""

Size = Annotated[int, Strict(), Field(ge=1, le=LARGEST_SIZE)]


class Document(BaseModel):
    """A table of a TOML or JSON file: frozen, every key known, every number finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _keys_are_known(cls, data: Any) -> Any:
        if isinstance(data, dict):
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for key in data:
                if key not in known:
                    raise rule(f"unknown key {key!r}; known: {', '.join(known)}")
        return data


def schema_name(kind: str, version: int) -> Callable[[object], object]:
    """Check of a document's ``schema`` key: ours, or refused with the reason."""
    ours = f"hypar-opt/{kind}/{version}"

    def check(found: object) -> object:
        if found == ours:
            return found
        stem, _, number = str(found).rpartition("/")
        if stem == f"hypar-opt/{kind}" and number.isdecimal() and int(number) > version:
            problem = f"{found!r} is newer than this version of hypar-opt reads ({ours!r})"
        else:
            problem = f"should be {ours!r}, got {found!r}"
        raise rule(problem)

    return check


Doc = TypeVar("Doc", bound=BaseModel)


def validate(model: type[Doc], data: object, *, file: str | None = None) -> Doc:
    """Make a document of parsed data, or say in one line what is wrong with it.

    Raises
    ------
    InputError
        Naming the file, the place and the key, and what would be right.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where, problem = _describe(first, data)
        raise InputError(problem, where=where, file=file) from None


def _describe(error: ErrorDetails, data: object) -> tuple[str, str]:
    """Return the place, in the file's own words, and what would be right there."""
    where: list[str] = []
    at: Any = data
    loc = error["loc"]
    for depth, part in enumerate(loc):
        if isinstance(part, int):
            if not isinstance(at, list | tuple):
                continue  # one number standing for a pair
            at = at[part] if part < len(at) else None
            named = isinstance(at, dict) and isinstance(at.get("name"), str)
            where[-1:] = [f"{where[-1]} {at['name']!r}" if named else f"{where[-1]}[{part}]"]
        elif isinstance(at, dict) and part in at:
            at = at[part]
            where.append(part)
        elif depth == len(loc) - 1 and error["type"] == "missing":
            return ", ".join(where), f"missing key {part!r}"
        # What is left is pydantic's name of a member of a union, which no file holds.
    context = error.get("ctx", {})
    match error["type"]:
        case "union_tag_not_found":
            return ", ".join(where), f"missing key {context['discriminator']}"
        case "union_tag_invalid":
            key = str(context["discriminator"]).strip("'")
            problem = f"should be one of {context['expected_tags']}, got {context['tag']!r}"
            return ", ".join([*where, key]), problem
        case "rule":
            return ", ".join(where), error["msg"]
    shown = json.dumps(error["input"], default=str, ensure_ascii=False)
    shown = shown if len(shown) <= 40 else shown[:37] + "..."
    return ", ".join(where), f"{error['msg'].replace('Input should', 'should')}, got {shown}"


def rule(problem: str) -> PydanticCustomError:
    """Return the error to raise in a validator whose message is already a whole line."""
    return PydanticCustomError("rule", "{problem}", {"problem": problem})


def read_text(path: str | Path) -> str:
    """Read a UTF-8 file, or raise `InputError` naming it and the reason."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(path)) from None
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(f"should be UTF-8 text: {error}", file=str(path)) from None


def parse_toml(text: str, *, file: str) -> dict[str, Any]:
    """Parse TOML, or raise `InputError` naming the line."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise InputError(f"should be TOML: {error}", file=file) from None


def parse_json(text: str, *, file: str) -> Any:
    """Parse JSON without NaN, infinities or a key given twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        if len(table) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"key {twice!r} is given twice")
        return table

    def finite(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON number")

    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=finite)
    except (ValueError, RecursionError) as error:
        raise InputError(f"should be JSON: {error}", file=file) from None


def write_whole(path: str | Path, text: str) -> None:
    """Write a file so that a reader sees all of it or what was there before.

    What is no regular file (a pipe, ``/dev/stdout``) is written to directly.

    Raises
    ------
    InputError
        Naming the file and the reason; what stood there is unharmed.
    """
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        target = target.resolve()  # a link stays, what it leads to is replaced
        mode = target.stat().st_mode if target.exists() else 0o666 & ~_umask()
        handle, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            Path(draft).chmod(mode)
            Path(draft).replace(target)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(path)) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
