"""nki.typing and neuronxcc.nki.typing: what kernels write behind the colon of a name."""

from __future__ import annotations


class _Annotation:
    """tensor[128, 512]: says something to a reader, and nothing to the simulator."""

    def __getitem__(self, key) -> _Annotation:
        return self

    def __call__(self, *arguments, **options) -> _Annotation:
        return self


tensor = mutable_tensor = scalar = _Annotation()
