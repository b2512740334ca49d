"""What the commands of all benches do alike."""

from __future__ import annotations

import sys
from collections.abc import Callable

import lynx

INTERRUPTED = 130


def run(name: str, work: Callable[[], None]) -> int:
    """Do the work; the exit code: 0, also where a bound is missed, 1 for an error, 130 for Ctrl-C."""
    try:
        work()
        return 0
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return INTERRUPTED
    except (lynx.Error, ValueError, OSError, ImportError) as e:  # What a user can mend.
        print(f"{name}: {e}", file=sys.stderr)
        return 1
