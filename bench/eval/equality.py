"""Are committed tokens those of blocking decoding at that tier? Prompt by prompt, in a process for each core.

Not paced and not timed. The policy drafts on the anchor before it verifies, and a few tokens before each further pass,
so that drafts, rollbacks and passes over several tokens really happen.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lynx.policies import Action, Blocking, Tier
from lynx.runtime import NEAR_TIE
from lynx.transfer import CacheCoding

from . import requests, tasks
from .bench import Bench, sampling_of
from .modes import BF16, INT8, Mode
from .records import Records
from .sections import Plan
from .store import StoredCache

SAMPLINGS = ("greedy", "sampled")
SECTION = "equality"


@dataclass(frozen=True, slots=True)
class DraftsFirst:
    """Draft `first` tokens on the anchor whatever has arrived, then `more` before each pass."""

    first: int = 10
    more: int = 2
    waits_for: Tier = Tier.ANCHOR

    def decide(self, snapshot: Any) -> Action:
        """Choose the next step."""
        wanted = self.more if snapshot.committed else self.first
        if snapshot.can_draft and snapshot.drafted < wanted:
            return Action.DRAFT
        return Action.VERIFY if snapshot.reference_ready else Action.WAIT


# Fewer planes than usual, so that more is drafted wrong; all planes together are the same INT8 cache.
_BLOCKING = Mode(INT8, "", CacheCoding(), Blocking)
_DRAFTING = {
    "int8": Mode("drafting", "", CacheCoding(key_anchor_bits=4, value_anchor_bits=2), DraftsFirst, INT8),
    "exact": Mode(
        "drafting-exact", "", CacheCoding(key_anchor_bits=4, value_anchor_bits=2, exact=True), DraftsFirst, BF16
    ),
}


def run(bench: Bench, plan: Plan, model: str, folder: Path, workers: int | None = None) -> None:
    """Measure the prompts that are not known yet. With one worker it all happens in this process."""
    keys = [_key(bench.name, plan, index) for index in range(plan.equality_prompts)]
    missing = [index for index, key in enumerate(keys) if bench.records.get(SECTION, key) is None]
    workers = min(workers or os.cpu_count() or 1, max(len(missing), 1))
    what = f"{SECTION}: {plan.equality_context:,} tokens"
    found = _in_processes(model, folder, plan, missing, workers) if workers > 1 else _here(bench, plan, missing)
    for done, (index, values) in enumerate(found, len(keys) - len(missing) + 1):
        bench.records.add(SECTION, keys[index], values)
        bench.on_progress(what, done, len(keys))


def _key(model: str, plan: Plan, index: int) -> dict[str, Any]:
    return {
        "model": model,
        "context": plan.equality_context,
        "tokens_wanted": plan.equality_tokens,
        "prompt": index,
    }


def _here(bench: Bench, plan: Plan, missing: list[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    for index in missing:
        yield index, compare(bench, plan, index)


def _in_processes(
    model: str, folder: Path, plan: Plan, missing: list[int], workers: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn, _begin, (model, folder)) as pool:
        running = {pool.submit(_work, plan, index): index for index in missing}
        try:
            for one in as_completed(running):
                yield running[one], one.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


_bench: Bench


def _begin(model: str, folder: Path) -> None:
    global _bench
    torch.set_num_threads(1)  # The other cores are the other workers'.
    atexit.register(os._exit, 0)  # Without the libraries' destructors, which have nothing to save here.
    _bench = Bench(model, folder, Records(None), lambda what, done, total: None)


def _work(plan: Plan, index: int) -> dict[str, Any]:
    return compare(_bench, plan, index)


def compare(bench: Bench, plan: Plan, index: int) -> dict[str, Any]:
    """One prompt, both samplings, both tiers: a list `cases` with an object for each."""
    prompt, path = bench.prompt(tasks.CONTINUE, plan.equality_context, index)
    cases = []
    with bench.client(0) as (client, _):
        cache = client.cache(path)
        for sampling in SAMPLINGS:
            asked = requests.Asked(path, prompt.token_ids, plan.equality_tokens, sampling=sampling_of(sampling, index))
            for tier, mode in _DRAFTING.items():
                if tier == "int8":
                    blocking = client.run(asked, _BLOCKING).measured.tokens
                else:
                    blocking = _untouched(client, asked, cache)
                answer = client.run(asked, mode)
                same_rows = _same_rows(bench, cache) if tier == "exact" else None
                cases.append(
                    {
                        "sampling": sampling,
                        "tier": tier,
                        "equal": answer.measured.tokens == blocking and answer.verified,
                        "near_tie": _is_near_tie(client, asked, answer, blocking),
                        "drafted": answer.measured.drafted,
                        "rollbacks": answer.measured.rollbacks,
                        "near_ties": answer.near_ties,
                        "same_rows": same_rows,
                    }
                )
    return {"cases": cases}


def _untouched(client: requests.Client, asked: requests.Asked, cache: StoredCache) -> list[int]:
    """Blocking decoding on the bf16 cache as prefill left it: no codec, no transfer."""
    requests.write(client.engine, asked, cache.layers)
    return [sampled.token for sampled in requests.stepwise(client.engine, asked, _first(asked, cache))]


def _first(asked: requests.Asked, cache: StoredCache) -> int:
    return requests.first_token(asked, cache).token


def _same_rows(bench: Bench, cache: StoredCache) -> bool:
    """Is what the engine decoded from, bit for bit, the cache that prefill left?"""
    return all(
        torch.equal(rows.to(torch.bfloat16), source)
        for index, pair in enumerate(cache.layers)
        for rows, source in zip(bench.engine.prompt_rows(index), pair, strict=True)
    )


def _is_near_tie(
    client: requests.Client, asked: requests.Asked, answer: requests.Answer, blocking: list[int]
) -> bool | None:
    """Where tokens differ: could blocking decoding as well have chosen another? By the rows that the engine has."""
    tokens = answer.measured.tokens
    if tokens == blocking:
        return None
    differs = next((i for i, (a, b) in enumerate(zip(tokens, blocking, strict=False)) if a != b), None)
    if differs is None:
        return False
    for at, token in enumerate([answer.first_token, *blocking[:differs]]):
        [sampled] = client.engine.forward([token], len(asked.prompt) + at)
    return bool(sampled.margin < NEAR_TIE)
