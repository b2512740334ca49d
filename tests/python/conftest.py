"""What several tests share: a tiny model on disk, and two nodes that are connected."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import lynx
from lynx.runtime import Committed, Drafted, Event, RolledBack

TINY = {
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "initializer_range": 0.3,
    "eos_token_id": None,
    "bos_token_id": None,
}


@pytest.fixture(scope="session")
def tiny_model() -> Any:
    """A Llama with random weights, large enough that greedy choices are seldom near ties."""
    torch = pytest.importorskip("torch", reason="the extra 'transformers' is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra 'transformers' is not installed")
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=300, **TINY)).eval()


@pytest.fixture(scope="session")
def tiny_model_dir(tiny_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same on disk, with a tokenizer of one token a byte."""
    import tokenizers
    import transformers

    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model.save_pretrained(folder)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = tokenizers.Tokenizer(tokenizers.models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    words.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = tokenizers.decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    return folder


@dataclass
class Pair:
    """Two nodes of this process and the two ends of their connection."""

    prefill: lynx.Node
    decode: lynx.Node
    to_decode: lynx.Peer
    to_prefill: lynx.Peer


@contextlib.contextmanager
def connected(provider: str = "auto", arena_bytes: int = 64 << 20) -> Iterator[Pair]:
    """Two nodes, connected over loopback."""
    prefill, decode = lynx.Node(provider, arena_bytes=arena_bytes), lynx.Node(provider, arena_bytes=arena_bytes)
    listener = lynx.Listener(prefill, "127.0.0.1", 0)
    with ThreadPoolExecutor() as pool:
        connecting = pool.submit(lynx.Peer.connect, decode, "127.0.0.1", listener.port)
        to_decode = listener.accept(10)
        assert to_decode is not None
        yield Pair(prefill, decode, to_decode, connecting.result())


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two connected nodes over the default provider."""
    with connected() as two:
        yield two


def text_of_events(events: Iterable[Event]) -> tuple[int, ...]:
    """What a user sees in the end, from the events alone. Committed tokens are never taken back on the way."""
    shown: list[int] = []
    committed = 0
    for event in events:
        if isinstance(event, Drafted):
            shown.append(event.token)
        elif isinstance(event, RolledBack):
            del shown[-event.count :]
            assert len(shown) >= committed, "a committed token was taken back"
        elif isinstance(event, Committed):
            assert tuple(shown[committed : committed + event.accepted]) == event.tokens[: event.accepted]
            shown[committed : committed + event.accepted] = event.tokens
            committed += len(event.tokens)
    return tuple(shown)
