"""nki.typing and neuronxcc.nki.typing: what kernels write behind the colon of a name."""

from __future__ import annotations


class _Annotation:
    """tensor[128, 512]: says something to a reader, and nothing to the simulator."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getitem__(self, key) -> _Annotation:
        return self

    def __call__(self, *arguments, **options) -> _Annotation:
        return self

    def __repr__(self) -> str:
        return f"nki.typing.{self.name}"


tensor = _Annotation("tensor")
mutable_tensor = _Annotation("mutable_tensor")
scalar = _Annotation("scalar")
