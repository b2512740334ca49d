"""What was measured, kept line by line, so that an interrupted run goes on where it was."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import lynx

Key = Mapping[str, Any]
Values = dict[str, Any]


@functools.cache
def code_digest() -> str:
    """Of the installed package: what another Lynx has measured is measured again."""
    digest = hashlib.sha256()
    folder = Path(lynx.__file__).resolve().parent
    # In development they are links into several folders.
    roots = {folder, Path(lynx._core.__file__).resolve().parent, *(p.resolve() for p in folder.iterdir() if p.is_dir())}
    for root in sorted(roots):
        for file in sorted(root.rglob("*.py")) + sorted(root.glob("*.so")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


class Records:
    """JSON lines, each a section, a key and its values. Without a path nothing outlives the process.

    One process writes. Lines of another version of the package, or cut short by an interruption, are passed over.
    """

    def __init__(self, path: Path | None, code: str | None = None) -> None:
        self._path = path
        self._code = code or code_digest()
        self._known: dict[str, tuple[str, Key, Values]] = {}
        self._asked: dict[str, None] = {}  # in this process, in order
        self._unfinished = False
        if path is not None and path.exists():
            text = path.read_text()
            self._unfinished = bool(text) and not text.endswith("\n")
            for line in text.splitlines():
                self._read(line)

    def get(self, section: str, key: Key) -> Values | None:
        """The values, if they are known."""
        self._asked[_name(section, key)] = None
        found = self._known.get(_name(section, key))
        return None if found is None else found[2]

    def add(self, section: str, key: Key, values: Values) -> Values:
        """Keep them; they are in the file when this returns."""
        self._known[_name(section, key)] = (section, key, values)
        self._asked[_name(section, key)] = None
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write("\n" if self._unfinished else "")
                file.write(
                    json.dumps({"code": self._code, "section": section, "key": dict(key), "values": values}) + "\n"
                )
            self._unfinished = False
        return values

    def ensure(self, section: str, key: Key, measure: Callable[[], Values]) -> Values:
        """The known values, or measured now."""
        known = self.get(section, key)
        return self.add(section, key, measure()) if known is None else known

    def rows(self, section: str) -> Iterator[Values]:
        """Keys and values of a section, each as one object: of what this process has asked for, and no other run's."""
        for one in self._asked:
            if one in self._known and self._known[one][0] == section:
                yield {**self._known[one][1], **self._known[one][2]}

    def _read(self, line: str) -> None:
        try:
            row = json.loads(line)
            if row["code"] == self._code:
                self._known[_name(row["section"], row["key"])] = (row["section"], row["key"], row["values"])
        except (ValueError, KeyError, TypeError):
            return


def _name(section: str, key: Key) -> str:
    return section + json.dumps(dict(key), sort_keys=True)
