"""``show --schema COMMAND``: a JSON Schema, which holds for what the command prints.

All documents that `tests.cli.shell` reads are validated against their types too.
"""

from __future__ import annotations

import json

import jsonschema
import pytest

from hypar_opt.cli.commands import SUMMARIES, _imported
from hypar_opt.cli.schemas import DOCUMENTS
from tests.cli.shell import Shell

CALLS = {
    "solve": "solve lenet-c --levels 1 --regret --best 2",
    "simulate": "simulate sfc --levels 1",
    "memory": "memory sfc --levels 1",
    "compare": "compare sfc --levels 1",
    "explore": "explore lenet-c --levels 1 --free H1",
    "verify": "verify sfc --levels 1 --solvers dp,brute",
    "reproduce": "reproduce fig9",
    "show": "show h100-8",
    "doctor": "doctor python",
    "list": "list costs",
}


def test_every_command_with_json_has_a_schema() -> None:
    printing = {
        name
        for name in SUMMARIES
        if name == "list" or any(option.name == "as_json" for option in _imported(name)["params"])
    }
    assert printing == DOCUMENTS.keys()


@pytest.mark.parametrize("command", DOCUMENTS)
def test_a_schema_is_one_and_holds(command: str, shell: Shell) -> None:
    schema = json.loads(shell.output("show", "--schema", command))
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    if command in CALLS:
        document = shell.document(*CALLS[command].split())
        validator.validate(document)
        # A key of no meaning is not one of the document's.
        assert not validator.is_valid({**document, "of_my_own": 1})
        assert not validator.is_valid([document])


def test_a_command_without_a_schema_is_told_the_nearest(shell: Shell) -> None:
    said = shell.refused("show", "--schema", "slove")
    assert said.startswith("unknown command with --json 'slove': did you mean solve?")
    said = shell.refused("show", "--schema", "report")
    assert said == "report has no --json, which --schema describes: it writes a file"
