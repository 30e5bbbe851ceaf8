"""A folder is an operator: CONTRIBUTING's example, dropped into a copy, is known everywhere."""

import os
import re
import shutil
from pathlib import Path

import pytest
from commands import python, quick_children

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
    shutil.copytree(ROOT / "kernels", root / "kernels")  # and what Python has compiled of it
    shutil.copy(ROOT / "constraints.txt", root)
    (root / "results").mkdir()
    (root / "kernels" / "moments").mkdir()
    for path, text in FILES:
        (root / path).write_text(text, encoding="utf-8")
    return root


def run(root, *words, of=("-m", "kernels"), status=0):
    own = {"PYTHONPATH": str(root), "JAX_PLATFORMS": "cpu", "COLUMNS": "150", "NO_COLOR": "1"}
    done = python(*of, *words, cwd=root, env=os.environ | own)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_the_guide_shows_every_file():
    names = {Path(path).stem for path, _ in FILES}
    assert names == {"__init__", "operator", "reference", "workloads", "xla", "pallas"}


def test_the_list_knows_it_and_rows_that_vmem_does_not_hold_are_refused(copy):
    code = "import jax; from kernels.cli import app; from kernels.moments import moments as f\n"
    code += "S = jax.ShapeDtypeStruct; x = S((9, 40000), 'float32'); w = S((40000,), 'float32')\n"
    code += "try: jax.eval_shape(f, x, w)\nexcept ValueError as error: print(error)\napp(['list'])"
    said = run(copy, of=("-c", code))
    assert "x.shape[1] is 40000; accepted: at most 13107, of which" in said
    for words in ("moments/xla", "moments/pallas", "weighted moments of each row"):
        assert words in said


def test_it_is_proven_at_every_rung_with_its_gradient(copy):
    compiles = optional.available("libtpu")
    found = run(copy, "verify", "moments", "--draws", "1", *["--strict"] * compiles)
    assert ("28 passed, 0 failed, 0 skipped" if compiles else "21 passed") in found


def test_the_estimates_and_the_pages_know_it(copy, tmp_path):
    pytest.importorskip("libtpu")
    words = ("estimate", "moments", "-w", "rows=4096 n=1024 float32", "-c", "v5e", "--record")
    found = run(copy, *words)
    assert "moments/pallas" in found and "moments/xla" in found and "µs" in found
    rows = (copy / "results" / "estimated.csv").read_text().splitlines()
    assert len(rows) == 3 and rows[1].startswith("moments,pallas,")

    asked = ("{api} Operators", "{results}", "{status}")
    text = "".join(f"\n```{directive}\n```\n" for directive in asked)
    (tmp_path / "index.md").write_text(f"# Title\n{text}")
    run(copy, str(tmp_path), str(ROOT / "book" / "_ext"), of=("-c", PAGE))
    html = (tmp_path / "html" / "index.html").read_text(encoding="utf-8")
    for says in ("Two arrays [rows] in x’s dtype", "weighted moments of each row", "Pallas TPU"):
        assert says in html


# A wrong kernel → what is right of the guide's, what stands in its place, and what the rung says.
BOTH = "return tuple(mean[:, 0] for mean in means)"
WRONG = {
    "one": (BOTH, "return means[0][:, 0]", "results: 1, wanted 2: mean, power"),
    "three": (BOTH, BOTH.replace("means)", "[*means, means[0]])"), "results: 3, wanted 2"),
    "gradient_of_weight": (").sum(0)", ").mean(0)", "gradient of weight"),
}


def test_wrong_kernels_are_refused(copy, tmp_path):
    shutil.copytree(copy / "kernels", tmp_path / "kernels")
    folder = tmp_path / "kernels" / "moments"
    text, declared = ((folder / name).read_text() for name in ("pallas.py", "operator.py"))
    entry = '        Implementation("pallas", PALLAS_TPU, "pallas:moments"),\n'
    assert entry in declared
    for name, (right, wrong, _) in WRONG.items():
        assert text.count(right) == 1
        (folder / f"{name}.py").write_text(text.replace(right, wrong))
        declared = declared.replace(entry, entry + entry.replace("pallas", name))
    (folder / "operator.py").write_text(declared)
    entries = [f"moments/{name}" for name in WRONG]
    with quick_children():
        said = run(tmp_path, "verify", *entries, "--rung", "interpret", "--draws", "0", status=1)
    for name, (_, _, says) in WRONG.items():
        assert re.search(rf"^FAILED moments/{name} .*\n +{says}", said, re.M), said
