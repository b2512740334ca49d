"""The README's code is code: it runs, or at least compiles."""

from __future__ import annotations

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import lynx
from lynx.policies import Action

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def block(language: str, index: int = 0, of: int = 1) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert len(found) == of, f"the README has {len(found)} blocks of {language}"
    return str(found[index])


def test_the_policy_of_the_readme_drafts_eight_tokens_then_verifies() -> None:
    names: dict[str, Any] = {}
    exec(block("python", 0, of=3), names)
    policy = names["Eager"]()
    drafting = lynx.Snapshot(anchor_ready=True, can_draft=True, drafted=7)
    assert policy.decide(lynx.Snapshot()) is Action.WAIT
    assert policy.decide(drafting) is Action.DRAFT
    assert policy.decide(lynx.Snapshot(anchor_ready=True, can_draft=True, drafted=8)) is Action.WAIT
    assert policy.decide(lynx.Snapshot(anchor_ready=True, reference_ready=True, drafted=8)) is Action.VERIFY


def test_the_two_ends_of_the_readme_move_a_cache(tiny_model: Any) -> None:
    from lynx.engines.transformers import TransformersEngine

    names: dict[str, Any] = {}
    exec(block("python", 1, of=3), names)
    prompt, sampling = [(7 * i * i + 3 * i + 1) % 251 for i in range(90)], lynx.Sampling()
    with ThreadPoolExecutor() as pool:
        sending = pool.submit(
            names["prefill_node"], names["listener"], TransformersEngine(tiny_model), prompt, sampling
        )
        text = names["decode_node"](lynx.Node(), names["listener"].port, TransformersEngine(tiny_model), sampling)
        sending.result(10)
    assert len(text) == 1 + 16
    import torch

    ids = torch.tensor([prompt])
    generated = tiny_model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=1, do_sample=False)
    assert text[0] == int(generated[0, -1]), "the token that prefill sampled is part of the text"


def test_the_codec_of_the_readme_gives_back_every_bit() -> None:
    names: dict[str, Any] = {}
    exec(block("python", 2, of=3), names)
    assert names["torch"].equal(names["restored"], names["keys"])
    assert 0 < (names["anchor"] - names["keys"]).abs().max() < 1
    assert 0 < names["used"] < names["keys"].nbytes / 2


def test_the_cpp_of_the_readme_compiles_against_the_installed_headers(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++ to compile it with")
    include = re.compile(r"^#include.*$", re.MULTILINE)
    code = block("cpp")
    source = tmp_path / "readme.cpp"
    source.write_text(
        "\n".join(include.findall(code))
        + "\nvoid run(std::uint32_t layers, lynx::MutableTensorView* keys) {\n"
        + include.sub("", code)
        + "}\n"
    )
    headers = lynx.cmake_dir() / "include"
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Werror", f"-I{headers}", str(source)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert told.returncode == 0, told.stderr


def test_the_files_that_the_readme_links_to_are_there() -> None:
    root = Path(__file__).resolve().parents[2]
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (root / target).exists(), target
