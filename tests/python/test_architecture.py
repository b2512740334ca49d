"""Who may know whom: `#include` and `import` lines against the table of docs/architecture.md.

The table is the first fenced block below the heading "## Who may know whom". A line of it reads

    PLACE...: NAME...

- The PLACEs make up one layer, named after the last part of the first of them: folders and files below the
  repository's root, and public headers as they are included (`lynx/codec.hpp`; `lynx/{codec,dtype}.hpp` for
  several). The innermost place that holds a file decides which layer it is in.
- The NAMEs are the layers that it may know besides itself; in Python also the extension, `_core`.
- `<name>` stands for a library from outside: `<rdma>`, `<cuda>`, `<nanobind>`, `<flatbuffers>` in C++, the
  imported package in Python. The standard library and the system's headers are always free. A public header
  may know no library from outside, whatever its layer may.
- `#` starts a comment.

A file or a public header that is in no layer is a fault too, so that nothing is added beside the table.
"""

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SYSTEM_FOLDERS = {"sys", "net", "netinet", "arpa", "linux", "asm", "bits"}
# Headers of outside libraries whose folder does not name them, or that have none.
OUTSIDE_HEADERS = {
    r".*_generated\.h": "flatbuffers",
    r"(cuda|device_launch|cooperative_groups|cub/|thrust/|nv/).*": "cuda",
    r"Python\.h|pybind11/.*": "python",
    r"sodium\.h": "sodium",
    r"g(test|mock)/.*": "gtest",
    r"torch/.*|ATen/.*|c10/.*": "torch",
}
FINDS = re.compile(r"^\s*find_(?:package|path|library|program|file)\s*\(\s*(\S+)", re.IGNORECASE)


@dataclass(frozen=True)
class Layer:
    name: str
    places: tuple[str, ...]
    knows: frozenset[str]


@dataclass
class Table:
    layers: list[Layer] = field(default_factory=list)

    def layer_of(self, place: str) -> Layer | None:
        """The layer with the innermost place that is `place` or a folder around it."""
        best: tuple[int, Layer] | None = None
        for layer in self.layers:
            for mine in layer.places:
                if (place == mine or place.startswith(mine + "/")) and (best is None or len(mine) > best[0]):
                    best = (len(mine), layer)
        return best[1] if best else None


def expand(place: str) -> list[str]:
    """`lynx/{a,b}.hpp` to `lynx/a.hpp` and `lynx/b.hpp`."""
    braces = re.fullmatch(r"(.*)\{(.*)\}(.*)", place)
    if not braces:
        return [place]
    return [braces[1] + middle + braces[3] for middle in braces[2].split(",")]


