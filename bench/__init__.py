"""Benchmarks, run from a checkout: `python -m bench.NAME`. None is installed with the package."""
