"""In JupyterLab a player plays as it does in the book: by its buttons, and by keys of its own."""

import json
import os
import subprocess
import sys
import time

import nbformat
import pytest

pytestmark = pytest.mark.slow
CELL = """
import functools, jax
from kernels import pictures
from kernels.machines.pallas import calls
from kernels.matmul import BlockSizes, matmul

x = jax.ShapeDtypeStruct((512, 512), "bfloat16")
pictures.play(calls(functools.partial(matmul, block=BlockSizes(128, 256, 128)), x, x)[0])
"""


@pytest.fixture
def lab(tmp_path):
    """The address of a JupyterLab with one notebook, whose two cells draw a player each."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL) for _ in range(2)])
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, tmp_path / "mine.ipynb")
    places = {name: str(tmp_path / name) for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR")}
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "jupyter", "lab", "--no-browser", "--ServerApp.port=0"),
            *("--allow-root", f"--ServerApp.root_dir={tmp_path}"),
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ],
        env={k: v for k, v in os.environ.items() if k != "KERNELS_PLAYERS"} | places,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            if infos := [*(tmp_path / "JUPYTER_RUNTIME_DIR").glob("jpserver-*.json")]:
                break
            time.sleep(0.1)
        info = json.loads(infos[0].read_text())
        yield f"http://127.0.0.1:{info['port']}/lab/tree/mine.ipynb?token={info['token']}"
    finally:
        server.terminate()
        server.wait(30)


def test_a_player_plays_in_jupyterlab(browser, lab):
    page = browser.new_page(viewport={"width": 1400, "height": 1200})
    page.set_default_timeout(60_000)
    page.goto(lab)
    page.get_by_text("| Idle").wait_for()  # what comes before its kernel is lost
    for cell in range(2):
        page.locator(".jp-CodeCell .cm-content").nth(cell).click()
        page.keyboard.press("Shift+Enter")
        page.locator(".kernel-stage").nth(cell).wait_for()
    first, words = page.locator(".kernel-stage").first, page.locator(".kernel-words").first
    assert page.locator(".kernel-stage").count() == 2
    seen = [words.text_content()]
    first.get_by_label("Next (right arrow)").click()
    seen.append(words.text_content())
    first.focus()
    for key in ("ArrowRight", "End", "Home"):  # in Lab some of them are commands
        first.press(key)
        seen.append(words.text_content())
    assert len(set(seen[:4])) == 4 and seen[4] == seen[0]
    assert page.locator(".jp-CodeCell").count() in (2, 3)  # the empty one below the last
    assert not page.locator(".kernel-player, kernel-player:not([data-playing])").count()
    page.close()
