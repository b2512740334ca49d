"""Prompts and texts of an exact length, cut from the Python documentation that every Python carries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pydoc_data import topics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Chosen from 14 pairs by reading SmolLM2's greedy answers: this one goes on past 100 tokens at contexts
# of 256, 512, 1,024, 2,048 and 4,096 tokens, where most others soon repeat one sentence.
FIRST_TOPIC = "string-methods"
QUESTION = "Which string methods does the document describe? Explain each and give an example."
MIN_DOCUMENT_TOKENS = 32
_PLACEHOLDER = "\u2402document\u2403"


class PromptError(ValueError):
    """A prompt or text of that length cannot be made: what was asked, what is possible."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A document and a question about it in the model's chat template, `len(token_ids)` tokens in all."""

    token_ids: list[int]
    question: str
    document_tokens: int


def build(tokenizer: PreTrainedTokenizerBase, context_tokens: int) -> Prompt:
    """Make a prompt of exactly `context_tokens` tokens: the document is cut, template and question are whole.

    The same tokenizer and Python give the same prompt. A tokenizer without chat template gets plain
    "Document / Question / Answer". Raises `PromptError` if there is too little room, or too little document.
    """
    before, after = frame(tokenizer)
    room = context_tokens - len(before) - len(after)
    if room < MIN_DOCUMENT_TOKENS:
        least = len(before) + len(after) + MIN_DOCUMENT_TOKENS
        raise PromptError(
            f"a prompt of {context_tokens} tokens was asked; template, question and the shortest document "
            f"take {least}: ask for at least {least}"
        )
    document = _document_tokens(tokenizer, room)
    if len(document) < room:
        most = len(before) + len(after) + len(document)
        raise PromptError(
            f"a prompt of {context_tokens} tokens was asked; the Python documentation gives at most {most}"
        )
    return Prompt([*before, *document[:room], *after], QUESTION, room)


def texts(tokenizer: PreTrainedTokenizerBase, context: int, extra: int, count: int) -> list[list[int]]:
    """Cut `count` disjoint windows of `context + extra` tokens, spread evenly over the documentation.

    Plain text without template or special tokens; the same arguments and Python give the same windows.
    """
    length = context + extra
    if context < 0 or extra < 0 or length < 1 or count < 1:
        raise PromptError(f"texts({context}, {extra}, {count}): count and tokens must be positive")
    tokens = encode(tokenizer, "\n\n".join(_ordered_topics()))
    if length * count > len(tokens):
        raise PromptError(
            f"{count} texts of {length} tokens were asked; the Python documentation has {len(tokens)} tokens in all"
        )
    stride = len(tokens) // count
    return [tokens[index * stride : index * stride + length] for index in range(count)]


def _ordered_topics() -> Iterator[str]:
    """All topics: the chosen one first, then the rest by name."""
    yield topics.topics[FIRST_TOPIC]
    for name in sorted(topics.topics):
        if name != FIRST_TOPIC:
            yield topics.topics[name]


def _document_tokens(tokenizer: PreTrainedTokenizerBase, at_least: int) -> list[int]:
    """At least that many tokens of the documentation, or all there are. Tokenizes no more than it needs."""
    text = ""
    for topic in _ordered_topics():
        text += topic + "\n\n"
        # Even code-heavy text has more than one character a token; cutting it here costs only the last one.
        if len(text) >= 8 * at_least:
            tokens = encode(tokenizer, text[: 8 * at_least])
            if len(tokens) > at_least:
                return tokens
    return encode(tokenizer, text)


def frame(tokenizer: PreTrainedTokenizerBase, question: str = QUESTION) -> tuple[list[int], list[int]]:
    """The tokens before and after the document, tokenized apart from it: cutting it changes neither."""
    content = f"{_PLACEHOLDER}\n\n{question}"
    special = True
    if tokenizer.chat_template is not None:
        messages = [{"role": "user", "content": content}]
        rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        special = False  # The template has written them.
    else:
        rendered = f"Document:\n{_PLACEHOLDER}\n\nQuestion: {question}\nAnswer:"
    before, found, after = str(rendered).partition(_PLACEHOLDER)
    if not found:
        raise PromptError("the tokenizer's chat template drops the user's message; use a model with another one")
    beginning = tokenizer.encode(before, add_special_tokens=special)
    if special and beginning and beginning[-1] == tokenizer.eos_token_id:
        beginning.pop()
    return beginning, encode(tokenizer, after)


def encode(tokenizer: Any, text: str) -> list[int]:
    """Tokens of plain text, without special ones."""
    # verbose=False: documents are longer than the model on purpose, and are cut.
    return list(tokenizer.encode(text, add_special_tokens=False, verbose=False))
