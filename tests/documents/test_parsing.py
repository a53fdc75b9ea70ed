"""JSON and TOML from anywhere: keys given twice, numbers and depth without end, odd characters."""

from __future__ import annotations

import json

import pytest

from hypar_opt.checked import MAX_BITS
from hypar_opt.documents.parsing import MAX_DEPTH, parse_json, parse_toml
from hypar_opt.errors import InputError


def test_a_key_given_twice_among_many_is_found_in_one_pass() -> None:
    keys = ",".join(f'"{number}": 0' for number in range(200_000))
    with pytest.raises(InputError, match="key '199999' is given twice"):
        parse_json(f'{{{keys}, "199999": 1}}', file="f")  # to look among all for each takes hours


def test_numbers_and_depth_have_an_end() -> None:
    most = 2**MAX_BITS - 1
    assert parse_toml(f"a = {most:#x}", file="f") == {"a": most}
    assert parse_json(f"[{most}]", file="f") == [most]
    for text in (f"a = {2 * most:#x}", f"b.a = [{2 * most:#x}]"):
        with pytest.raises(InputError, match=r"^f: (b, )?a: should have at most 1,000 digits$"):
            parse_toml(text, file="f")
    with pytest.raises(InputError, match="should have at most 1,000 digits"):
        parse_json(str(2 * most), file="f")
    nines = "9" * 5000  # more than Python converts
    for parse, text in ((parse_toml, f"b = 1\na = {nines}"), (parse_json, f'{{\n"a": {nines}}}')):
        problem = r"a number should have at most 1,000 digits \(at line 2\)$"
        with pytest.raises(InputError, match=f"^f: should be (TOML|JSON): {problem}"):
            parse(text, file="f")
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse_json(deep, file="f") == json.loads(deep)
    for parse, text in ((parse_json, f'{{"a": {deep}}}'), (parse_toml, f"a = {deep}")):
        with pytest.raises(InputError, match=f"^f: a: should be at most {MAX_DEPTH} tables or"):
            parse(text, file="f")


@pytest.mark.parametrize("text", ['"\\ud800"', '{"\\udfff": 1}', '["\\ud83d\\ud83d"]'])
def test_half_a_surrogate_pair_is_no_text(text: str) -> None:
    with pytest.raises(InputError, match="should be Unicode text, got half a surrogate pair"):
        parse_json(text, file="f")
    assert parse_json('"\\ud83d\\ude00"', file="f") == "😀"
