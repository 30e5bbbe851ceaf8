"""The ways in which kernels are written: one file and one object each.

Whoever asks "is this NKI?" asks the backend instead: it interprets, simulates, compiles, measures
and differentiates what is written in it, and says why it cannot where it cannot. A new language is
a new file here, and nothing else.
"""
