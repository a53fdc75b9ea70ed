"""Starting up: whole commands against the floor of their imports.

The floor is a process that imports what the command imports of other packages and of the standard
library, and ends: nothing of ours, no option, no table. Of other packages a command may import
what ``NEEDED`` lists, so that the floor does not rise with what could be left out. The floor's
process is Python as it comes: it collects garbage while it imports and as it ends, which
`hypar_opt.__main__` has Python leave out.

Seconds are those of the processor, user and system; the two processes take turns, so that a
machine that others use slows both. At most 1.3 times the floor, each, and 3.3 times where all
configurations of GPT-2 on eight nodes are searched; exit status 1 on a miss.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from statistics import median

from benchmarks.measure import judged, size

COMMAND = str(Path(sys.executable).with_name("hypar-opt"))
ROUNDS = size(31, 1)

NEEDED = {"annotated_doc", "annotated_types", "attr", "markdown_it", "mdurl", "numpy", "pydantic"}
NEEDED |= {"pydantic_core", "pygments", "rich", "shellingham", "typer", "typing_extensions"}
NEEDED |= {"typing_inspection"}

BY_PYTHON = ("sitecustomize", "_sysconfigdata", "_distutils_hack")
"""What Python imports as it starts, of an environment that has it."""

CONFIGURE = "configure gpt2 --array h100-8x8 --batch 64 --tokens 1024"
CALLS = {"--help": 1.3, "solve vgg-e": 1.3, CONFIGURE: 3.3}


# Bytecode is kept, as where a package is installed; else compiling is most of what is measured.
ENVIRONMENT = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def imports(arguments: list[str]) -> list[str]:
    """Return the modules that a command imports, but ours, in that order."""
    program = (
        "import atexit, sys; from hypar_opt.__main__ import main; sys.argv[0] = 'hypar-opt';"
        " atexit.register(lambda: print(*sys.modules, file=sys.stderr)); main()"
    )
    call = [sys.executable, "-c", program, *arguments]
    listed = subprocess.run(call, check=True, capture_output=True, text=True).stderr.split()
    others = [name for name in listed if not name.startswith(("hypar_opt", "__main__", *BY_PYTHON))]
    packages = {name.partition(".")[0] for name in others} - sys.stdlib_module_names
    if packages - NEEDED:
        sys.exit(f"{arguments} imports {', '.join(sorted(packages - NEEDED))}")
    return others


def seconds(command: list[str]) -> float:
    """Return the user and system seconds of a process."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


def main() -> None:
    missed = False
    for line, target in CALLS.items():
        arguments = line.split()
        call = [sys.executable, COMMAND, *arguments]
        program = (
            f"import importlib\nfor name in {imports(arguments)}: importlib.import_module(name)"
        )
        bare = [sys.executable, "-c", program]
        for command in size((call, bare), ()):
            seconds(command)  # warm up
        pairs = [(seconds(call), seconds(bare)) for _ in range(ROUNDS)]
        ours, theirs = median(a for a, _ in pairs), median(b for _, b in pairs)
        ratio = median(a / b for a, b in pairs)
        print(f"hypar-opt {line}: {ours:.3f} s; its imports alone {theirs:.3f} s")
        missed |= judged("a command against its imports", ratio, target)
    sys.exit(missed)


if __name__ == "__main__":
    main()
