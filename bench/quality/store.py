"""Scores kept in a file, so that a long measurement goes on where it was interrupted."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lynx

from .choices import Choice
from .measure import Score

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """What was measured; with the Python version, whose documentation is the text, it can be repeated."""

    model: str
    codec: str
    context_tokens: int
    tokens_per_text: int
    texts: int
    held_out: bool = False

    def title(self) -> str:
        """In one line."""
        held_out = " held-out" if self.held_out else ""
        return (
            f"{self.model}, {self.texts}{held_out} texts of {self.context_tokens:,} + {self.tokens_per_text:,} tokens, "
            f"codec {self.codec}"
        )


class Store:
    """JSON lines, one for each choice on each text. Measured again is what another Python or Lynx has measured.

    Without a path nothing is kept. One process at a time. Raises `OSError`.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._scores: dict[Key, Score] = {}
        self._unfinished = False
        if path is not None and path.exists():
            self._read(path)

    def get(self, setting: Setting, text: int, choice: Choice) -> Score | None:
        """The score of that text, counted from 0, if it is known."""
        return self._scores.get(_key(_described(setting, text, choice)))

    def add(self, setting: Setting, text: int, choice: Choice, score: Score) -> None:
        """Keep a score; it is in the file when this returns."""
        row = _described(setting, text, choice)
        self._scores[_key(row)] = score
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            if self._unfinished:
                file.write("\n")
                self._unfinished = False
            file.write(json.dumps({**row, **asdict(score)}) + "\n")

    def _read(self, path: Path) -> None:
        text = path.read_text()
        self._unfinished = bool(text) and not text.endswith("\n")
        for row in filter(None, map(_parsed, text.splitlines())):
            self._scores[_key(row)] = Score(row["agreement"], row["kl"], row["bits_per_value"])


_KEY_FIELDS = ("model", "context_tokens", "tokens_per_text", "texts", "held_out", "text", "choice", "python", "lynx")


def _parsed(line: str) -> dict[str, Any] | None:
    """None for the line that was being written when a run ended."""
    try:
        row = json.loads(line)
    except ValueError:
        return None
    complete = isinstance(row, dict) and all(field in row for field in (*_KEY_FIELDS, *Score.__annotations__))
    return row if complete else None


def _described(setting: Setting, text: int, choice: Choice) -> dict[str, Any]:
    return {
        **asdict(setting),
        "text": text,
        "choice": choice.name,
        "python": platform.python_version(),
        "lynx": lynx.__version__,
    }


def _key(row: dict[str, Any]) -> Key:
    """Of all but the codec's name: all codecs give the same values."""
    return tuple(row[field] for field in _KEY_FIELDS)
