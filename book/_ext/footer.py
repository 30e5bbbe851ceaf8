"""The foot of each page: when it was built, and with which versions."""

import datetime
import platform
from importlib import metadata

PACKAGES = ("jax", "libtpu", "torch", "taichi")


def _versions():
    versions = [f"Python {platform.python_version()}"]
    for package in PACKAGES:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    day = datetime.datetime.now(datetime.UTC).date()
    return f'<p class="built-with">Built on {day.isoformat()} with {", ".join(versions)}.</p>'


def _add(app, config):
    config.html_theme_options["extra_footer"] = _versions()


def setup(app):
    app.connect("config-inited", _add)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
