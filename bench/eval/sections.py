"""The parts of the evaluation: which requests each of them makes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from . import modes, tasks
from .bench import Bench

STEPS_OF_INT8 = 36
"""Decode steps that the INT8 cache takes to come, in the setting."""
SETTING_MODES = (modes.INT8, modes.LYNX, modes.INT4, modes.LADDER, modes.ADAPTIVE, modes.ANCHOR_FIRST, modes.KIVI)
ADAPTIVE_MODES = (modes.INT8, modes.LAYERWISE, modes.LYNX, modes.LADDER, modes.ANCHOR_FIRST, modes.ADAPTIVE)
TASK_MODES = (modes.BF16, modes.INT8, modes.INT4, modes.KIVI, modes.LYNX, modes.EXACT)
MBIT = 10**6 // 8


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured. Tokens, prompts, bytes a second."""

    contexts: tuple[int, ...] = (2048, 7000)
    setting_prompts: int = 10
    setting_tokens: int = 64
    equality_prompts: int = 100
    equality_context: int = 1024
    equality_tokens: int = 32
    bandwidths: tuple[int, ...] = (50 * MBIT, 200 * MBIT, 1000 * MBIT, 5000 * MBIT)
    adaptive_context: int = 2048
    adaptive_prompts: int = 3
    adaptive_tokens: int = 32
    task_contexts: tuple[int, ...] = (2048, 7000)
    task_prompts: tuple[int, ...] = (10, 4)
    task_tokens: int = 16
    fault_context: int = 512
    fault_prompts: int = 3

    def with_prompts(self, prompts: int) -> Plan:
        """So many in each section."""
        return replace(
            self,
            setting_prompts=prompts,
            equality_prompts=prompts,
            adaptive_prompts=prompts,
            task_prompts=(prompts,) * len(self.task_contexts),
            fault_prompts=prompts,
        )

    def with_contexts(self, contexts: tuple[int, ...]) -> Plan:
        """For the setting and the tasks; the sweep takes the first."""
        prompts = tuple(self.task_prompts[min(i, len(self.task_prompts) - 1)] for i in range(len(contexts)))
        return replace(
            self, contexts=contexts, task_contexts=contexts, task_prompts=prompts, adaptive_context=contexts[0]
        )


USUAL = Plan()
FULL = Plan(
    bandwidths=tuple(mbit * MBIT for mbit in (50, 100, 200, 500, 1000, 2000, 5000)),
    adaptive_prompts=10,
    task_contexts=(2048, 4096, 7000),
    task_prompts=(40, 40, 40),
    fault_prompts=10,
)
QUICK = Plan(
    contexts=(512,),
    setting_prompts=2,
    setting_tokens=16,
    equality_prompts=2,
    equality_context=256,
    equality_tokens=16,
    bandwidths=(50 * MBIT, 1000 * MBIT),
    adaptive_context=512,
    adaptive_prompts=1,
    adaptive_tokens=16,
    task_contexts=(1536,),
    task_prompts=(2,),
    fault_prompts=1,
    fault_context=256,
)


def setting(bench: Bench, plan: Plan) -> None:
    """The link is so slow that the INT8 cache takes as long as `STEPS_OF_INT8` decode steps."""
    for context in plan.contexts:
        rate = round(bench.int8_bytes(context) / (STEPS_OF_INT8 * bench.pace(context).step_s))
        bench.measure(
            "setting", tasks.CONTINUE, context, rate, SETTING_MODES, plan.setting_prompts, plan.setting_tokens
        )


def adaptive(bench: Bench, plan: Plan) -> None:
    """From links that are slower than decoding to links that hardly delay it."""
    for rate in plan.bandwidths:
        bench.measure(
            "adaptive",
            tasks.CONTINUE,
            plan.adaptive_context,
            rate,
            ADAPTIVE_MODES,
            plan.adaptive_prompts,
            plan.adaptive_tokens,
        )


def accuracy(bench: Bench, plan: Plan) -> None:
    """Answers that can be checked. Not paced: what is answered does not depend on when."""
    for context, prompts in zip(plan.task_contexts, plan.task_prompts, strict=True):
        for task in (tasks.NEEDLE, tasks.ANSWER):
            bench.measure("tasks", task, context, 0, TASK_MODES, prompts, plan.task_tokens, stop=True)
