"""Machines, drawn from their data."""

from __future__ import annotations

from kernels.neuron.chips import ENGINES, Chip
from kernels.pictures.canvas import COLOURS, Canvas, Picture, in_bytes


def neuron_core(chip: Chip) -> Picture:
    """One NeuronCore-v2: its engines, its two memories on the chip, and the way to main memory."""
    canvas = Canvas(900, 300)
    canvas.rect(150, 0, 750, 300, stroke_opacity=0.35, radius=8)
    canvas.text(166, 22, f"NeuronCore-v2, one of {chip.cores} on a chip", size=13, weight=600)
    for x, colour, name, lines in (
        (
            0,
            COLOURS[3],
            "HBM",
            (in_bytes(chip.hbm_bytes), f"{chip.hbm_bytes_per_second / 1e9:.0f} GB/s"),
        ),
        (310, COLOURS[0], "SBUF", (f"{chip.lanes} partitions", f"of {in_bytes(chip.sbuf_bytes)}")),
        (770, COLOURS[2], "PSUM", (f"{chip.lanes} partitions", f"of {in_bytes(chip.psum_bytes)}")),
    ):
        height = 256 if name != "HBM" else 300
        canvas.rect(
            x,
            300 - height - (12 if name != "HBM" else 0),
            110,
            height,
            fill=colour,
            fill_opacity=0.2,
            stroke=colour,
            radius=6,
        )
        top = 62 if name != "HBM" else 24
        canvas.text(x + 12, top, name, size=13, weight=600)
        for i, line in enumerate(lines):
            canvas.text(x + 12, top + 20 + 16 * i, line, size=11)
        if name != "HBM":
            for i in range(8):  # rows of a memory are partitions
                y = 120 + 19 * i
                canvas.parts.append(
                    f'<path d="M{x + 8} {y}h94" stroke="{colour}" stroke-opacity="0.7"/>'
                )
            canvas.text(x + 12, 278, f"0 … {chip.lanes - 1}", size=11)
    queues = f"{chip.dma_queues} queues"
    canvas.arrow(110, 310, 150, True, "DMA", queues)
    canvas.arrow(110, 310, 210, False, "DMA", queues)
    says = {
        "Tensor": "matrix products, SBUF → PSUM",
        "Vector": "two tiles at a time",
        "Scalar": "functions of one tile",
        "GpSimd": "8 cores, for all the rest; no PSUM",
    }
    for i, engine in enumerate(ENGINES):
        y = 44 + 62 * i
        canvas.rect(500, y, 190, 48, fill=COLOURS[1], fill_opacity=0.2, stroke=COLOURS[1], radius=4)
        canvas.text(510, y + 20, engine, size=12, weight=600)
        canvas.text(680, y + 20, f"{chip.clock_hz[engine] / 1e9:.2f} GHz", size=11, anchor="end")
        canvas.text(510, y + 37, says[engine], size=11)
        canvas.parts.append(
            f'<path d="M420 {y + 24}h80" stroke="currentColor" stroke-width="1.2"/>'
        )
        if engine != "GpSimd":
            canvas.parts.append(
                f'<path d="M690 {y + 24}h80" stroke="currentColor" stroke-width="1.2"/>'
            )
    return canvas.picture(
        "A NeuronCore-v2: DMA queues move data between HBM and SBUF; the Tensor, Vector, Scalar "
        "and GpSimd engines work on SBUF, all but the last also on PSUM"
    )
