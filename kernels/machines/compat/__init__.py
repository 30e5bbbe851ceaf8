"""Every private name of other packages that this one uses: the one door that an upgrade knocks at.

A module a package. Each function says which private thing it uses and in which releases it was seen
there; whoever needs a private thing writes such a function here, and a test finds it anywhere
else. Importing this imports nothing heavy.
"""

import warnings
from importlib.metadata import PackageNotFoundError, version


class Changed(UserWarning):
    """A package is not built as this one knows it, and something is lost: what, and where."""


def changed(package: str, what: str) -> None:
    """Say, once a place, what is different in a release of a package, and what follows."""
    warnings.warn(f"{package} {release(package)}: {what}", Changed, stacklevel=3)


def release(package: str) -> str:
    """The installed version of a distribution; empty where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
