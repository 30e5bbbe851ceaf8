"""A plugin of pytest for tools/canary.py: a line for each failing test as it comes, an end in time,
and at the end what was found, as JSON.

CANARY_END: seconds since 1970 at which no further test is begun. CANARY_REPORT: the file to write.
"""

import json
import os
import time
from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    """Begin no test after the end: it is taken as done, and no report of it is made."""
    return time.time() > float(os.environ["CANARY_END"]) or None


class Report:
    """Of one run: how many tests there were, how they ended, and each failure in a line."""

    def __init__(self):
        self.count = dict.fromkeys(("passed", "failed", "skipped"), 0)
        self.failures = []
        self.seen = set()

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self.count[report.outcome] += 1
        if report.outcome == "failed":
            crash = getattr(report.longrepr, "reprcrash", None)
            text = crash.message if crash else str(report.longrepr or "")
            said = next((line.strip() for line in text.splitlines() if line.strip()), "no word")
            self.failures.append([report.nodeid, said[:300]])
            print(f"\n  FAILS {report.nodeid}: {said[:300]}", flush=True)

    def pytest_collectreport(self, report):
        if report.failed:
            said = str(report.longrepr).strip().splitlines()[-1]
            self.failures.append([report.nodeid, said[:300]])

    def pytest_runtest_logfinish(self, nodeid):
        self.seen.add(nodeid)

    def pytest_sessionfinish(self, session):
        total = max(getattr(session, "testscollected", 0), len(self.seen))
        report = {"count": self.count, "failures": self.failures, "total": total}
        report["not_reached"] = total - len(self.seen)
        Path(os.environ["CANARY_REPORT"]).write_text(json.dumps(report), encoding="utf-8")


def pytest_sessionstart(session):
    if "PYTEST_XDIST_WORKER" not in os.environ:  # its parent reports
        session.config.pluginmanager.register(Report())
