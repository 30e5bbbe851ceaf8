"""`ti`, to write kernels with; where Taichi is missing they are written, and never run."""

from unittest import mock

from kernels import optional, taichi

if any(map(optional.available, taichi.MODULES)):
    ti = taichi.module()
else:
    ti = mock.MagicMock()
    ti.kernel = lambda function: function
