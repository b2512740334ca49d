"""A policy by name, for the command line."""

from __future__ import annotations

import importlib
import os
import sys

from lynx.policies.adaptive import Adaptive
from lynx.policies.anchor_first import AnchorFirst
from lynx.policies.base import Policy, PolicyError
from lynx.policies.blocking import Blocking
from lynx.policies.deadline import Deadline
from lynx.policies.ladder import Ladder
from lynx.policies.layer_ready import LayerReady

BUILT_IN: dict[str, type[Policy]] = {
    "blocking": Blocking,
    "anchor-first": AnchorFirst,
    "layer-ready": LayerReady,
    "ladder": Ladder,
    "deadline": Deadline,
    "adaptive": Adaptive,
}


def load_policy(name: str) -> Policy:
    """Make the policy called `name`: a built-in one, or "module:Class", looked up from the working directory too.

    Raises `PolicyError`, from the module's own exception where it raised one.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]()
    module_name, colon, class_name = name.partition(":")
    if not colon:
        raise PolicyError(f"policy {name!r} is not known: use one of {', '.join(BUILT_IN)}, or module:Class")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name) if module_name else None
    except ModuleNotFoundError as e:
        # Its own absence is told in a line; what it lacks itself is told with where it asks for it.
        cause = None if e.name == module_name else e
        raise PolicyError(f"policy {name!r} could not be made: {e}") from cause
    except Exception as e:
        raise PolicyError(f"policy {name!r} could not be made: {type(e).__name__}: {e}") from e
    if not hasattr(module, class_name or "?"):
        raise PolicyError(f"policy {name!r} is not there: {module_name or 'the module'} has no {class_name or 'class'}")
    try:
        policy = getattr(module, class_name)()
    except Exception as e:
        raise PolicyError(f"policy {name!r} could not be made: {type(e).__name__}: {e}") from e
    if not callable(getattr(policy, "decide", None)):
        raise PolicyError(f"policy {name!r} has no method decide(snapshot)")
    return policy  # type: ignore[no-any-return]
