"""A name that the simulator knows has a user: a chapter, an exercise, a bug, an operator, or a
published kernel.

published_names.csv names public kernels, each with all names of NKI that it uses and that are
simulated: as few kernels as use every name that any kernel of these repositories does.
"""

import csv
import re
from pathlib import Path

from kernels.machines.neuron import beta1, memory, modern, tensors, typing
from kernels.machines.neuron.beta1 import compiler

ROOT = Path(__file__).parents[3]
OURS = ("kernels/lessons/**/*.py", "kernels/*/n*.py", "validation/**/*.py", "notebooks/text/*.md")
# What book/neuron.md says to write for a name that is gone, which kernels use still.
TAUGHT = {"tile_size.psum_bank_fmax"}
PARTS = {"nl": "language", "nisa": "isa", "nki": "nki", "nl.tile_size": "tile_size"}
USE = re.compile(r"\b(nl\.tile_size|nl|nisa|nki)\.([A-Za-z_]\w*)")


def public(names):
    return {name for name in names if not name.startswith("_")}


def known():
    """Part of NKI → the names that the simulator has there, in either generation."""
    return {
        "nki": public({*modern.__all__, *beta1.__all__}),
        "language": public({*modern.language.__all__, *beta1.language.__all__}),
        "isa": public({*modern.isa.__all__, *beta1.isa.__all__}),
        "collectives": {*modern.collectives.NAMES, "ReplicaGroup"},
        "compiler": public(compiler.__all__),
        "typing": {"mutable_tensor", "scalar", "tensor"} & vars(typing).keys(),
        "tile": public(dir(tensors.Tensor)),
        "tile_size": public(dir(memory.TileSize)),
    }


def published():
    """part.name → a kernel that uses it, as its repository and path."""
    users = {}
    with (Path(__file__).parent / "published_names.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            assert row["path"].endswith(".py"), "a page is no kernel"
            for name in row["names"].split():
                users[name] = f"{row['repository']}: {row['path']}"
    return users


def ours():
    """part.name of all that the book and the package use."""
    texts = [path.read_text(encoding="utf-8") for glob in OURS for path in ROOT.glob(glob)]
    return {f"{PARTS[alias]}.{name}" for text in texts for alias, name in USE.findall(text)}


def without_a_user():
    used = published().keys() | ours()
    return sorted(
        f"{part}.{name}"
        for part, names in known().items()
        for name in names
        if f"{part}.{name}" not in used
    )


def test_every_name_has_a_user():
    assert {*without_a_user()} == TAUGHT


def test_no_name_of_a_published_kernel_is_lost():
    names = {f"{part}.{name}" for part, names in known().items() for name in names}
    assert not {name: user for name, user in published().items() if name not in names}
