"""The program that calls NVRTC, a library in C: CUDA C++ in, PTX out.

    python nvrtc.py FOLDER SOURCE OPTION…

It prints the PTX; or what NVRTC objects to on stderr, and ends with 1.
"""

import ctypes
import sys
from pathlib import Path


def compile_source(folder: str, source: str, options: list[str]) -> tuple[bool, str]:
    """Compile CUDA C++: whether it could be compiled, and the PTX or what is wrong."""
    builtins = next(p for p in sorted(Path(folder).glob("libnvrtc-builtins.so*")))
    ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(str(next(iter(sorted(Path(folder).glob("libnvrtc.so*"))))))
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    words = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    status = nvrtc.nvrtcCompileProgram(program, len(options), words)
    what = "PTX" if status == 0 else "ProgramLog"
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, text)
    return status == 0, text.value.decode(errors="replace")


if __name__ == "__main__":
    done, said = compile_source(sys.argv[1], sys.argv[2], sys.argv[3:])
    print(said, file=sys.stdout if done else sys.stderr)
    sys.exit(not done)
