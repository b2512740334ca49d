"""The policy of docs/policies.md does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lynx.planning import Conditions
from lynx.policies import BUILT_IN, Blocking
from lynx.simulation import simulate

PAGE = (Path(__file__).resolve().parents[3] / "docs/policies.md").read_text(encoding="utf-8")


def test_the_policy_of_the_page_drafts_and_verifies_layer_by_layer() -> None:
    names: dict[str, Any] = {}
    [code] = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "class Mine" in code]
    exec(code, names)
    conditions = Conditions(((3, 64),) * 30, 2048, 64, 31e6, step_s=0.04, token_s=0.006)
    mine, blocking = simulate(names["Mine"](), conditions), simulate(Blocking(), conditions)
    assert mine.drafted > 0
    assert mine.tokens == blocking.tokens
    assert mine.ttft_verified_s is not None
    assert blocking.ttft_verified_s is not None
    assert mine.ttft_verified_s < blocking.ttft_verified_s


def test_the_page_has_a_section_for_each_policy() -> None:
    assert {f"## {name}" for name in BUILT_IN} <= set(PAGE.splitlines())
