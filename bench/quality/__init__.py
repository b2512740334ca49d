"""How near a model decoding from a coded cache stays to the same model on the bf16 cache."""
