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


@pytest.fixture
def open_page(browser, faults):
    """open_page(url, scheme="light", width=1400, **options): a page, opened and watched.

    Light or dark, as the reader's system is, and so many pixels wide; in a context that is there,
    or in a new one with these options."""
    opened = []  # pages and contexts

    def log(said):
        if said.type == "error":
            faults.append(f"console: {said.text} ({said.location.get('url')})")

    def ask(request):
        address = urlsplit(request.url)
        if address.scheme in ("http", "https") and address.hostname != "127.0.0.1":
            faults.append(f"asks elsewhere: {request.url}")

    def answer(response):
        if response.status >= 400:
            faults.append(f"{response.status}: {response.url}")

    def open_page(url, scheme="light", width=1400, context=None, **options):
        view = {"color_scheme": scheme, "viewport": {"width": width, "height": 900}}
        new = context or browser.new_context(**view, **options)
        page = new.new_page()
        opened.append(page if context else new)
        page.on("console", log)
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("request", ask)
        page.on("response", answer)
        page.goto(url)
        return page

    yield open_page
    for page_or_context in opened:
        page_or_context.close()
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
