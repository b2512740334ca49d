"""Stop strings: text that ends a text, wherever the tokens' boundaries fall."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class StopStrings:
    """For `decode(ends=...)`: does the text of the tokens so far contain one of `strings` near its end?

    `detokenize` gives the text of tokens, as a tokenizer's `decode` does. The tokens end with the one that completes
    the string, and may hold more text than that: `trim` cuts it off.
    """

    # A token has at least one byte of text, apart from special ones: these are how many of those may stand between.
    SLACK_TOKENS = 16

    def __init__(self, detokenize: Callable[[Sequence[int]], str], strings: Sequence[str]) -> None:
        if not all(strings):
            raise ValueError(f"an empty stop string is in {list(strings)!r}; it would end every text at once")
        self._detokenize = detokenize
        self._strings = tuple(strings)
        self._tail = max((len(s.encode()) for s in strings), default=0) + self.SLACK_TOKENS

    def __call__(self, tokens: Sequence[int]) -> bool:
        """Look at the last tokens, those of one string and some more."""
        if not self._strings:
            return False
        text = self._detokenize(tokens[-self._tail :])
        return any(string in text for string in self._strings)

    def trim(self, text: str) -> str:
        """Cut the text before the first stop string in it."""
        found = [begin for string in self._strings if (begin := text.find(string)) >= 0]
        return text[: min(found)] if found else text
