"""Pictures of kernels, drawn from what JAX traced or the simulator recorded, never by hand; and of
machines, drawn from their data.

Each function returns a Picture: one SVG that takes its text colour from the page, so that it
reads in light and in dark, and that prints. Some return a Player: a Picture to play with, in the
built book and in a notebook.
"""

from kernels.figures.table import Table
from kernels.lessons.pictures.canvas import COLOURS, Code, Picture, Player, scripts, source
from kernels.lessons.pictures.engines import neuron_core, timeline
from kernels.lessons.pictures.gpus import heat, lives, occupancy, waves
from kernels.lessons.pictures.graphs import graph
from kernels.lessons.pictures.grids import memory, order, play, programs, traffic
from kernels.lessons.pictures.pipelines import pipeline
from kernels.lessons.pictures.plots import ranges
from kernels.lessons.pictures.rings import ring
from kernels.lessons.pictures.schedules import schedule

__all__ = [
    "COLOURS",
    "Code",
    "Picture",
    "Player",
    "Table",
    "graph",
    "heat",
    "lives",
    "memory",
    "neuron_core",
    "occupancy",
    "order",
    "pipeline",
    "play",
    "plots",
    "programs",
    "ranges",
    "ring",
    "schedule",
    "scripts",
    "source",
    "timeline",
    "traffic",
    "waves",
]
