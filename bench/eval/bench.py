"""What all sections share: a model, its prompts, its caches, and a row for each request."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lynx
from bench.command import OnProgress
from lynx import PlaneLayout, TensorSpec, models
from lynx.engines.transformers import TransformersEngine

from . import calibrate, requests
from .calibrate import Pace
from .modes import MODES, Mode
from .records import Records
from .store import CacheStore, model_digest
from .tasks import Prompt, Tasks


class Bench:
    """One loaded model. For one thread; close it by leaving the context."""

    def __init__(
        self, model: str, folder: Path, records: Records, on_progress: OnProgress, *, over_link: bool = False
    ) -> None:
        loaded = models.load(model)
        self.model: Any = loaded.model
        self.name = loaded.name
        self.tokenizer: Any = loaded.tokenizer
        self.engine = TransformersEngine(loaded.model)
        self.tasks = Tasks(loaded.tokenizer)
        self.store = CacheStore(folder / "caches", self.engine, model_digest(loaded.model))
        self.records = records
        self.on_progress = on_progress
        self.notes: list[str] = []
        self.over_link = over_link
        self._open = contextlib.ExitStack()
        self._client: requests.Client | None = None

    def __enter__(self) -> Bench:
        """Return the bench itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the sender."""
        self._open.close()

    @property
    def end_tokens(self) -> list[int]:
        """Of the model."""
        ids = self.model.generation_config.eos_token_id
        return [] if ids is None else list(ids) if isinstance(ids, Sequence) else [ids]

    def modes(self, names: Sequence[str]) -> list[Mode]:
        """Those that can be measured; of the others a note says why not."""
        for name in names:
            if MODES[name].missing:
                self.note(f"{name} was not measured: {MODES[name].missing}")
        return [MODES[name] for name in names if not MODES[name].missing]

    def note(self, text: str) -> None:
        """Once."""
        if text not in self.notes:
            self.notes.append(text)

    def pace(self, context_tokens: int) -> Pace:
        """Measured once, and then kept: a run that goes on has to have the rate that it began with."""
        key = {"model": self.name, "context": context_tokens}
        return Pace(
            **self.records.ensure("pace", key, lambda: calibrate.measure(self.engine, context_tokens).to_json())
        )

    def int8_bytes(self, context_tokens: int) -> int:
        """Of the whole INT8 cache."""
        return sum(
            2 * PlaneLayout(TensorSpec(heads, context_tokens, head_dim)).bytes for heads, head_dim in self.engine.layers
        )

    @contextlib.contextmanager
    def client(self, bytes_per_second: int) -> Iterator[tuple[requests.Client, int]]:
        """A client, and the rate that its sender has to keep by itself."""
        if self.over_link and bytes_per_second:
            with requests.client_across(self.engine, 8 * bytes_per_second) as made:
                yield made, 0
            return
        if self._client is None:
            self._client = self._open.enter_context(requests.client(self.engine))
        yield self._client, bytes_per_second

    def prompt(self, task: str, context_tokens: int, index: int) -> tuple[Prompt, Path]:
        """And its cache."""
        prompt = self.tasks.make(task, context_tokens, index)
        return prompt, self.store.path_of(prompt.token_ids)

    def measure(
        self,
        section: str,
        task: str,
        context_tokens: int,
        bytes_per_second: int,
        names: Sequence[str],
        prompts: int,
        tokens: int,
        *,
        stop: bool = False,
    ) -> None:
        """One request for each mode and prompt that is not known yet.

        The modes take turns on each prompt, each time from the next one on, so that what drifts hits all of them.
        """
        modes = self.modes(names)
        what = f"{section}: {task}, {context_tokens:,} tokens"
        what += f", {bytes_per_second * 8 / 1e6:,.0f} Mbit/s" if bytes_per_second else ""
        done = 0
        for index in range(prompts):
            turn = index % max(len(modes), 1)
            for mode in modes[turn:] + modes[:turn]:
                key = {
                    "model": self.name,
                    "task": task,
                    "context": context_tokens,
                    "bytes_per_second": bytes_per_second,
                    "link": self.over_link,
                    "mode": mode.name,
                    "prompt": index,
                    "tokens_wanted": tokens,
                }
                if self.records.get(section, key) is None:
                    self.records.add(
                        section, key, self._one(task, context_tokens, index, bytes_per_second, mode, tokens, stop)
                    )
                done += 1
                self.on_progress(what, done, prompts * len(modes))

    def _one(
        self, task: str, context_tokens: int, index: int, bytes_per_second: int, mode: Mode, tokens: int, stop: bool
    ) -> dict[str, Any]:
        prompt, path = self.prompt(task, context_tokens, index)
        pace = self.pace(context_tokens)
        with self.client(bytes_per_second) as (client, own_rate):
            asked = requests.Asked(
                path,
                prompt.token_ids,
                tokens,
                own_rate,
                end_tokens=self.end_tokens if stop else (),
                told=bytes_per_second,
            )
            answer = client.run(asked, mode, pace)
        text = self.tokenizer.decode([answer.first_token, *answer.measured.tokens], skip_special_tokens=True)
        return {**answer.to_json(), "correct": prompt.correct(text), "text": text if stop else None}


def sampling_of(name: str, prompt: int) -> lynx.Sampling:
    """Greedy, or drawn with the prompt's number as the seed."""
    return lynx.Sampling() if name == "greedy" else lynx.Sampling(temperature=0.8, top_p=0.95, seed=prompt)
