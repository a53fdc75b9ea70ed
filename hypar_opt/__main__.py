"""The command ``hypar-opt``, which is ``python -m hypar_opt`` too."""

from __future__ import annotations

import gc
import os
import signal
import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it silently, also while modules are being imported."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:  # a handler that is ignored, as under nohup, stays so
        # The system's default ends the process without Python's traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Imported late: Ctrl-C may interrupt an import.
    from hypar_opt.garbage import COLLECT_AFTER

    gc.set_threshold(COLLECT_AFTER)
    # None of ours is one of pydantic's plug-ins, for which it searches all that is installed.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Only `run` multiplies large matrices: elsewhere threads of BLAS take longer to start than they
    # save.
    if sys.argv[1:2] != ["run"]:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from hypar_opt.cli.app import main

    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        main()
    finally:
        # Or Python, as it ends, looks for cycles among all objects that the imports made.
        gc.freeze()


if __name__ == "__main__":
    main()
