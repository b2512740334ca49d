"""Inference engines. `base` says what the decode loop needs; each other module adapts one framework."""

from __future__ import annotations

from .base import Engine, EngineError, LayerShape, Prefilled, ProgressCallback, RowsCallback, UnsupportedModel

__all__ = ["Engine", "EngineError", "LayerShape", "Prefilled", "ProgressCallback", "RowsCallback", "UnsupportedModel"]
