"""Files that people write or keep: read strictly, written whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
import tomllib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from hypar_opt.errors import HyparError, InputError, UnknownNameError

LARGEST_SIZE = 2**31 - 1
"""Sizes and batches end here, so that every total still has a float beside it."""

Size = Annotated[int, Strict(), Field(ge=1, le=LARGEST_SIZE)]


class Document(BaseModel):
    """A table of a TOML or JSON file: frozen, every key known, every number finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    written_schema: ClassVar[str | None] = None
    """What a file's ``schema`` key says, as ``hypar-opt/plan/1``."""

    @model_validator(mode="before")
    @classmethod
    def _keys_are_known(cls, data: Any) -> Any:
        if isinstance(data, dict):
            if cls.written_schema is not None and "schema" in data:
                _check_schema(data["schema"], cls.written_schema)
            known = [field.alias or name for name, field in cls.model_fields.items()]
            for key in data:
                if key not in known:
                    raise rule(f"unknown key {key!r}; known: {', '.join(known)}")
        return data


def _check_schema(found: object, ours: str) -> None:
    """Refuse another schema, before anything in it that we may not know."""
    stem, _, version = ours.rpartition("/")
    theirs, _, number = str(found).rpartition("/") if isinstance(found, str) else ("", "", "")
    newer = number.isdecimal() and len(number) < 9 and int(number) > int(version)
    if theirs == stem and newer:
        raise rule(f"schema: {found!r} is newer than this version of hypar-opt reads ({ours!r})")
    if found != ours:
        raise rule(f"schema: should be {ours!r}, got {_shown(found)}")


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


_PLAIN = {
    "bool_type": "should be true or false",
    "float_type": "should be a number",
    "int_type": "should be a whole number",
    "model_attributes_type": "should be a table",
    "model_type": "should be a table",
    "none_required": "should be null",
    "string_type": "should be text",
    "too_short": "should have at least one entry",
    "tuple_type": "should be an array",
}
"""What pydantic says in Python's words, in those of the file."""


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
    problem = _PLAIN.get(error["type"]) or error["msg"].replace("Input should", "should")
    return ", ".join(where), f"{problem}, got {_shown(error['input'])}"


def _shown(value: object) -> str:
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except ValueError:  # more digits than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= 40 else text[:37] + "..."


def rule(problem: str) -> PydanticCustomError:
    """Return the error to raise in a validator whose message is already a whole line."""
    return PydanticCustomError("rule", "{problem}", {"problem": problem})


def _name(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise rule(f"should be a name in printable characters, got {value!r}")
    return value


def _printable(value: str) -> str:
    if not value.isprintable():
        raise rule(f"should be in printable characters, got {value!r}")
    return value


Name = Annotated[str, AfterValidator(_name), Field(json_schema_extra={"minLength": 1})]
Printable = Annotated[str, AfterValidator(_printable)]


Described = TypeVar("Described", bound=Document)


def find(
    what: str,
    described: str | Path | Described,
    kind: type[Described],
    names: Iterable[str],
    load: Callable[[str], Described],
    read: Callable[[Path], Described],
) -> Described:
    """Return a document as it is, one of those with names, in any case, or one of a file.

    Parameters
    ----------
    what
        What it is, for messages.

    Raises
    ------
    InputError
        If the file cannot be read or holds something else.
    UnknownNameError
        If there is neither such a name nor such a file; it suggests the nearest name.
    """
    if isinstance(described, kind):
        return described
    if not isinstance(described, str | Path):
        raise HyparError(f"{what} should be a name, a path or {kind.__name__}, got {described!r}")
    name, path = str(described), Path(described)
    if name.lower() in names:
        return load(name)
    if name and (path.suffix or len(path.parts) != 1 or exists(path)):
        return read(path)
    raise UnknownNameError(what, name, list(names))


def read_text(path: str | Path) -> str:
    """Read a UTF-8 file, or raise `InputError` naming it and the reason."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(path)) from None
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(f"should be UTF-8 text: {error}", file=str(path)) from None


def exists(path: Path) -> bool:
    """Return whether a path is there; one that cannot be looked up is, for reading to refuse."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return True


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


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file so that a reader sees all of it or what was there before.

    What is no regular file (a pipe, a device) is written to directly.

    Raises
    ------
    InputError
        Naming the file and the reason; what stood there is unharmed.
    """
    check_writable(path)
    target = Path(path)
    data = content.encode() if isinstance(content, str) else content
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        target = target.resolve()  # a link stays, what it leads to is replaced
        there = target.exists()
        draft = target.with_name(f".hypar-opt-{secrets.token_hex(8)}")
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            if there:
                draft.chmod(target.stat().st_mode)
            draft.replace(target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(path)) from None


def check_writable(path: str | Path) -> None:
    """Refuse a file that could not be written, before any work is done for it.

    Raises
    ------
    InputError
        Naming the file and what would be right.
    """
    target = Path(path)
    try:
        if str(target).startswith(("/dev/std", "/dev/fd", "/proc/")) or str(path) == "-":
            problem = "should be a file; --json prints to standard output"
            raise InputError(problem, file=str(path))
        with suppress(FileNotFoundError):
            target.stat()  # a loop of links, a name too long: the system says which
        if not str(path) or target.is_dir():
            raise InputError("should be a file, not a folder", file=str(path))
        folder = target.resolve().parent
        if not folder.is_dir():
            raise InputError(f"there is no folder {str(folder)!r}", file=str(path))
        if not os.access(target if target.exists() else folder, os.W_OK):
            raise InputError("cannot be written: Permission denied", file=str(path))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(path)) from None
