"""One setting measured: its texts, its choices, what is known of them already."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lynx import Codec, models

from .cached_model import CachedModel
from .choices import Choice
from .measure import Outcome, Score, score_text
from .store import Setting, Store
from .texts import windows


def run(
    name: str,
    setting: Setting,
    choices: Sequence[Choice],
    store: Store,
    on_score: Callable[[int], None] = lambda text: None,
) -> list[Outcome]:
    """Measure the choices that the store lacks on each text of the model `name`, and return all.

    `on_score` is called with a text's index after each of its scores, known ones included. Raises what
    `models.load` and `windows` raise, and `ValueError` for texts that are longer than the model allows.
    """
    missing = [
        (text, [choice for choice in choices if store.get(setting, text, choice) is None])
        for text in range(setting.texts)
    ]
    for text, lacking in missing:
        for _ in range(len(choices) - len(lacking)):
            on_score(text)
    if any(lacking for _, lacking in missing):
        loaded = models.load(name)
        model = CachedModel(loaded.model)
        cut = windows(
            loaded.tokenizer, setting.context_tokens, setting.tokens_per_text, setting.texts, setting.held_out
        )
        codec = Codec.by_name(setting.codec)
        for text, lacking in missing:
            if lacking:
                for choice, score in score_text(model, codec, cut[text], setting.context_tokens, lacking):
                    store.add(setting, text, choice, score)
                    on_score(text)
    return [
        Outcome(choice, [_known(store, setting, text, choice) for text in range(setting.texts)]) for choice in choices
    ]


def _known(store: Store, setting: Setting, text: int, choice: Choice) -> Score:
    score = store.get(setting, text, choice)
    assert score is not None
    return score
