"""Custom operators compiled by g++ for the CPU, each once, kept in the user's cache."""

import contextlib
import functools
import hashlib
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kernels.machines import cache, child, optional
from kernels.machines.checks import fail, one_of
from kernels.machines.neuron.gpsimd.errors import GpSimdCompileError

__all__ = ["HERE"]
HERE = Path(__file__).parent
PURPOSE = "custom operators for GpSimd on a CPU"
# The documents promise C++14 on the engine. Without contraction a product and a sum round twice on
# every machine. -fsanitize=thread is there for its calls before each access: see runtime.cpp. What
# g++ expands in place of a call has none: hence -fno-builtin, and no wrappers of the C library.
COMMON = ("-std=c++14", "-fno-pie", "-ffp-contract=off", "-isystem", str(HERE / "include"))
OPERATOR = (*COMMON, "-O1", "-g1", "-fsanitize=thread", "-fno-builtin", "-U_FORTIFY_SOURCE")
RUNTIME = (*COMMON, "-O2")
STRICT = ("-Wall", "-Wextra", "-Werror")
LONGEST = 300.0  # seconds for one call of g++
KEPT = 200  # files in the cache, of about half a megabyte

_MAIN = (HERE / "main.cpp").read_text(encoding="utf-8")
_KERNEL = '  kernels["{name}"] = emulated::wrap("{name}", &{name});'
# m.def("operator", &shape_function, "kernel"): the kernel
_DEF = re.compile(r'\bdef\s*\(\s*"[^"]*"\s*,\s*&?\s*[\w:]+\s*,\s*"([A-Za-z_][\w:]*)"\s*\)')
MOST_KERNELS = 10  # of a library, by the reference guide


def read(sources: Sequence[Path | str]) -> dict[str, str]:
    """File name → C++ text of each source: a Path is a file, a str is the text itself."""
    if isinstance(sources, (str, Path)):
        sources = [sources]
    texts: dict[str, str] = {}
    for place, source in enumerate(sources):
        if isinstance(source, Path):
            if not source.is_file():
                fail(f"sources[{place}]", f"the path {source.name}", "a C++ file that exists")
            name, text = source.name, source.read_text(encoding="utf-8")
        elif isinstance(source, str):
            name, text = f"source{place}.cpp", source
        else:
            fail(f"sources[{place}]", f"a {type(source).__name__}", "a Path, or C++ as a str")
        if name in texts:
            fail(f"sources[{place}]", f"a second {name}", "files of different names")
        texts[name] = text
    if not texts:
        fail("sources", "empty", "one C++ file at least")
    return texts


def kernels(texts: Mapping[str, str]) -> list[str]:
    """The kernels that the library of `texts` names."""
    names = [name for text in texts.values() for name in _DEF.findall(text)]
    if not any("NEURON_LIBRARY" in text for text in texts.values()) or not names:
        accepted = 'NEURON_LIBRARY with m.def("operator", &shape_function, "kernel")'
        fail("sources", "without a library", accepted)
    if len(names) > MOST_KERNELS:
        fail("sources", f"a library of {len(names)} kernels", f"at most {MOST_KERNELS}")
    return names


def program(sources: Sequence[Path | str], function: str) -> Path:
    """The program that runs the kernels of `sources`, `function` among them, on emulated cores."""
    texts = read(sources)
    one_of("function", function, kernels(texts))
    return _kept(_key(texts), functools.partial(_link, texts=texts))


def check(sources: Sequence[Path | str]) -> None:
    """Compile as strictly as g++ can; GpSimdCompileError for any warning."""
    texts = read(sources)
    kernels(texts)
    _kept("strict-" + _key(texts), functools.partial(_check, texts=texts))


@functools.lru_cache(maxsize=1024)
def line_of(binary: Path, address: int) -> str | None:
    """ "file.cpp:line" of the operator's code at `address`; None where nothing tells."""
    try:
        done = child.run(["addr2line", "-i", "-e", str(binary), hex(address - 1)], seconds=20)
    except (OSError, child.ChildLate):
        return None
    for line in done.stdout.splitlines():  # the innermost first; our headers are not the operator
        if (at := re.match(r"(.*?):(\d+)", line)) and "gpsimd/include" not in at[1]:
            return f"{Path(at[1]).name}:{at[2]}"
    return None


def _check(target: Path, texts: Mapping[str, str]) -> None:
    host, device = _parts(texts)
    flags = (*COMMON, "-O2", *STRICT)
    _object(target, _main(device, texts), device, flags)
    for name, text in host.items():
        _object(target, text, {}, flags, name)


