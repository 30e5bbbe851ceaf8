"""The foot of each page: when it was built, and with which versions."""

import datetime
import platform
from importlib import metadata

PACKAGES = ("jax", "libtpu", "torch", "taichi")


def _told():
    found = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    day = datetime.datetime.now(datetime.UTC).date()
    return f'<p class="built-with">Built on {day.isoformat()} with {", ".join(found)}.</p>'


def _add(app, config):
    config.html_theme_options["extra_footer"] = _told()


def setup(app):
    app.connect("config-inited", _add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
