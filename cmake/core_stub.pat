# What the stub of lynx._core says beside what the generator finds (nanobind's pattern format).

# Dunder names of a module are left out by the generator.
lynx._core.__suffix__:
    __version__: str

# A constant's own type is all that the generator knows.
lynx._core.DURATION_BOUNDS_S:
    DURATION_BOUNDS_S: tuple[float, ...]
