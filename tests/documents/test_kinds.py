"""A file of one kind in the place of another is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.documents.kinds import kind_of
from hypar_opt.errors import InputError
from hypar_opt.hardware import arrays
from hypar_opt.hardware.profile import read_profile
from hypar_opt.models import file_text
from hypar_opt.proofs.certificate import read_certificate
from hypar_opt.studies.sweep.spec import read_spec
from hypar_opt.studies.validation.rows import read_steps
from tests.cli.shell import Shell
from tests.public import STEPS, SWEEP

READERS: dict[str, Callable[[Path], Any]] = {
    "network": ho.read_network,
    "array": ho.read_array,
    "plan": ho.read_plan,
    "certificate": read_certificate,
    "sweep": read_spec,
    "measured": read_steps,
    "profile": read_profile,
}
SAID = {
    "network": "a network file: pass it as network",
    "array": "an array file: pass it as array",
    "plan": "a plan file: pass it as plan",
    "certificate": "a certificate: pass it as certificate",
    "sweep": "a sweep file: use sweep",
    "measured": "a file of measured steps: use validate or calibrate",
    "profile": "a profile: pass it as profile",
}
PROFILE = 'batch = 1\nlayer = [{ name = "fc", forward = "1 ms" }]\n'


def without_schema(text: str) -> str:
    return re.sub(r"^schema = .*$", "", text, flags=re.MULTILINE)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Path]]:
    """Files by their kind: those of TOML with and without their schema."""
    plan = ho.solve("lenet-c", levels=2)
    texts = [
        ("plan", plan.to_json()),
        ("certificate", ho.certify(plan).to_json()),
        ("profile", f'schema = "hypar-opt/profile/1"\n{PROFILE}'),
        ("profile", PROFILE),
    ]
    for kind, text in (
        ("network", file_text("lenet-c")),
        ("array", arrays.file_text("hmc-htree-4")),
        ("sweep", SWEEP),
        ("measured", STEPS),
    ):
        texts += [(kind, text), (kind, without_schema(text))]
    folder = tmp_path_factory.mktemp("files")
    written = []
    for number, (kind, text) in enumerate(texts):
        (path := folder / f"{number}.txt").write_text(text)
        written.append((kind, path))
    return written


@pytest.mark.parametrize("wanted", READERS)
def test_a_reader_reads_its_own_kind_and_names_every_other(
    wanted: str, files: list[tuple[str, Path]]
) -> None:
    for kind, path in files:
        assert kind_of(path.read_text()) == kind
        if kind == wanted:
            READERS[wanted](path)
        else:
            with pytest.raises(InputError) as raised:
                READERS[wanted](path)
            assert str(raised.value) == f"{path}: this is {SAID[kind]}"


def test_what_is_wrong_with_a_file_of_the_right_kind_is_still_said(tmp_path: Path) -> None:
    (path := tmp_path / "array.toml").write_text('schema = "hypar-opt/array/1"\nname = "x"\n')
    with pytest.raises(InputError, match="missing key 'accelerator'"):
        ho.read_array(path)
    path.write_text("a = ")
    with pytest.raises(InputError, match="should be TOML"):
        ho.read_array(path)


def test_a_shell_is_told_the_option(shell: Shell, tmp_path: Path) -> None:
    (path := tmp_path / "array.toml").write_text(arrays.file_text("hmc-htree-4"))
    assert shell.refused("solve", path) == f"{path}: this is an array file: use --array"
    assert shell.refused("verify", path) == f"{path}: this is an array file: use --array"
    plan = tmp_path / "plan.json"
    ho.solve("lenet-c", levels=1).save(plan)
    said = shell.refused("solve", "lenet-c", "--array", plan)
    assert said == f"{plan}: this is a plan file: use it as PLAN, as in simulate PLAN"
    for command in (["run"], ["export", "--to", "json"]):
        said = shell.refused(*command, "vgg-a")
        assert said == "'vgg-a': is not a plan file; solve vgg-a --output plan.json writes one"
