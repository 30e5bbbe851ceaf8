"""Every test runs on the CPU, draws the same examples each time, and needs no network."""

import os

import hypothesis

os.environ.setdefault("JAX_PLATFORMS", "cpu")
hypothesis.settings.register_profile("same", derandomize=True, deadline=None, max_examples=15)
hypothesis.settings.load_profile("same")
