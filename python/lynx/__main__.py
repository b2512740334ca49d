"""`python -m lynx` is the command `lynx`; `python -m lynx --cmake-dir` prints the CMake prefix."""

from __future__ import annotations

import sys

from lynx.cli import main

if __name__ == "__main__":
    sys.exit(main())
