"""``python -m gssc`` is the command ``gssc``."""

from gssc.cli import main

main()
