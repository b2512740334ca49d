"""Measured values against the bounds that they have to keep: what every bench prints last and writes as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Check:
    """A measured value against its bound; `op` is ">=" or "<="."""

    name: str
    value: float
    bound: float
    op: str

    @property
    def ok(self) -> bool:
        """Whether the bound is kept. NaN keeps none."""
        return self.value >= self.bound if self.op == ">=" else self.value <= self.bound

    def line(self) -> str:
        """Name, measured, bound, met or short."""
        return f"{self.name}: {self.value:.4f}, bound {self.op} {self.bound:g}: {'met' if self.ok else 'short'}"


def to_json(checks: Sequence[Check]) -> list[dict[str, Any]]:
    """`name`, `value`, `bound`, `op`, `ok` of each."""
    return [{**asdict(check), "ok": check.ok} for check in checks]
