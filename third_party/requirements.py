"""Prints the requirements of extras in pyproject.toml, one a line, the pinned torch first.

    python third_party/requirements.py EXTRA...

pip installs extras only together with the package itself; the Makefile wants them apart, so that a changed
source rebuilds the package and leaves the environment alone. Standard library only.
"""

import sys
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    from pip._vendor import tomli as tomllib  # type: ignore[no-redef]


def requirements(pyproject: Path, extras: list[str]) -> list[str]:
    """The package's own dependencies and those of `extras`."""
    project = tomllib.loads(pyproject.read_text())["project"]
    found = list(project["dependencies"])
    for extra in extras:
        found += project["optional-dependencies"][extra]
    return sorted(found, key=lambda line: not line.startswith("torch=="))


if __name__ == "__main__":
    print("\n".join(requirements(Path(__file__).parent.parent / "pyproject.toml", sys.argv[1:])))
