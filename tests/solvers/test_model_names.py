"""Names of columns: any layer's name, in the letters of each format, and back."""

from __future__ import annotations

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from hypar_opt.costs.row_names import RowNames
from hypar_opt.costs.table import CostTable
from hypar_opt.solvers.model_names import column_namer, fields_of, lp_name, mps_name, plain_name

# A layer's name is printable text, as `hypar_opt.documents.document.Name` checks.
NAMES = st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" "), min_size=1)
LP_LETTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.,%()")


@example(["a,b", "[H1]", "50%"])
@example(["/layer1/conv+relu:0", "größe", "a%2Cb"])
@given(st.lists(NAMES, min_size=1, max_size=4))
def test_every_form_gives_the_fields_back(fields: list[str]) -> None:
    plain = plain_name("x", *fields)
    for name in (plain, mps_name(plain), lp_name(plain)):
        assert fields_of(name) == ("x", *fields)


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_each_format_has_its_letters_alone(fields: list[str]) -> None:
    plain = plain_name("x", *fields)
    assert set(lp_name(plain)) <= LP_LETTERS
    assert all("!" <= letter <= "~" for letter in mps_name(plain))


def test_a_common_name_is_legible_in_every_format() -> None:
    plain = plain_name("x", "conv1", "H2", "model")
    assert (plain, mps_name(plain)) == ("x[conv1,H2,model]",) * 2
    assert lp_name(plain) == "x(conv1,H2,model)"


def test_two_boundaries_between_the_same_layers_have_two_names() -> None:
    ends = np.array([[0, 1], [0, 1], [1, 2]])
    table = CostTable(np.zeros((3, 2), np.int64), np.zeros((3, 2, 2), np.int64), ends)
    named = column_namer(table, RowNames("abc", [["data", "model"]] * 3, ("H1",)))
    names = [
        named(f"{kind}_{e}{rest}") for kind, rest in (("z", ""), ("y", "_0_1")) for e in range(3)
    ]
    assert len(set(names)) == len(names)
    assert named("z_2") == "z[b,c,H1]"
    assert named("y_2_0_1") == "y[b,c,H1,data,model]"
    assert (named("carry_0"), named("constant")) == ("carry_0", "constant")


def test_a_column_of_states_names_the_choices_of_all_levels() -> None:
    labels = RowNames(
        "ab", [["data", "model"], ["data", None]], ("H1", "H2"), states=[(0, 0), (0, 1)]
    )
    assert (labels.layer(0), labels.level(0), labels.choice(0, 1)) == ("a", "H1.H2", "data.model")
    # A kind of layer with fewer choices than others: its column is fixed at 0, and has a name too.
    assert labels.choice(1, 1) == "data.choice2"
