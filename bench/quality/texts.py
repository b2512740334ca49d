"""The texts of a measurement: windows over Python's documentation, for one model's tokenizer."""

from __future__ import annotations

from typing import Any

from lynx import prompts


def windows(tokenizer: Any, context: int, tokens: int, count: int, held_out: bool = False) -> list[list[int]]:
    """`count` disjoint windows of `context + tokens` tokens, behind what the tokenizer begins every text with.

    With `held_out`, the windows halfway between those that the same count gives without. Raises `PromptError`.
    """
    beginning = list(tokenizer.encode(""))
    if beginning and beginning[-1] == tokenizer.eos_token_id:
        beginning.pop()
    if held_out:
        cut = prompts.texts(tokenizer, context - len(beginning), tokens, 2 * count)[1::2]
    else:
        cut = prompts.texts(tokenizer, context - len(beginning), tokens, count)
    return [[*beginning, *window] for window in cut]
