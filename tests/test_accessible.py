"""What Sphinx writes, put right for a screen reader and for a telephone."""

import types

import accessible
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")


def mended(folder, body):
    """The body of a page after the extension, which has the pictures of `folder`."""
    images = {each.name: each.name for each in folder.iterdir()}
    app = types.SimpleNamespace(srcdir=folder, builder=types.SimpleNamespace(images=images))
    context = {"body": body}
    accessible._mend(app, "page", "page.html", context, None)
    return context["body"]


def test_a_plot_is_told_in_its_own_words_and_knows_its_width(tmp_path):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3))
    axes.plot([1, 2, 3], label="ours & theirs")
    axes.set(title="Blocks win", xlabel="size")
    axes.legend()
    figure.savefig(tmp_path / "drawn.svg")
    plt.close(figure)
    image = '<p><img alt="../_images/drawn.svg" src="../_images/drawn.svg" /></p>'
    body = mended(tmp_path, image)
    told = body.partition('alt="')[2].partition('"')[0]
    assert told.startswith("Plot: ") and not any(sign.isdigit() for sign in told)
    assert all(word in told for word in ("Blocks win", "size", "ours &amp; theirs"))
    assert '<span class="plot-frame" role="group" tabindex="0"><img class="plot"' in body
    assert 'src="../_images/drawn.svg"' in body
    assert 'style="--drawn: 576px"' in body  # six inches of 96 pixels


def test_what_is_no_plot_stays_as_it_is(tmp_path):
    (tmp_path / "logo.svg").write_text('<svg width="10" xmlns="http://www.w3.org/2000/svg"/>')
    for name in ("logo.svg", "missing.svg", "photo.png"):
        image = f'<img alt="../_images/{name}" src="../_images/{name}" />'
        assert mended(tmp_path, image) == image


def test_the_bibliography_is_no_list(tmp_path):
    body = mended(tmp_path, '<div role="list" class="citation-list">one</div>')
    assert body == "<div>one</div>"


def test_a_printed_table_scrolls_and_the_keyboard_reaches_it(tmp_path):
    output = '<div class="output stream highlight-myst-ansi"><div class="highlight"><pre>{}</pre>'
    body = mended(tmp_path, output.format("<span></span> a   b\n ─────────\n 1   2"))
    assert '<pre class="printed-table" tabindex="0"><span></span> a' in body
    plain = output.format("<span></span>a long line - - and no table")
    assert mended(tmp_path, plain) == plain
