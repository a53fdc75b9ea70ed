"""``python -m hypar_opt`` is ``hypar-opt``."""

from hypar_opt.cli.app import main

main()
