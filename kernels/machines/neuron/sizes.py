"""nl.tile_size: what a tile may have, by the chip that is simulated."""

from kernels.machines.neuron.chips import CHIPS, NeuronChip, target
from kernels.machines.neuron.memory import running


class TileSize:
    """The hardware's sizes. Outside a kernel those of the chip that is simulated by default."""

    @property
    def _chip(self) -> NeuronChip:
        core = running.get()
        return CHIPS[target()] if core is None else core.chip

    pmax = property(lambda self: self._chip.lanes, doc="Partitions of a tile.")
    psum_bank_fmax = property(
        lambda self: self._chip.psum_bank_bytes // 4, doc="float32 in a PSUM bank."
    )
    psum_fmax = psum_bank_fmax  # until NKI 0.3
    gemm_stationary_fmax = property(lambda self: 128, doc="Columns of a stationary tile.")
    gemm_moving_fmax = property(lambda self: 512, doc="Columns of a moving tile.")
    bn_stats_fmax = property(lambda self: 512, doc="Elements of bn_stats.")
    total_available_sbuf_size = property(
        lambda self: self._chip.sbuf_bytes, doc="Bytes of a partition; until NKI 0.3."
    )