def _link(target: Path, texts: Mapping[str, str]) -> None:
    host, device = _parts(texts)
    runtime = lambda path: _gpp(*RUNTIME, "-c", str(HERE / "runtime.cpp"), "-o", str(path))
    objects = [_kept("runtime-" + _key({}), runtime)]
    for name, text in host.items():  # often the same for many kernels
        make = functools.partial(_object, text=text, beside={}, flags=OPERATOR, name=name)
        objects.append(_kept("host-" + _key({name: text}), make))
    objects.append(target.parent / "main.o")
    _object(objects[-1], _main(device, texts), device, OPERATOR)
    _gpp("-no-pie", *map(str, objects), "-o", str(target))


def _parts(texts: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """What registers kernels is for the host and compiled by itself; the rest are the kernels."""
    host = {name: text for name, text in texts.items() if "NEURON_LIBRARY" in text}
    device = {name: text for name, text in texts.items() if name not in host}
    return (host, device) if device else ({}, host)  # one file for both


def _main(device: Mapping[str, str], texts: Mapping[str, str]) -> str:
    includes = "\n".join(f'#include "{name}"' for name in device)
    entries = "\n".join(_KERNEL.format(name=name) for name in kernels(texts))
    return _MAIN.format(includes=includes, kernels=entries)


def _object(
    target: Path, text: str, beside: Mapping[str, str], flags: Sequence[str], name: str = "main.cpp"
) -> None:
    """Compile a file `name` that may include the files `beside` it."""
    folder = target.parent
    for file, content in {**beside, name: text}.items():
        (folder / file).write_text(content, encoding="utf-8")
    _gpp(*flags, "-c", str(folder / name), "-o", str(target))


def _gpp(*arguments: str) -> None:
    plain = os.environ | {"LC_ALL": "C"}
    try:
        done = child.run([gpp(), *arguments], seconds=LONGEST, environment=plain)
    except child.ChildLate:
        raise GpSimdCompileError(f"g++ has not ended after {LONGEST:.0f} s") from None
    if done.status:
        raise GpSimdCompileError(_plain(done.stderr), done.stderr)


def _plain(said: str) -> str:
    """The first errors of g++, files without folders."""
    pattern = r"^(?:.*/)?([\w.+-]+:\d+):\d+: (?:fatal )?error: (.*)$|(undefined reference to .*)$"
    errors = [
        f"{where}: {words}" if where else undefined
        for where, words, undefined in re.findall(pattern, said, re.M)
    ]
    lines = (
        list(dict.fromkeys(errors))[:3] or said.strip().splitlines()[-1:] or ["g++ said nothing"]
    )
    hint = ""
    if re.search(r"is not a member of .torch|Tensor. has no member named", "\n".join(lines)):
        hint = ". The emulator has tensors, their accessors and TCM; no operations on whole tensors"
    elif re.search(r"is not a member of .std", "\n".join(lines)):
        hint = ". The engine's compiler is for C++14"
    return "the operator does not compile: " + "; ".join(lines) + hint


@functools.cache
def gpp() -> str:
    """Where g++ is; MissingPackage where the emulation cannot be had."""
    if sys.platform != "linux":
        raise optional.MissingPackage(f"Linux is needed for {PURPOSE}, and this is {sys.platform}.")
    return optional.tool("g++", PURPOSE)


@functools.cache
def _version() -> str:
    return child.run([gpp(), "--version"], seconds=60).stdout


def _key(texts: Mapping[str, str]) -> str:
    """The same for what compiles to the same program."""
    own = cache.code((HERE / "runtime.cpp", *sorted((HERE / "include").rglob("*.h*"))))
    parts = (_version(), str(HERE), own, _MAIN, _KERNEL, *OPERATOR, *STRICT, *texts.items())
    return cache.digest(*parts)[:32]


def _kept(name: str, make: Callable[[Path], None]) -> Path:
    """The file `name` of the cache; `make(path)` writes it where it is missing or damaged. It is
    made in a folder of its own and moved into place: two processes may make it at a time. A
    checksum stands behind its end, where neither the linker nor the loader looks."""
    place = cache.folder("gpsimd-programs")
    target = place / name
    try:
        program, checksum = (data := target.read_bytes())[:-32], data[-32:]
        if checksum == hashlib.sha256(name.encode() + program).digest():
            os.utime(target)  # the cache drops what was not used for longest
            return target
        warnings.warn(f"{target} is made anew: its checksum is another", stacklevel=2)
    except FileNotFoundError:
        pass
    with tempfile.TemporaryDirectory(prefix="gpsimd-", dir=place) as folder:
        fresh = Path(folder) / "made"
        make(fresh)
        with fresh.open("r+b") as file:
            file.write(hashlib.sha256(name.encode() + file.read()).digest())
        os.replace(fresh, target)
    with contextlib.suppress(OSError):  # another process may tidy too
        files = [file for file in place.iterdir() if file.is_file()]
        for old in sorted(files, key=lambda f: f.stat().st_mtime)[:-KEPT]:
            old.unlink()
    return target
