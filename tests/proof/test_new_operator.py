"""A folder is an operator: CONTRIBUTING's example, dropped into a copy, is known everywhere."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernels import optional

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILES = re.findall(r"```python\n# (kernels/moments/\w+\.py)\n(.*?)```", GUIDE, re.S)
PAGE = """
import io, sys
from sphinx.application import Sphinx
folder, extensions = sys.argv[1:]
sys.path.insert(0, extensions)
app = Sphinx(
    folder, None, folder + "/html", folder + "/doctrees", "html",
    confoverrides={
        "extensions": ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb", "generated"],
        "nb_execution_mode": "off",
    },
    status=None, warning=io.StringIO(),
)
app.build()
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The package with one folder more; nothing else of it is touched."""
    root = tmp_path_factory.mktemp("copy")
    shutil.copytree(
        ROOT / "kernels", root / "kernels", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "constraints.txt", root)
    (root / "results").mkdir()
    (root / "kernels" / "moments").mkdir()
    for path, text in FILES:
        (root / path).write_text(text, encoding="utf-8")
    return root


def run(root, *words, of=("-m", "kernels"), status=0):
    done = subprocess.run(
        [sys.executable, *of, *words],
        cwd=root,
        env=os.environ
        | {"PYTHONPATH": str(root), "JAX_PLATFORMS": "cpu", "COLUMNS": "150", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_the_guide_shows_every_file():
    names = {Path(path).stem for path, _ in FILES}
    assert names == {"__init__", "operator", "reference", "workloads", "xla", "pallas"}


def test_the_list_knows_it(copy):
    found = run(copy, "list")
    assert "moments" in found and "weighted moments of each row" in found
    assert "moments/xla" in found and "moments/pallas" in found


def test_it_is_proven_at_every_rung_with_its_gradient(copy):
    compiles = optional.available("libtpu")
    found = run(copy, "verify", "moments", "--draws", "2", *["--strict"] * compiles)
    assert ("32 passed, 0 failed, 0 skipped" if compiles else "24 passed") in found


def test_the_estimates_and_the_pages_know_it(copy, tmp_path):
    pytest.importorskip("libtpu")
    words = ("estimate", "moments", "-w", "rows=4096 n=1024 float32", "-c", "v5e", "--record")
    found = run(copy, *words)
    assert "moments/pallas" in found and "moments/xla" in found and "µs" in found
    rows = (copy / "results" / "estimated.csv").read_text().splitlines()
    assert len(rows) == 3 and rows[1].startswith("moments,pallas,")

    for directive, says in (
        ("api", "Two arrays [rows] in x’s dtype"),
        ("results", "weighted moments of each row"),
        ("status", "Pallas TPU"),
    ):
        source = tmp_path / directive
        source.mkdir()
        (source / "index.md").write_text(f"# Title\n\n```{{{directive}}}\n```\n")
        run(copy, str(source), str(ROOT / "book" / "_ext"), of=("-c", PAGE))
        html = (source / "html" / "index.html").read_text(encoding="utf-8")
        assert "moments" in html and says in html


def test_rows_that_vmem_does_not_hold_are_refused(copy):
    code = "import jax; from kernels.moments import moments as f; S = jax.ShapeDtypeStruct;"
    code += "x = S((9, 40000), 'float32'); w = S((40000,), 'float32')\n"
    code += "try: jax.eval_shape(f, x, w)\nexcept ValueError as error: print(error)"
    assert "x.shape[1] is 40000; accepted: at most 13107, of which" in run(copy, of=("-c", code))


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("(x**power * weight).mean(1", "(x**power * weight).sum(1", "power: element"),
        ("grid=(pl.cdiv(rows, plan.block),)", "grid=(rows // plan.block,)", "mean: element"),
        ("mean + power * x", "mean + 3 * x", "gradient of x"),
        (").sum(0)", ").mean(0)", "gradient of weight"),
    ],
    ids=["power", "short-grid", "gradient", "gradient-of-weight"],
)
def test_a_wrong_kernel_is_refused(copy, tmp_path, right, wrong, says):
    root = tmp_path / "wrong"
    shutil.copytree(copy / "kernels", root / "kernels")
    path = root / "kernels" / "moments" / "pallas.py"
    text = path.read_text()
    assert text.count(right) == 1
    path.write_text(text.replace(right, wrong))
    words = ("verify", "moments/pallas", "--rung", "interpret", "--draws", "0")
    assert says in run(root, *words, status=1)
