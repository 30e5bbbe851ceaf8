"""Lines of code: what counts, and how far a count follows calls and imports."""

import pytest

from kernels.figures import lines
from kernels.giou import formula, neuronxcc, nki, pallas, xla

SOURCE = '''
"""A docstring
of two lines."""

import numpy as np  # counts


def add(
    x,
    y,
):
    """One line."""
    # a comment

    return x + y


class Pair:
    """Nothing else."""

    first = "not a docstring"
'''


def test_comments_docstrings_and_blank_lines_do_not_count():
    assert lines.count(SOURCE) == 8
    assert lines.count(SOURCE.replace("# a comment", "pass")) == 9
    assert lines.count("    def inside():\n        return 1\n") == 2


def test_cpp():
    source = "// a comment\n/* two\nlines */ int x;\n\nint y;  // counts\n}"
    assert lines.count_cpp(source) == 3


def test_reached_follows_calls_by_name():
    alone = lines.count('def score(pred, target):\n    """Doc."""\n' + "    x = 1\n" * 6)
    assert lines.reached(formula.score) == alone + 4  # _overlap and _span
    assert lines.reached(pallas.rows_kernel) > lines.reached(formula.score)
    both = lines.reached(pallas.rows_kernel, formula.score)
    assert both == lines.reached(pallas.rows_kernel), "each function counts once"


def test_reached_unwraps_jit_and_nki_kernels():
    assert lines.reached(xla.giou) < lines.needed("kernels.giou.xla")
    for module, name in ((nki, "kernels.giou.nki"), (neuronxcc, "kernels.giou.neuronxcc")):
        assert 30 < lines.reached(module.giou_kernel) < lines.needed(name)


def test_needed_follows_imports_within_the_operator():
    files = ("pallas", "formula")
    paths = [lines.Path(pallas.__file__).with_name(f"{name}.py") for name in files]
    assert lines.needed("kernels.giou.pallas") == sum(lines.count(p.read_text()) for p in paths)


def test_needed_takes_all_files_of_a_folder():
    from kernels.giou import gpsimd

    (kernel, shape) = gpsimd.SOURCES
    cpp = lines.count_cpp(kernel.read_text()) + lines.count_cpp(shape.read_text())
    assert lines.needed("kernels.giou.gpsimd") > cpp


@pytest.mark.parametrize("module", ["kernels.giou.cuda", "numpy", "giou"])
def test_an_unknown_module_is_refused(module):
    with pytest.raises(ValueError, match=f"module is '{module}'"):
        lines.needed(module)


def test_what_is_no_function_is_refused():
    with pytest.raises(ValueError, match="functions is"):
        lines.reached(3)
