"""Where the book's page of symptoms speaks of an error."""

import csv
import re
from pathlib import Path

# Words of a compiler's message, or of ours for it, and the anchor of its entry; the first counts.
with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as _rows:
    ANCHORS = [(row["words"], row["anchor"]) for row in csv.DictReader(_rows)]


def see(message: str) -> str:
    """Where to read on, put after a message; empty where the page has nothing on it."""
    known = (anchor for words, anchor in ANCHORS if re.search(words, message))
    return next((f" (see book/symptoms.md#{anchor})" for anchor in known), "")
