"""What a policy wants of the transfer, asked before there is one."""

from __future__ import annotations

from lynx._core import MAX_RUNGS
from lynx.planning.conditions import Choice, Conditions
from lynx.policies.base import Policy, PolicyError, name_of


def choose(policy: Policy, conditions: Conditions) -> Choice | None:
    """The policy's choice for a request under these conditions; None for a policy that has no method `choose`.

    Raises `PolicyError`, from the policy's own exception where it raised one.
    """
    method = getattr(policy, "choose", None)
    if method is None:
        return None
    try:
        choice = method(conditions)
    except Exception as e:
        raise PolicyError(f"{name_of(policy)} raised {type(e).__name__} as it was to choose: {e}") from e
    if not isinstance(choice, Choice):
        raise PolicyError(f"{name_of(policy)} chose {choice!r}; a Choice was due")
    widths = choice.anchor_bits
    if len(widths) != 2 or not all(1 <= bits <= 8 for bits in widths) or not 1 <= choice.rungs <= MAX_RUNGS:
        raise PolicyError(
            f"{name_of(policy)} chose {choice!r}; anchors have 1 to 8 bits of K and of V, "
            f"residuals 1 to {MAX_RUNGS} rungs"
        )
    return choice
