"""Give every chapter's file the number of its place in _toc.yml, in every link too.

    make renumber        or  .venv/bin/python tools/renumber.py

Move a chapter in _toc.yml, or add a new one as 00_slug, and run this. Pages at the addresses of
before lead to the new ones: book/_ext/moved.txt lists them.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book" / "_ext"))

import chapters  # noqa: E402

FILES = (("notebooks", ".ipynb"), ("notebooks/text", ".md"))
LINKS = (
    "_toc.yml",
    "*.md",
    "book/*.md",
    "kernels/*/ledger.md",
    "notebooks/*.ipynb",
    "notebooks/text/*.md",
)


def due(root=ROOT):
    """{old: new} of the names of chapters whose number is not that of their place in _toc.yml."""
    names = [Path(page).name for page in chapters.by_slug(chapters.toc_files(root)).values()]
    numbered = {name: f"{place:02}_{chapters.slug(name)}" for place, name in enumerate(names, 1)}
    return {old: new for old, new in numbered.items() if old != new}


def renumber(root=ROOT):
    """Rename the files of the chapters, and their links.

    Args:
        root: of the project.

    Returns:
        {old: new} of the names that changed.

    Raises:
        SystemExit: where a chapter of _toc.yml lacks one of its two files, before any is renamed.
    """
    pages = chapters.by_slug(chapters.toc_files(root)).values()
    files = (root / folder / (Path(page).name + end) for page in pages for folder, end in FILES)
    if missing := [str(file.relative_to(root)) for file in files if not file.is_file()]:
        raise SystemExit(
            f"_toc.yml names chapters of which these files are missing: {', '.join(missing)}. "
            "`make format` makes a notebook of its text, and the text of a notebook."
        )
    renamed = due(root)
    for old, new in renamed.items():
        for folder, suffix in FILES:
            (root / folder / (old + suffix)).rename(root / folder / (new + suffix))
    names = [Path(page).name for page in chapters.by_slug(chapters.toc_files(root)).values()]
    names = [renamed.get(name, name) for name in names]
    for path in (path for pattern in LINKS for path in root.glob(pattern)):
        text = path.read_text(encoding="utf-8")
        linked = relinked(text, names)
        if linked != text:
            path.write_text(linked, encoding="utf-8")
    note(root / chapters.MOVED.relative_to(ROOT), renamed, names)
    return renamed


def note(path, renamed, names):
    """Add the pages that are no more to the list of those that forward.

    Args:
        path: of the list.
        renamed: names that files had.
        names: names that files have, whose pages need not forward.
    """
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    lines += [f"notebooks/{name}" for name in renamed if not name.startswith("00_")]
    today = {f"notebooks/{name}" for name in names}
    kept = sorted({line for line in lines if line.split()[0] not in today})
    path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


def relinked(text, names):
    """A text with the numbers of today in the names of chapters, and in the titles of their links
    that begin with a number.

    Args:
        text: of a page, a notebook or the table of contents.
        names: of the chapters' files, without suffix.
    """
    number = {chapters.slug(name): name.partition("_")[0] for name in names}
    named = re.compile(rf"\b\d\d_({'|'.join(number)})\b")
    text = named.sub(lambda name: f"{number[name[1]]}_{name[1]}", text)
    titled = re.compile(r"\[\d+ ([^]\n]+\]\((?:\.\./)?notebooks/0?(\d+)_)")
    return titled.sub(r"[\2 \1", text)


def main():
    renamed = renumber()
    for old, new in renamed.items():
        print(f"{old} → {new}")
    print(f"{len(renamed)} chapters got another number")


if __name__ == "__main__":
    main()
