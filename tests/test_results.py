"""Every public result and error pickles and copies; no result can be changed in place."""

from __future__ import annotations

import copy
import inspect
import json
import multiprocessing
import pickle
from collections.abc import Callable
from functools import cache
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

import hypar_opt as ho
from hypar_opt.errors import HyparError, Sentence, UnknownNameError, argument
from hypar_opt.frozen import Frozen, FrozenDict, frozen
from hypar_opt.results import Displayed, Documented, Results
from tests.public import reached, results, subclasses


@cache
def samples() -> list[Any]:
    with TemporaryDirectory() as folder:
        return results(Path(folder))


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


COPIES = [pickled, copy.copy, copy.deepcopy]


def content(value: Any) -> Any:
    """Return what a result says of itself."""
    return [repr(value), *(getattr(value, name)() for name in WRITTEN if is_method(value, name))]


WRITTEN = ("rows", "document", "description")


def is_method(value: Any, name: str) -> bool:
    return callable(getattr(value, name, None))


def mutable(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return bool(value.flags.writeable)
    return isinstance(value, list | set | bytearray | dict) and not isinstance(value, FrozenDict)


def test_one_of_every_kind_of_result_is_looked_at() -> None:
    held = {type(part) for sample in samples() for _, part in reached(sample)}
    kinds = {kind for base in (Displayed, Frozen) for kind in subclasses(base)}
    named = {kind for name in ho.__all__ if isinstance(kind := getattr(ho, name), type)}
    abstract = {
        Displayed,
        Documented,
        Frozen,
        *(kind for kind in kinds if inspect.isabstract(kind)),
    }
    missing = {kind for kind in kinds | named if kind not in abstract}
    assert not {kind for kind in missing - held if not issubclass(kind, HyparError)}


@pytest.mark.parametrize("again", COPIES)
def test_every_result_pickles_and_copies(again: Callable[[Any], Any]) -> None:
    for sample in samples():
        other = again(sample)
        assert type(other) is type(sample)
        assert content(other) == content(sample)
        # An exploration and arrays are compared as themselves.
        if "__eq__" in {name for base in type(sample).__mro__[:-1] for name in vars(base)}:
            assert other == sample
        assert not [where for where, part in reached(other) if mutable(part)]


def test_no_result_reads_otherwise_in_another_process() -> None:
    # The order of a set of words is that of their hashes, which each process draws anew.
    parts = (part for sample in samples() for _, part in reached(sample))
    assert not [
        part
        for part in parts
        if isinstance(part, frozenset) and any(type(one) is str for one in part)
    ]


def test_no_part_of_a_result_can_be_changed_in_place() -> None:
    found = [where for sample in samples() for where, part in reached(sample) if mutable(part)]
    assert not found


def test_no_attribute_of_a_result_can_be_set() -> None:
    for sample in samples():
        for name in [*vars(sample), "of_my_own"]:
            with pytest.raises(AttributeError):
                setattr(sample, name, vars(sample).get(name))


def test_what_a_result_is_written_as_is_a_copy() -> None:
    def spoil(value: Any) -> None:
        if isinstance(value, dict):
            for part in value.values():
                spoil(part)
            value.clear()
        elif isinstance(value, list):
            for part in value:
                spoil(part)
            value.clear()

    for sample in samples():
        before = content(sample)
        for name in WRITTEN:
            if is_method(sample, name):
                spoil(getattr(sample, name)())
        assert content(sample) == before


def of_annotation(name: str) -> Any:
    return {"list[str]": ["a", "b"], "Sequence[int]": [2, 2]}.get(name, "text with\na line")


@pytest.mark.parametrize("kind", sorted(subclasses(Exception), key=repr))
@pytest.mark.parametrize("again", COPIES)
def test_every_error_pickles_and_copies(kind: Any, again: Callable[[Any], Any]) -> None:
    parameters = inspect.signature(kind.__init__).parameters.values()
    given = {
        p.name: of_annotation(p.annotation)
        for p in list(parameters)[1:]
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    own = kind(**given) if given else kind(f"needs {argument('level_weights')}")
    own.note = "kept"
    other = again(own)
    assert type(other) is kind
    assert (str(other), other.args, vars(other)) == (str(own), own.args, vars(own))
    if isinstance(own, HyparError):
        assert other.for_shell == own.for_shell
        assert other.exit_status == own.exit_status
        assert len(str(own).splitlines()) == 1


def test_a_process_pool_returns_the_error_of_an_unknown_name() -> None:
    error = UnknownNameError("solver", "nope", ["dp", "cut"])
    again = pickle.loads(ForkingPickler.dumps(error))
    assert str(again) == str(error)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        # Given up after ten minutes only where the result never comes.
        answer = pool.apply_async(ho.solve, ("lenet-c",), {"solver": "nope"})
        with pytest.raises(UnknownNameError, match="unknown solver 'nope'"):
            answer.get(timeout=600)


def test_a_sentence_keeps_its_wording_for_a_shell() -> None:
    sentence = Sentence(f"try {argument('reading', 'executed')}")
    for again in COPIES:
        assert again(sentence).for_shell == "try --reading executed"
        assert again(sentence) == "try reading='executed'"


def test_a_frozen_mapping_is_a_dict_that_nothing_changes() -> None:
    mapping: Any = frozen({"a": [1, {"b": [2]}]})
    assert mapping == {"a": (1, {"b": (2,)})}
    assert {mapping: 1}[copy.deepcopy(mapping)] == 1
    changes: list[Callable[[], object]] = [
        lambda: mapping.__setitem__("a", []),
        lambda: mapping.__delitem__("a"),
        lambda: mapping.__ior__({"a": []}),
        lambda: mapping.setdefault("c", []),
        lambda: mapping.update(a=[]),
        lambda: mapping.pop("a"),
        mapping.popitem,
        mapping.clear,
    ]
    for change in changes:
        with pytest.raises(TypeError, match="cannot be changed in place"):
            change()
    changed: dict[str, Any] = mapping | {"c": 3}
    changed["d"] = 4
    assert set(changed) == {"a", "c", "d"}
    assert list(mapping) == ["a"]


@pytest.mark.parametrize("array", ["rtx4090x4", "hmc-htree-2"])
def test_a_step_prints_with_energies_and_without(array: str) -> None:
    step = ho.simulate(ho.solve("lenet-c", array=array))
    assert ("energy" in repr(step)) is (step.joules is not None)
    assert str(step).startswith("<StepResult of Lenet-c on ")


def test_every_document_is_of_its_type() -> None:
    documented = [own for own in samples() if isinstance(own, Documented)]
    assert {type(own) for own in documented} == subclasses(Documented) - {Documented}
    for own in documented:
        model = own.contents.model(type(own).__name__)
        document = json.loads(json.dumps(own.document()))
        model.model_validate(document)
        with pytest.raises(ValidationError, match="of_my_own"):
            model.model_validate({**document, "of_my_own": 1})


def test_a_row_has_the_columns_of_its_result() -> None:
    for own in samples():
        if isinstance(own, Results) and hasattr(own, "row_columns"):
            names = [column.name for column in own.row_columns if column.name]
            for row in own.rows():
                assert [name for name in names if name in row] == list(row)
