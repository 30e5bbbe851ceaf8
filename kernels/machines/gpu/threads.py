"""A kernel in CUDA C++ on the CPU's threads, under g++'s sanitizers.

Every thread of a block is a thread of the CPU, `__shared__` is memory that they share, and
`__syncthreads()` is a barrier. So ThreadSanitizer sees two threads that use the same place with no
barrier between, and AddressSanitizer an index that leaves its array. Neither knows a warp: threads
of one run here in any order, which is what CUDA promises since Volta.
"""

import os
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from kernels.machines import child, optional
from kernels.machines.checks import one_of

SECONDS = 60.0
SANITIZERS = {
    "races": ("-fsanitize=thread", "TSAN_OPTIONS", "halt_on_error=1"),
    "bounds": ("-fsanitize=address,undefined", "ASAN_OPTIONS", "detect_leaks=0"),
    "nothing": ("-O2", "LC_ALL", "C"),
}
NOTHING = "nothing"  # watched: the arithmetic alone

HEADER = Path(__file__).with_name("threads.h")


@dataclass(frozen=True)
class Found:
    """What a sanitizer said of a kernel."""

    # In its words, such as "data race" or "heap-buffer-overflow"; "" where it found nothing.
    problem: str
    line: int  # of the source, counted from 1; 0 where it named none
    printed: str = field(repr=False)  # by the program
    report: str = field(repr=False)  # the sanitizer's, whole


def run_on_threads(source: str, main: str, *, watch: str = "races") -> Found:
    """Run CUDA C++ on CPU threads, watched by a sanitizer.

    Args:
        source: kernels, without `extern "C"`.
        main: the body of a main function: it makes arrays and calls
            `launch(dim3(blocks), dim3(threads), [&] { kernel(…); });`.
        watch: "races" (ThreadSanitizer), "bounds" (AddressSanitizer) or "nothing".

    Raises:
        ValueError: for another `watch`, and for source that g++ refuses.
        MissingPackage: without g++.
    """
    one_of("watch", watch, SANITIZERS)
    compiler = optional.tool("g++", "running CUDA C++ on the CPU")
    flag, variable, setting = SANITIZERS[watch]
    source = source.replace('extern "C"', "")
    with tempfile.TemporaryDirectory(prefix="kernels-gpu-") as folder:
        path, program = Path(folder) / "kernel.cc", Path(folder) / "kernel"
        text = f'#include "{HEADER}"\n#line 1 "kernel.cu"\n{source}\nint main() {{\n{main}\n}}\n'
        path.write_text(text, encoding="utf-8")
        options = ["-std=c++20", "-O1", "-g", "-pthread", "-w", flag]
        built = child.run([compiler, *options, str(path), "-o", str(program)], seconds=SECONDS)
        if built.status:
            error = re.search(r"kernel\.cu:(\d+):\d+: error: ([^\n]*)", built.stderr)
            said = f"line {error[1]}: {error[2]}" if error else child.last_line(built.stderr)
            raise ValueError(f"source is refused by g++, {said}; accepted: C++20 with CUDA's words")
        # The sanitizer wants its memory where no address is drawn at random.
        at_fixed = [setarch, "-R"] if (setarch := shutil.which("setarch")) else []
        variables = dict(os.environ) | {variable: setting}
        done = child.run([*at_fixed, str(program)], seconds=SECONDS, environment=variables)
    report = done.stderr
    problem = re.search(
        r"(?:ThreadSanitizer|AddressSanitizer): ([\w-]+(?: race)?)|runtime error: ([^\n]*)", report
    )
    line = re.search(r"kernel\.cu:(\d+)", report)
    return Found(
        (problem[1] or problem[2]) if problem else "",
        int(line[1]) if problem and line else 0,
        done.stdout,
        report,
    )
