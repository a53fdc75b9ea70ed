"""Documents of TOML and JSON: validated strictly, with one-line errors."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast

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

from hypar_opt.documents.files import (
    exists,
    is_standard_input,
    read_text,
    record_read,
    take_standard_input,
)
from hypar_opt.documents.parsing import parse_toml, shown
from hypar_opt.errors import (
    HyparError,
    InputError,
    UnknownNameError,
    argument_option,
    unknown,
    worded,
)
from hypar_opt.frozen import FrozenDict

LARGEST_SIZE = 2**31 - 1
"""The largest size or batch, so that every total still has a finite float."""

Size = Annotated[int, Strict(), Field(ge=1, le=LARGEST_SIZE)]
Positive = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]

ELEMENT_BYTES = (1, 2, 4, 8)
"""Bytes that an element of a tensor may have."""


def _element_bytes(value: int) -> int:
    if value not in ELEMENT_BYTES:
        raise rule(f"should be one of {', '.join(map(str, ELEMENT_BYTES))}, got {value}")
    return value


ElementBytes = Annotated[int, Strict(), AfterValidator(_element_bytes)]


class Document(BaseModel):
    """A table of a TOML or JSON file: frozen, without unknown keys or infinite numbers."""

    # A validator is built when a model is first used: a call uses some of them.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    written_schema: ClassVar[str | None] = None
    """The newest value of a file's ``schema`` key that is read, such as ``hypar-opt/plan/1``."""

    read_schemas: ClassVar[tuple[str, ...]] = ()
    """Older values that are read too."""

    def __init__(self, /, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise _error_of(error, fields) from None

    # pydantic's own, so that it goes on to validate without calling it.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __setattr__(self, name: str, value: object) -> None:
        # Fields are frozen; so is what is derived of them, which pydantic would let be set.
        raise AttributeError(f"{name}: cannot be set; model_copy(update=...) makes another")

    def __str__(self) -> str:
        return repr(self)

    @model_validator(mode="before")
    @classmethod
    def _keys_are_known(cls, data: Any) -> Any:
        if isinstance(data, dict):
            written, older = cls.written_schema, cls.read_schemas
            if written is not None and "schema" in data and data["schema"] not in older:
                # First of all: a newer schema's keys would only be reported as unknown.
                _check_schema(data["schema"], written)
            keys = _keys(cls)
            for key in data:
                if key not in keys:
                    raise rule(unknown("key", key, list(keys)))
        return data

    # A copy gets other values of fields (`model_copy`): what was derived of the former ones, which
    # pydantic keeps beside them, is not its own. Nor does it travel to another process.
    def __copy__(self) -> Self:
        copied = super().__copy__()
        for derived in vars(copied).keys() - type(self).model_fields.keys():
            del vars(copied)[derived]
        return copied

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self.__copy__()  # all that it holds is frozen

    def __getstate__(self) -> dict[Any, Any]:
        return {**super().__getstate__(), "__dict__": dict(vars(self.__copy__()))}


@cache
def _keys(document: type[Document]) -> dict[str, None]:
    """Return a document's keys, in order."""
    return dict.fromkeys(field.alias or name for name, field in document.model_fields.items())


def _check_schema(value: object, supported: str) -> None:
    """Refuse another schema; the message distinguishes a newer version from another format."""
    stem, _, version = supported.rpartition("/")
    theirs, _, number = str(value).rpartition("/") if isinstance(value, str) else ("", "", "")
    # The length is limited since int() refuses strings of thousands of digits.
    newer = number.isdecimal() and len(number) < 9 and int(number) > int(version)
    if theirs == stem and newer:
        raise rule(
            f"schema: {value!r} is newer than this version of hypar-opt reads ({supported!r})"
        )
    if value != supported:
        raise rule(f"schema: should be {supported!r}, got {shown(value)}")


Doc = TypeVar("Doc", bound=BaseModel)


def validate(model: type[Doc], data: object, *, file: str | None = None) -> Doc:
    """Return a document of parsed data, or raise a one-line error.

    Raises
    ------
    InputError
        Naming the file, the location and the key, and what would be right.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise _error_of(error, data, file) from None


def _error_of(error: ValidationError, data: object, file: str | None = None) -> InputError:
    """Return a one-line message of the first error, which is the one to correct first."""
    where, problem = _describe(error.errors(include_url=False)[0], data, in_file=file is not None)
    if file is None:
        if not where and (stated := _OF_ALL.fullmatch(problem)):
            where, problem = stated.groups()
        if field := _ARGUMENT.fullmatch(where):
            where = worded(where, argument_option(field[1]))
    return InputError(problem, where=where, file=file)


_ARGUMENT = re.compile(r"(?:constraints, )?([a-z_]+)(?:\[\d+\])?")
"""Where a problem's argument or a solver's option is."""

_OF_ALL = re.compile(r"([a-z_]+): (.*)", re.DOTALL)
"""The form of a message about one key from a validator of all keys."""


_PLAIN = {
    "bool_type": "should be true or false",
    "float_type": "should be a number",
    "int_type": "should be a whole number",
    "model_attributes_type": "should be a table",
    "model_type": "should be a table",
    "none_required": "should be null",
    "string_type": "should be text",
    "too_long": "should have at most one entry",
    "too_short": "should have at least one entry",
    "tuple_type": "should be an array",
}
"""pydantic's messages in the words of a file."""

_PYTHON = _PLAIN | {
    "bool_type": "should be True or False",
    "model_attributes_type": "should be a mapping",
    "model_type": "should be a mapping",
    "none_required": "should be None",
    "string_type": "should be a string",
    "tuple_type": "should be a list",
}
"""The same in Python's words: there an array is one of accelerators."""


def _describe(error: ErrorDetails, data: object, *, in_file: bool) -> tuple[str, str]:
    """Return the location, in the file's own keys, and what is expected there."""
    where: list[str] = []
    # Walk down pydantic's location beside the data, to name an entry of a list by its name.
    value_here: Any = data
    loc = error["loc"]
    for depth, part in enumerate(loc):
        if isinstance(part, int):
            if not isinstance(value_here, list | tuple):
                continue  # one number that stands for a pair
            value_here = value_here[part] if part < len(value_here) else None
            named = isinstance(value_here, dict) and isinstance(value_here.get("name"), str)
            where[-1:] = [
                f"{where[-1]} {value_here['name']!r}" if named else f"{where[-1]}[{part}]"
            ]
        elif isinstance(value_here, dict) and part in value_here:
            value_here = value_here[part]
            where.append(part)
        elif depth == len(loc) - 1 and error["type"] == "missing":
            return ", ".join(where), f"missing key {part!r}"
        # Other parts are pydantic's names of a union's members, which are in no file.
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
    plain = _PLAIN if in_file else _PYTHON
    problem = plain.get(error["type"]) or error["msg"].replace("Input should", "should")
    if error["type"] == "float_type" and type(error["input"]) is int:
        problem = f"{problem} of at most 1.8e308"
    return ", ".join(where), f"{problem}, got {shown(error['input'])}"


def digest_of(content: Mapping[str, Any]) -> str:
    """Return a SHA-256 of a document's content, which the layout of its file does not affect."""
    # Sorted and without spaces: equal contents must give equal text.
    canonical_json = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(canonical_json.encode()).hexdigest()


def rule(problem: str) -> PydanticCustomError:
    """Return the error for a validator to raise; its message is used as it is."""
    # Command-line arguments that are not UTF-8 contain surrogates, which pydantic rejects.
    problem = problem.encode(errors="backslashreplace").decode()
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


Key = TypeVar("Key")
Value = TypeVar("Value")
Table = Annotated[Mapping[Key, Value], AfterValidator(FrozenDict)]
"""A field that is a mapping, which cannot be changed in place."""

Described = TypeVar("Described", bound=Document)


def find(
    noun: str,
    described: str | Path | Described,
    kind: type[Described],
    names: Iterable[str],
    load: Callable[[str], Described],
    read: Callable[[Path], Described],
) -> Described:
    """Return a document: given as an object, by a preset's name in any case, or by a path.

    The path ``-`` is standard input.

    Parameters
    ----------
    noun
        The kind of document, for messages.

    Raises
    ------
    InputError
        If the file cannot be read or is another kind of document.
    UnknownNameError
        If there is neither such a name nor such a file; it suggests the nearest name.
    """
    if isinstance(described, kind):
        return described
    if not isinstance(described, str | Path):
        raise HyparError(f"{noun} should be a name, a path or {kind.__name__}, got {described!r}")
    name, path = str(described), Path(described)
    if name.lower() in names:
        return load(name)
    if is_standard_input(name):
        take_standard_input(noun)
        return read(path)
    # A suffix, a folder or an existing file means a path, and its error; else a misspelt name.
    if name and (path.suffix or len(path.parts) != 1 or exists(path)):
        return read(path)
    raise UnknownNameError(noun, name, list(names))


def load_preset(
    noun: str, kind: type[Described], package: str, names: Collection[str], name: str
) -> Described:
    """Return one of a package's TOML files by its name, in any case.

    Raises
    ------
    UnknownNameError
        Suggesting the nearest name.
    """
    if name.lower() not in names:
        raise UnknownNameError(noun, name, list(names))
    preset, path = _preset(kind, package, f"{name.lower()}.toml")
    record_read(path)
    return cast(Described, preset)


# Parsed once: documents are frozen, so that all callers can have the same one, with what it has
# derived of itself.
@cache
def _preset(kind: type[Document], package: str, file: str) -> tuple[Document, Path]:
    # A package may be in a zip file, where its files have no path of their own.
    with as_file(files(package).joinpath(file)) as path:
        return validate(kind, parse_toml(read_text(path), file=file), file=file), path


def preset_text(package: str, name: str) -> str:
    """Return the text of one of a package's TOML files."""
    # A package may be in a zip file, where its files have no path of their own.
    with as_file(files(package).joinpath(f"{name}.toml")) as path:
        return read_text(path)
