"""nki.typing and neuronxcc.nki.typing: what kernels write behind the colon of a name."""

from __future__ import annotations


class _Annotation:
    """tensor[128, 512]: says something to a reader, and nothing to the simulator."""

    def __call__(self, *arguments, **options) -> _Annotation:
        return self

    __getitem__ = __call__


tensor = mutable_tensor = scalar = _Annotation()
