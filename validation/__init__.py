"""What proves the estimators: the programs behind other people's times, and how far off we are.

    python -m validation --help

Beside the package, and in no wheel: nothing in kernels/ imports it. The chapters and the page on
estimates do.
"""

__all__ = [
    "blackwell",
    "comparisons",
    "decoder_layer",
    "fused_programs",
    "gpu_programs",
    "gpu_times",
    "in_parts",
    "nms_rounds",
    "rates",
    "scatter",
    "tpu_programs",
    "tpu_times",
    "trn1_kernels",
    "trn1_times",
    "trn1_units",
    "tunings",
    "vit_step",
    "xla_int4",
]
