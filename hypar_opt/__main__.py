"""The command ``hypar-opt``, which is ``python -m hypar_opt`` too."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line; Ctrl-C ends it without a word, also while it is still being loaded."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:  # and not ignored, as behind nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from hypar_opt.cli.app import main

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()


if __name__ == "__main__":
    main()
