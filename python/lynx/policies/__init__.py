"""When to wait, to draft, to refine and to verify. A policy is plain Python: a snapshot in, an action out."""

from __future__ import annotations

from lynx.policies.adaptive import Adaptive
from lynx.policies.anchor_first import AnchorFirst
from lynx.policies.base import Action, Choice, Conditions, Policy, PolicyError, Tier
from lynx.policies.blocking import Blocking
from lynx.policies.choose import choose
from lynx.policies.deadline import Deadline
from lynx.policies.ladder import Ladder
from lynx.policies.layer_ready import LayerReady
from lynx.policies.load import BUILT_IN, load_policy
from lynx.policies.release import MarginGated, Provisional, Release, VerifiedOnly

__all__ = [
    "BUILT_IN",
    "Action",
    "Adaptive",
    "AnchorFirst",
    "Blocking",
    "Choice",
    "Conditions",
    "Deadline",
    "Ladder",
    "LayerReady",
    "MarginGated",
    "Policy",
    "PolicyError",
    "Provisional",
    "Release",
    "Tier",
    "VerifiedOnly",
    "choose",
    "load_policy",
]
