"""The sender dies after the anchor: what the request ends as."""

from __future__ import annotations

import contextlib
from typing import Any

import lynx
from lynx.runtime import Arrived, Committed, Event, OnLoss

from . import modes, requests, tasks
from .bench import Bench
from .sections import Plan

SECTION = "faults"
TOKENS = 16
ANCHOR_S = (1.0, 2.0, 4.0)
"""In which the anchor comes, and about as long what is behind it. On a busy machine all of it may be there before the
death is: then there was no fault, and it is tried again, slower."""


def run(bench: Bench, plan: Plan) -> None:
    """Kill it, for each mode, each way to end and each prompt."""
    names = bench.modes((modes.LYNX, modes.ANCHOR_FIRST))
    cases = [(i, mode, on_loss) for i in range(plan.fault_prompts) for mode in names for on_loss in OnLoss]
    for done, (index, mode, on_loss) in enumerate(cases, 1):
        key = {
            "model": bench.name,
            "context": plan.fault_context,
            "prompt": index,
            "mode": mode.name,
            "on_loss": on_loss.name,
        }
        bench.records.ensure(SECTION, key, lambda i=index, m=mode, o=on_loss: _kill(bench, plan, i, m, o))  # type: ignore[misc]
        bench.on_progress("faults: the sender is killed", done, len(cases))


def _kill(bench: Bench, plan: Plan, index: int, mode: modes.Mode, on_loss: OnLoss) -> dict[str, Any]:
    for anchor_s in ANCHOR_S:
        values = _try(bench, plan, index, mode, on_loss, anchor_s)
        if values["killed"]:
            break
    return values


def _try(bench: Bench, plan: Plan, index: int, mode: modes.Mode, on_loss: OnLoss, anchor_s: float) -> dict[str, Any]:
    prompt, path = bench.prompt(tasks.CONTINUE, plan.fault_context, index)
    rate = round(bench.int8_bytes(plan.fault_context) / 2 / anchor_s)
    asked = requests.Asked(path, prompt.token_ids, TOKENS, rate, on_loss=on_loss, timeout_s=60)
    committed = 0
    killed = complete = False
    sender = requests.Sender()
    try:
        with requests.Client(bench.engine, sender) as client:

            def on_event(event: Event) -> None:
                nonlocal committed, killed, complete
                if isinstance(event, Arrived) and event.anchor == 1 and event.residual < 1 and not killed:
                    killed = True
                    sender.kill()
                if isinstance(event, Arrived):
                    complete = event.residual == 1
                if isinstance(event, Committed):
                    committed += len(event.tokens)

            raised, answer = None, None
            try:
                answer = client.run(asked, mode, on_event=on_event)
            except lynx.Error as e:
                raised = type(e).__name__
    finally:
        with contextlib.suppress(OSError):
            sender.close()
    return {
        "killed": killed and not complete,
        "raised": raised,
        "committed": committed,
        "verified": None if answer is None else answer.verified,
        "tier": None if answer is None else answer.tier,
        "tokens": 0 if answer is None else len(answer.measured.tokens),
        "error": None if answer is None else answer.error,
    }
