"""Questions about the Python documentation that a short text answers."""

from __future__ import annotations

from dataclasses import dataclass
from pydoc_data import topics


@dataclass(frozen=True, slots=True)
class Question:
    """`quote` is a place in the topic's text that tells the answer; an answer with one of `answers` in it is right."""

    topic: str
    quote: str
    text: str
    answers: tuple[str, ...]


_ALL = (
    Question("pass", "null operation", "What kind of operation is the pass statement?", ("null",)),
    Question(
        "identifiers",
        "NFKC",
        "Into which normal form are identifiers converted? Answer with its four letters.",
        ("nfkc",),
    ),
    Question(
        "truth",
        "__bool__",
        "Which method that returns False makes an object false in a truth test?",
        ("__bool__", "bool"),
    ),
    Question(
        "import",
        '"ImportError" is raised',
        "Which exception is raised if an imported attribute is not found?",
        ("importerror",),
    ),
    Question(
        "naming",
        "UnboundLocalError",
        "Which exception is raised if a local variable is used before it has a value?",
        ("unboundlocalerror",),
    ),
    Question(
        "with", "__enter__", "Which method of the context manager is invoked first: its name?", ("__enter__", "enter")
    ),
    Question(
        "imaginary",
        "real part of 0.0",
        "Which real part has the complex number of an imaginary literal?",
        ("0.0", "zero"),
    ),
    Question(
        "integers",
        "Underscores are ignored",
        "Which character may group the digits of an integer?",
        ("underscore", "_"),
    ),
    Question("lambda", "anonymous", "Lambda expressions create functions of which kind?", ("anonymous",)),
    Question("assert", "AssertionError", "Which exception does a failed assert statement raise?", ("assertionerror",)),
    Question("typesmapping", "preserve insertion order", "Which order do dictionaries preserve?", ("insertion",)),
    Question("bltin-ellipsis-object", "exactly one ellipsis", "How many ellipsis objects are there?", ("one", "1")),
    Question(
        "yield",
        "*generator* function",
        "Yield expressions are used when defining which kind of function?",
        ("generator",),
    ),
    Question(
        "break", "loop control target", "What keeps its current value if break ends a for loop?", ("control", "target")
    ),
    Question("string-methods", "caseless matching", "For what may casefolded strings be used?", ("caseless", "match")),
    Question("del", '"NameError"', "Which exception is raised if the name to delete is unbound?", ("nameerror",)),
    Question(
        "power",
        "more tightly",
        "Does the power operator bind more or less tightly than unary operators on its left?",
        ("more",),
    ),
    Question(
        "conversions",
        "converted to\n  complex",
        "If one argument is a complex number, what is the other converted to?",
        ("complex",),
    ),
    Question(
        "shifting",
        "lower priority",
        "Have shifting operations a lower or a higher priority than arithmetic operations?",
        ("lower",),
    ),
    Question(
        "while", '"else"', "Which clause of a while statement is executed when the expression is false?", ("else",)
    ),
)

QUESTIONS = tuple(q for q in _ALL if q.quote in topics.topics.get(q.topic, ""))
"""Those that this Python's documentation answers."""
