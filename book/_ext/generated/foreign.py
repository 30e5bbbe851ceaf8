"""{foreign}: what `prove` says of public kernels, and of faults planted in them."""

from kernels.figures import store
from validation import foreign

from .parts import DASH, Generated, table, text

LONG = 30  # seconds of a processor; `prove` is to take less


class ForeignRecord(Generated):
    """Kernels as they were published, and with a fault each, from results/foreign.csv."""

    def run(self):
        self.depend(store.RESULTS / foreign.FILE)
        rows = foreign.read()
        published = [row for row in rows if not row.fault]
        faults = [row for row in rows if row.fault]
        sections = (
            ("As they were published", self.published, published),
            ("With a fault planted", self.faults, faults),
        )
        return [self.section(title, *content(some)) for title, content, some in sections if some]

    def published(self, rows):
        right = [row for row in rows if not row.rung or row.right]
        alarms = [row.kernel for row in rows if row.right]
        ran = [row for row in right if row.tolerance]
        refused = sum(row.tolerance == foreign.FAILED for row in ran)
        whole = [r for r in right if {getattr(r, n) for n in foreign.RUNGS} == {foreign.PASSED}]
        others = [row.kernel for row in right if row not in whole and not row.right]
        slow = [row.kernel for row in rows if int(row.seconds) > LONG]
        yield text(
            f"Passed on every rung: {len(whole)} of {len(rows)} kernels. Refused with reason: "
            f"{len(rows) - len(right)}. Refused though right: {', '.join(alarms) or 'none'}. "
            f"Not run on every rung, and so not proven: {', '.join(others) or 'none'}. Took more "
            f"than {LONG} seconds of a processor: {', '.join(slow) or 'none'}. "
            f"Of {len(ran)} right ones that it was asked of, assert_close refuses {refused}."
        )
        lines = [
            [row.kernel, row.repository, *said(row), row.seconds, row.tolerance or DASH, row.why]
            for row in rows
        ]
        titles = ["kernel", "from", *foreign.RUNGS, "CPU seconds", "assert_close", "why"]
        yield table(titles, lines, "foreign")

    def faults(self, rows):
        caught = [row for row in rows if row.rung]
        missed = [f"{row.fault}, in {row.kernel}" for row in rows if not row.rung]
        ran = [row for row in rows if row.tolerance]
        close = [row for row in ran if row.tolerance == foreign.FAILED]
        yield text(
            f"Of {len(rows)} faults, prove catches {len(caught)}. "
            f"Missed: {'; '.join(missed) or 'none'}. Of the {len(ran)} that JAX's interpreter "
            f"runs, assert_close catches {len(close)}."
        )
        lines = [
            [row.fault, row.kernel, row.rung or "missed", row.tolerance or DASH, row.why]
            for row in rows
        ]
        yield table(["fault", "in", "caught at", "assert_close", "what it says"], lines, "faults")


def said(row):
    """What each rung says."""
    return [getattr(row, rung) or DASH for rung in foreign.RUNGS]
