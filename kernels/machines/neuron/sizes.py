"""nl.tile_size: what a tile may have, by the chip that is simulated."""

from __future__ import annotations

from kernels.machines.neuron.chips import CHIPS, Chip
from kernels.machines.neuron.machine import _machine


class TileSize:
    """The hardware's sizes. Outside a kernel those of Inf2."""

    @property
    def _chip(self) -> Chip:
        core = _machine.get()
        return CHIPS["inf2"] if core is None else core.chip

    pmax = property(lambda self: self._chip.lanes, doc="Partitions of a tile.")
    psum_bank_fmax = property(
        lambda self: self._chip.psum_bank_bytes // 4, doc="float32 in a PSUM bank."
    )
    psum_fmax = psum_bank_fmax  # until NKI 0.3
    psum_bank_fmax_bytes = property(
        lambda self: self._chip.psum_bank_bytes, doc="Bytes of a partition in a PSUM bank."
    )
    psum_num_banks = property(
        lambda self: self._chip.psum_bytes // self._chip.psum_bank_bytes, doc="PSUM banks."
    )
    gemm_stationary_fmax = property(lambda self: 128, doc="Columns of a stationary tile.")
    gemm_moving_fmax = property(lambda self: 512, doc="Columns of a moving tile.")
    bn_stats_fmax = property(lambda self: 512, doc="Elements of bn_stats.")
    psum_min_align = property(lambda self: 4, doc="Bytes, of an address in PSUM.")
    sbuf_min_align = property(lambda self: 1, doc="Bytes, of an address in SBUF.")
    sbuf_size_bytes = property(
        lambda self: self._chip.sbuf_bytes * self._chip.lanes, doc="Bytes of SBUF."
    )
    sbuf_fmax = property(lambda self: self._chip.sbuf_bytes // 4, doc="float32 in a partition.")
    sbuf_fmax_bytes = property(lambda self: self._chip.sbuf_bytes, doc="Bytes of a partition.")
    total_available_sbuf_size = sbuf_fmax_bytes  # until NKI 0.3
