"""Prompts of an exact number of tokens, and whether a text answers them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pydoc_data import topics
from typing import TYPE_CHECKING

from lynx import prompts
from lynx.prompts import PromptError

from .questions import QUESTIONS, Question

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

NEEDLE, ANSWER, CONTINUE = "needle", "question", "continuation"
TASKS = (NEEDLE, ANSWER, CONTINUE)
_CITIES = ("Lisbon", "Oslo", "Cairo", "Lima", "Seoul", "Dublin", "Tunis", "Quito", "Riga", "Hanoi", "Bern", "Accra")
_EXCERPT = 1200  # Characters on either side of what tells the answer.
_GOLDEN = 0.6180339887  # Its multiples fall evenly between 0 and 1, however many there are.


@dataclass(frozen=True, slots=True)
class Prompt:
    """`token_ids` of the length asked for. A right answer has one of `answers` in it; without them none is checked."""

    task: str
    index: int
    token_ids: list[int]
    answers: tuple[str, ...] = ()

    def correct(self, text: str) -> bool | None:
        """Does the text hold the answer? None where there is nothing to check."""
        if not self.answers:
            return None
        return any(answer in text.lower() for answer in self.answers)


class Tasks:
    """Makes the prompts for one tokenizer. The same index gives the same prompt, in any order, in any process."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._corpus = prompts.encode(tokenizer, "\n\n".join(topics.topics[name] for name in sorted(topics.topics)))

    def make(self, task: str, context_tokens: int, index: int) -> Prompt:
        """The prompt number `index`. Raises `PromptError` where the length leaves no room for it."""
        if task == NEEDLE:
            return self._needle(context_tokens, index)
        if task == ANSWER:
            return self._answer(context_tokens, index)
        return self._continuation(context_tokens, index)

    def _continuation(self, context_tokens: int, index: int) -> Prompt:
        """The documentation's own text, from some place on: what comes next is open."""
        beginning = list(self._tokenizer.encode(""))
        if beginning and beginning[-1] == self._tokenizer.eos_token_id:
            beginning.pop()
        return Prompt(CONTINUE, index, [*beginning, *self._filler(context_tokens - len(beginning), index)])

    def _needle(self, context_tokens: int, index: int) -> Prompt:
        """One sentence that has nothing to do with the text around it, at a depth drawn by the index."""
        drawn = random.Random(index)
        city, code = drawn.choice(_CITIES), str(drawn.randrange(10_000, 100_000))
        needle = f"\n\nThe access code of the office in {city} is {code}.\n\n"
        question = f"What is the access code of the office in {city}? Answer with the number alone."
        tokens = self._asked(context_tokens, index, needle, question, drawn.random())
        return Prompt(NEEDLE, index, tokens, (code,))

    def _answer(self, context_tokens: int, index: int) -> Prompt:
        """A passage of the documentation among others, and a question that it answers."""
        asked = QUESTIONS[index % len(QUESTIONS)]
        drawn = random.Random(index)
        tokens = self._asked(context_tokens, index, f"\n\n{_passage(asked)}\n\n", asked.text, drawn.random())
        return Prompt(ANSWER, index, tokens, asked.answers)

    def _asked(self, context_tokens: int, index: int, passage: str, question: str, depth: float) -> list[int]:
        before, after = prompts.frame(self._tokenizer, question)
        inner = prompts.encode(self._tokenizer, passage)
        room = context_tokens - len(before) - len(inner) - len(after)
        if room < 0:
            raise PromptError(f"a prompt of {context_tokens} tokens was asked; this one takes {context_tokens - room}")
        filler = self._filler(room, index)
        at = int(depth * room)
        return [*before, *filler[:at], *inner, *filler[at:], *after]

    def _filler(self, tokens: int, index: int) -> list[int]:
        most = len(self._corpus) - tokens
        if tokens < 0 or most < 0:
            raise PromptError(f"{tokens} tokens of text were asked; the documentation has {len(self._corpus)}")
        begin = int((index * _GOLDEN) % 1 * most)
        return self._corpus[begin : begin + tokens]


def _passage(question: Question) -> str:
    text = topics.topics[question.topic]
    at = text.index(question.quote)
    begin = text.rfind("\n", 0, max(at - _EXCERPT, 0)) + 1
    end = text.find("\n", at + _EXCERPT)
    return text[begin : end if end >= 0 else None].strip()
