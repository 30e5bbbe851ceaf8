"""PyTorch's companions: torchvision without its C++ part, and torchax's autocast.

Each function says what it uses. torch itself is imported where it is first needed.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock


def import_torchvision() -> None:
    """Import torchvision; where its C++ part does not fit torch, without that.

    The wheel on PyPI is built for a CUDA torch. Beside a CPU torch its operators do not load, and
    the import ends at the first that it describes. timm's models need none of them, so two are
    declared while it is imported, and are gone again afterwards.

    Private: the names and the schema of torchvision's operators, in torchvision 0.24 to 0.28, and
    `torch.library._scoped_library`, in torch 2.9 to 2.13.
    """
    import torch

    try:
        import torchvision
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
        schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        with torch.library._scoped_library("torchvision", "DEF") as library:
            for name in ("nms", "qnms"):
                library.define(name + schema)
            import torchvision  # noqa: F401


@contextlib.contextmanager
def autocast_of_torchax(functions: Sequence[Callable[..., Any]]) -> Iterator[None]:
    """Within it, torchax's autocast computes these torch functions in the lower precision. It looks
    each function up as it is called, and its own table has only what these call, not F.linear
    itself. The table is put back afterwards.

    Private: `torchax.amp.autocast_policy`, in torchax 0.0.14.dev20261026.
    """
    from torchax import amp

    lower = dict.fromkeys(functions, amp.CastPolicy.LOWER_PRECISION_FP)
    with mock.patch.dict(amp.autocast_policy, lower):
        yield
