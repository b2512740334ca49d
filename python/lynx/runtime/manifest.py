"""What a manifest means to the decode loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lynx._core import Coding, Manifest, ManifestTensor, ProtocolError, TensorRole
from lynx.policies.base import Tier

if TYPE_CHECKING:
    from lynx.engines.base import Engine


def check_manifest(manifest: Manifest, engine: Engine) -> None:
    """Does what a stranger announces fit the model, tensor for tensor? Raises `ProtocolError`."""
    roles = (TensorRole.KEY, TensorRole.VALUE)
    theirs: dict[tuple[int, TensorRole], list[ManifestTensor]] = {}
    for tensor in manifest.tensors:
        theirs.setdefault((tensor.layer, tensor.role), []).append(tensor)
    ours = {(index, role): shape for index, shape in enumerate(engine.layers) for role in roles}
    if theirs.keys() != ours.keys():
        raise ProtocolError(
            f"the manifest has {len(theirs)} tensors, not K and V of the model's {len(engine.layers)} layers"
        )
    for (layer, _), pieces in theirs.items():
        # A manifest's pieces leave no gap between them: where they begin and end says what they cover.
        begin = (min(p.first_head for p in pieces), min(p.first_token for p in pieces))
        heads = max(p.first_head + p.spec.heads for p in pieces)
        tokens = max(p.first_token + p.spec.tokens for p in pieces)
        kv_heads, head_dim = engine.layers[layer]
        got, wanted = (heads, tokens, pieces[0].spec.head_dim), (kv_heads, manifest.context_tokens, head_dim)
        if got != wanted or begin != (0, 0):
            raise ProtocolError(
                f"layer {layer} of the manifest is {got} (heads, tokens, head_dim), from head and token {begin} on; "
                f"the model's is {wanted}"
            )


def tier_of(manifest: Manifest, part: int) -> Tier:
    """What a cache is called whose layers all have the parts through `part`."""
    specs = [tensor.spec for tensor in manifest.tensors]
    if all(spec.coding == Coding.RAW or (spec.exact and part >= manifest.exact_part) for spec in specs):
        return Tier.EXACT
    return Tier.RESIDUAL if part >= manifest.residual_part else Tier.ANCHOR


def reference_part(manifest: Manifest) -> int:
    """The part that completes the reference tier: the last. -1 if that is an anchor, which verifies nothing."""
    last: int = manifest.parts - 1
    return last if tier_of(manifest, last) > Tier.ANCHOR else -1