def read_table(text: str) -> Table:
    block = re.search(r"^## Who may know whom$.*?^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    if not block:
        raise ValueError('no fenced block below "## Who may know whom"')
    table = Table()
    for number, line in enumerate(block[1].splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        left, colon, right = line.partition(":")
        places = tuple(chain.from_iterable(expand(place) for place in left.split()))
        if not colon or not places:
            raise ValueError(f"line {number} of the block is not 'PLACE...: NAME...': {line}")
        table.layers.append(Layer(Path(places[0]).stem, places, frozenset(right.split())))
    known = {layer.name for layer in table.layers} | {"_core"}
    for layer in table.layers:
        unknown = {name for name in layer.knows if not name.startswith("<")} - known
        if unknown:
            raise ValueError(f"{layer.name} is said to know {sorted(unknown)}, which no line defines")
    return table


def outside_of(header: str) -> str | None:
    """The outside library that a header belongs to; None for the standard library and the system."""
    for pattern, library in OUTSIDE_HEADERS.items():
        if re.fullmatch(pattern, header):
            return library
    folder = header.partition("/")[0]
    return None if folder == header or folder in SYSTEM_FOLDERS else folder


def cpp_faults(root: Path, table: Table) -> Iterator[str]:
    """One line for each `#include` below cpp/ that the table does not allow."""
    for path in sorted((root / "cpp").rglob("*")):
        if path.suffix not in {".hpp", ".h", ".cpp", ".cu", ".cuh"}:
            continue
        where = path.relative_to(root).as_posix()
        public = where.startswith("cpp/include/")
        layer = table.layer_of(where.removeprefix("cpp/include/") if public else where)
        if layer is None:
            yield f"{where} is in no layer"
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            at = f"{where}:{number}: {layer.name}"
            quoted, header = match[1] == '"', match[2]
            folder = header.partition("/")[0]
            if quoted and (path.parent / header).is_file():
                place = (path.parent / header).resolve().relative_to(root.resolve()).as_posix()
            elif folder == "lynx":
                place = header
            elif (root / "cpp/src" / folder).is_dir() and folder != header:
                place = f"cpp/src/{header}"
            else:
                library = outside_of(header)
                if library and public:
                    yield f"{at}: a public header may not include {header}"
                elif library and f"<{library}>" not in layer.knows:
                    yield f"{at} may not include {header}"
                continue
            if public and not place.startswith(("lynx/", "cpp/include/")):
                yield f"{at}: a public header may not include {header}"
                continue
            target = table.layer_of(place.removeprefix("cpp/include/"))
            if target is None:
                yield f"{at}: {header} is in no layer"
            elif target is not layer and target.name not in layer.knows:
                yield f"{at} may not know {target.name} ({header})"


def imports_of(tree: ast.Module, package: list[str]) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported; of `from a import b` both `a.b` and its line.

    `package` is the package that relative imports start from.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join(base + ([node.module] if node.module else []))
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


def python_place(root: Path, name: str) -> str:
    """The file or folder of a dotted name below `lynx`; what is no module is an attribute of its package."""
    place = Path("python")
    for part in name.split("."):
        if (root / place / part).is_dir():
            place = place / part
        elif (root / place / f"{part}.py").is_file():
            return (place / f"{part}.py").as_posix()
        else:
            break
    return (place / "__init__.py").as_posix()


def python_faults(root: Path, table: Table) -> Iterator[str]:
    """One line for each import below python/lynx that the table does not allow."""
    for path in sorted((root / "python/lynx").rglob("*.py")):
        where = path.relative_to(root).as_posix()
        layer = table.layer_of(where)
        if layer is None:
            yield f"{where} is in no layer"
            continue
        package = list(path.parent.relative_to(root / "python").parts)
        for line, name in imports_of(ast.parse(path.read_text(encoding="utf-8")), package):
            at = f"{where}:{line}: {layer.name}"
            top = name.partition(".")[0]
            if top != "lynx":
                if top not in sys.stdlib_module_names and f"<{top}>" not in layer.knows:
                    yield f"{at} may not import {top}"
            elif name.split(".")[1:2] == ["_core"]:
                if "_core" not in layer.knows:
                    yield f"{at} may not know _core"
            else:
                target = table.layer_of(python_place(root, name))
                if target is None:
                    yield f"{at}: {name} is in no layer"
                elif target is not layer and target.name not in layer.knows:
                    yield f"{at} may not know {target.name} ({name})"


def cmake_faults(root: Path) -> Iterator[str]:
    """One line for each find_...() outside third_party. Programs that use Lynx may find Lynx."""
    scripts = chain(root.rglob("CMakeLists.txt"), root.rglob("*.cmake"))
    for path in sorted(scripts):
        where = path.relative_to(root)
        if where.parts[0] in {"third_party", "build"} or where.parts[0].startswith("."):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = FINDS.match(line)
            if match and match[1] != "lynx":
                yield f"{where}:{number}: only third_party/CMakeLists.txt may find {match[1]}"


def assert_none(faults: Iterable[str]) -> None:
    found = list(faults)
    if found:
        pytest.fail("\n".join(["against docs/architecture.md:", *found]), pytrace=False)


@pytest.fixture(scope="module")
def table() -> Table:
    return read_table((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))


def test_every_include_is_allowed_by_the_architecture(table: Table) -> None:
    assert_none(cpp_faults(ROOT, table))


def test_every_import_is_allowed_by_the_architecture(table: Table) -> None:
    assert_none(python_faults(ROOT, table))


def test_outside_libraries_are_found_in_third_party_alone() -> None:
    assert_none(cmake_faults(ROOT))


def test_every_place_of_the_table_exists(table: Table) -> None:
    """A line that matches nothing guards nothing."""
    places = [place for layer in table.layers for place in layer.places]
    folder_of = {place: "cpp/include" if place.startswith("lynx/") else "." for place in places}
    assert_none(f"{place} is not there" for place in places if not (ROOT / folder_of[place] / place).exists())


# The checker itself, on trees that break one rule each.

FAKE_TABLE = """
# Architecture

## Who may know whom

Some words.

```text
cpp/src/core lynx/{error,dtype}.hpp:
cpp/src/codec lynx/codec.hpp: core
cpp/src/fabric lynx/fabric.hpp: core <rdma>
cpp/src/stream: core codec fabric <flatbuffers>  # the top
cpp/bindings: core codec <nanobind>
python/lynx: policies _core <numpy>
python/lynx/policies: _core
```
"""

FAKE_TREE = {
    "cpp/include/lynx/error.hpp": "#include <string>\n",
    "cpp/include/lynx/dtype.hpp": "#include <cstdint>\n",
    "cpp/include/lynx/codec.hpp": '#include "lynx/error.hpp"\n',
    "cpp/include/lynx/fabric.hpp": '#include "lynx/error.hpp"\n',
    "cpp/src/core/text.hpp": "#include <sstream>\n",
    "cpp/src/codec/scalar.hpp": "",
    "cpp/src/codec/scalar.cpp": '#include "core/text.hpp"\n#include "scalar.hpp"\n#include <vector>\n',
    "cpp/src/fabric/endpoint.cpp": "#include <rdma/fabric.h>\n#include <sys/socket.h>\n",
    "cpp/src/stream/sender.cpp": '#include "lynx/codec.hpp"\n#include "manifest_generated.h"\n',
    "cpp/bindings/module.cpp": '#include <nanobind/nanobind.h>\n#include "lynx/codec.hpp"\n',
    "python/lynx/__init__.py": "from lynx._core import Snapshot\nfrom lynx import policies\n",
    "python/lynx/runtime.py": "import numpy\nfrom lynx.policies.base import Policy\nfrom . import metrics\n",
    "python/lynx/metrics.py": "import json\n",
    "python/lynx/policies/__init__.py": "from .base import Policy\n",
    "python/lynx/policies/base.py": "from lynx._core import Snapshot\n",
    "third_party/CMakeLists.txt": "find_package(Threads REQUIRED)\n",
    "examples/server/CMakeLists.txt": "find_package(lynx CONFIG REQUIRED)\n",
}


def faults(root: Path, changes: dict[str, str]) -> list[str]:
    for name, text in (FAKE_TREE | changes).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    table = read_table(FAKE_TABLE)
    return [*cpp_faults(root, table), *python_faults(root, table), *cmake_faults(root)]


def test_a_tree_that_follows_the_table_has_no_faults(tmp_path: Path) -> None:
    assert faults(tmp_path, {}) == []


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("cpp/src/core/a.cpp", '#include "lynx/codec.hpp"', ":1: core may not know codec"),
        ("cpp/src/codec/a.cpp", '\n#include "fabric/handle.hpp"', ":2: codec may not know fabric"),
        ("cpp/src/codec/a.cpp", '#include "../fabric/endpoint.cpp"', "codec may not know fabric"),
        ("cpp/src/codec/a.cpp", "#include <rdma/fabric.h>", "codec may not include rdma/fabric.h"),
        ("cpp/src/codec/a.cpp", "#include <cuda_runtime.h>", "codec may not include cuda_runtime.h"),
        ("cpp/src/fabric/a.cpp", '#include "manifest_generated.h"', "may not include manifest_generated.h"),
        ("cpp/src/core/a.cpp", "  #  include <boost/any.hpp>", "core may not include boost/any.hpp"),
        ("cpp/include/lynx/codec.hpp", '#include "lynx/fabric.hpp"', "codec may not know fabric"),
        ("cpp/include/lynx/fabric.hpp", "#include <rdma/fabric.h>", "a public header may not include rdma"),
        ("cpp/include/lynx/codec.hpp", '#include "core/text.hpp"', "a public header may not include core"),
        ("cpp/include/lynx/new.hpp", "", "cpp/include/lynx/new.hpp is in no layer"),
        ("cpp/src/shared/a.cpp", "", "cpp/src/shared/a.cpp is in no layer"),
        ("python/lynx/policies/a.py", "import lynx.runtime", ":1: policies may not know lynx"),
        ("python/lynx/policies/a.py", "from ..runtime import run", "policies may not know lynx"),
        ("python/lynx/policies/a.py", "def f():\n    from lynx import Snapshot", ":2: policies may not know"),
        ("python/lynx/policies/a.py", "import numpy.linalg", "policies may not import numpy"),
        ("python/lynx/cli.py", "import torch", "lynx may not import torch"),
        ("cpp/CMakeLists.txt", "find_library(X fabric)", "only third_party/CMakeLists.txt may find X"),
        ("cmake/helper.cmake", "  FIND_PACKAGE(CUDAToolkit)", "may find CUDAToolkit"),
    ],
)
def test_a_tree_that_breaks_a_rule_is_caught(tmp_path: Path, name: str, text: str, fault: str) -> None:
    found = faults(tmp_path, {name: text})
    assert len(found) == 1
    assert fault in found[0]


def test_a_table_that_names_an_unknown_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="codec is said to know \\['cora'\\]"):
        read_table(FAKE_TABLE.replace("codec.hpp: core", "codec.hpp: cora"))
