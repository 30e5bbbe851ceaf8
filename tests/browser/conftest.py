"""A real browser, offline: a page that complains, or asks for more than its own site, fails."""

import functools
import http.server
import os
import shutil
import threading
from urllib.parse import urlsplit

import pytest

from kernels import optional

# Debian's name first: kernels.optional says how to get it.
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


# Of a module, not of the session: Playwright keeps an event loop running, which notebooks dislike.
@pytest.fixture(scope="module")
def browser():
    """Chromium, which finds no host but this one."""
    try:
        optional.require("playwright", "the tests in a browser")
        found = filter(None, map(shutil.which, BROWSERS))
        path = next(found, None) or optional.tool("chromium", "the tests in a browser")
    except optional.MissingPackage as missing:
        pytest.skip(str(missing))
    from playwright.sync_api import sync_playwright

    options = ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    if os.geteuid() == 0:
        options.append("--no-sandbox")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=options)
        yield chromium
        chromium.close()


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def site(html):
    """The address of the built book, served from a thread: no slash at its end."""
    handler = functools.partial(Handler, directory=html)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def faults():
    """What pages complained of so far; open_page fails where something is left in it."""
    return []


@pytest.fixture(scope="module")
def tab(browser):
    """A page that shows one address after another."""
    # What plays would keep the theme from its work after a change of width.
    page = browser.new_context(reduced_motion="reduce").new_page()
    cache = page.context.new_cdp_session(page)  # what it holds already would weigh nothing
    cache.send("Network.enable")
    cache.send("Network.setCacheDisabled", {"cacheDisabled": True})
    return page


@pytest.fixture
def open_page(browser, faults):
    """open_page(url, scheme="light", width=1400, **options): a page, opened and watched.

    Light or dark, as the reader's system is, and so many pixels wide; page=tab, or one in a new
    context with these options."""
    opened, watched = [], []

    def log(said):
        if said.type == "error":  # of what it was refused too
            faults.append(f"console: {said.text} ({said.location.get('url')})")

    def ask(request):
        address = urlsplit(request.url)
        if address.scheme in ("http", "https") and address.hostname != "127.0.0.1":
            faults.append(f"asks elsewhere: {request.url}")

    def fail(error):
        faults.append(f"error: {error}")

    def open_page(url, scheme="light", width=1400, page=None, **options):
        if not page:
            opened.append(page := browser.new_page(**options))
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": 900})
        for event, hear in (("console", log), ("request", ask), ("pageerror", fail)):
            page.on(event, hear)
            watched.append((page, event, hear))
        page.goto(url)
        return page

    yield open_page
    for page, *event in watched:
        page.remove_listener(*event)
    for page in opened:
        page.close()
    assert not faults, "\n".join(faults)


@pytest.fixture
def played(tmp_path, open_page, monkeypatch):
    """played(player, **options): a page with nothing but this player, and what it brings along."""
    monkeypatch.delenv("KERNELS_PLAYERS", raising=False)  # the book's builder sets it

    def played(player, **options):
        (tmp_path / "page.html").write_text(
            f"<!doctype html><html lang='en'><meta charset='utf-8'><title>A player</title>"
            "<style>:root { color-scheme: light dark }</style>"
            f"<body>{player._repr_html_()}</body></html>"
        )
        return open_page((tmp_path / "page.html").as_uri(), **options)

    return played
