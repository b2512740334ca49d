"""When to wait, to draft and to verify. A policy is plain Python: a snapshot in, an action out."""

from __future__ import annotations

from lynx.policies.anchor_first import AnchorFirst
from lynx.policies.base import Action, Policy, PolicyError, Tier
from lynx.policies.blocking import Blocking
from lynx.policies.load import load_policy

__all__ = ["Action", "AnchorFirst", "Blocking", "Policy", "PolicyError", "Tier", "load_policy"]
