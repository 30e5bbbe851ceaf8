"""One table, shown in a terminal, on a page and in Markdown."""

from rich.console import Console

from kernels.figures.table import Paragraph, Table, as_text

TABLE = Table(
    ("kernel", "time"),
    [("a|b <c>", "1 ms"), ("[red]d[/]", "FAILED")],
    "A title that is longer than the table is wide",
    right=("time",),
    colours={"FAILED": "red"},
)


def test_in_a_terminal():
    lines = [line.strip() for line in as_text([TABLE]).splitlines()]
    assert lines[0] == TABLE.caption
    assert "[red]d[/]   FAILED" in lines  # what looks like markup is none
    assert "a|b <c>       1 ms" in lines  # flush right
    console = Console(color_system="standard", force_terminal=True, no_color=False)
    with console.capture() as captured:
        console.print(TABLE)
    assert "\x1b[31mFAILED" in captured.get()
    assert as_text([Table((), [("a", "b")])]) == "a  b"
    folded = as_text([Table(("name",), [("long " * 10,)])], width=20)
    assert folded.count("long") == 10 and max(map(len, folded.splitlines())) <= 20
    assert "\n" not in as_text([Paragraph("word " * 50)], width=40)


def test_on_a_page():
    page = TABLE._repr_html_()
    assert "<td>a|b &lt;c&gt;</td>" in page and "<th>time</th>" in page and "A title" in page
    assert "<thead>" not in Table((), [("a",)])._repr_html_()
    said = Paragraph("is <wrong>\nhere", lead="it ", style="red")._repr_html_()
    assert said == "<p class=wrong><b>it </b>is &lt;wrong&gt;<br>here</p>"


def test_in_markdown():
    assert TABLE.markdown().splitlines() == [
        "| kernel | time |",
        "| --- | ---: |",
        r"| a\|b <c> | 1 ms |",
        "| [red]d[/] | **FAILED** |",
    ]
