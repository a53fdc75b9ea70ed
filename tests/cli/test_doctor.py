"""``hypar-opt doctor``: what is installed is ok, and what is broken is said to be."""

from __future__ import annotations

from importlib import metadata

import pytest

import hypar_opt
from hypar_opt.studies import installation
from tests.cli.shell import Shell

QUICK = ("python", "numpy", "pydantic", "figures", "dp", "cut", "brute")


def test_the_parts_that_these_tests_use_are_ok(shell: Shell) -> None:
    pytest.importorskip("altair")
    told = shell.document("doctor", *QUICK)
    assert (told["sound"], told["version"]) == (True, hypar_opt.__version__)
    assert {one["name"]: one["status"] for one in told["checks"]} == dict.fromkeys(QUICK, "ok")
    assert metadata.version("numpy") in shell.output("doctor", "numpy")
    assert shell.output("--version").startswith(f"hypar-opt {hypar_opt.__version__} (Python 3.")


def test_an_extra_may_be_missing_unless_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.setattr(installation, "_version", lambda package: None)
    found = installation.doctor(["figures"])
    assert [one.status for one in found] == ["not installed"]
    assert not found.sound
    assert installation.Installation(found.entries).sound
    status, out, err = shell("doctor", "figures")
    assert (status, err) == (
        1,
        "hypar-opt: figures: not installed; pip install 'hypar-opt[figures]'\n",
    )
    assert "not installed" in out
    # What is always needed may not.
    assert [one.status for one in installation.doctor(["numpy"])] == ["broken"]


def test_what_does_not_work_is_broken(monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    monkeypatch.setattr(installation, "_version", lambda package: "1.0")
    (old,) = installation.doctor(["numpy"])
    assert (old.status, old.version) == ("broken", "1.0")
    assert "needs numpy" in old.note
    monkeypatch.undo()

    def fail(module: str) -> None:
        raise RuntimeError("no\nlibrary")

    monkeypatch.setattr(installation, "import_module", fail)
    (broken,) = installation.doctor(["numpy"])
    assert broken.note == "import numpy: RuntimeError: no\\nlibrary"
    assert shell("doctor", "numpy")[0] == 1
    assert "unknown part 'numpi': did you mean numpy?" in shell.refused("doctor", "numpi")
