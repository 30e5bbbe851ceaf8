"""The PTX that Taichi makes of a kernel for a GPU that is not there.

Taichi compiles for a GPU when it finds NVIDIA's driver, libcuda. Here it finds one of ours: it has
one GPU of the wanted capability, gives host memory, writes down the PTX that it is handed and each
launch, and runs nothing.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernels.machines import child, optional
from kernels.machines.checks import brief
from kernels.machines.optional import available, require
from kernels.machines.taichi import runtime
from kernels.machines.taichi.subprocess_runner import SECONDS, TaichiError, run_once

OUT, MAJOR, MINOR, SMS = (f"KERNELS_DRIVER_{name}" for name in ("OUT", "MAJOR", "MINOR", "SMS"))
MEMORY_GB = 0.1  # that Taichi takes when it starts

# What it is asked while it compiles and launches; numbers are CUDA's, of device attributes.
_DRIVER = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef uintptr_t Handle;
static int number(const char* name) { return atoi(getenv(name)); }
static FILE* file(const char* name, const char* mode) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", getenv("KERNELS_DRIVER_OUT"), name);
  return fopen(path, mode);
}
int cuDriverGetVersion(int* version) { *version = 12090; return 0; }
int cuDeviceGetCount(int* count) { *count = 1; return 0; }
int cuDeviceGet(int* device, int which) { *device = 0; return 0; }
int cuDeviceGetName(char* name, int size, int device) { snprintf(name, size, "none"); return 0; }
int cuDeviceGetAttribute(int* value, int which, int device) {
  switch (which) {
    case 75: *value = number("KERNELS_DRIVER_MAJOR"); break;
    case 76: *value = number("KERNELS_DRIVER_MINOR"); break;
    case 16: *value = number("KERNELS_DRIVER_SMS"); break;
    case 1: *value = 1024; break;    /* threads of a block */
    case 8: *value = 49152; break;   /* bytes of shared memory of a block */
    case 81: case 97: *value = 101376; break;
    case 10: *value = 32; break;     /* threads of a warp */
    case 12: *value = 65536; break;  /* registers of a block */
    case 39: *value = 1536; break;   /* threads of an SM */
    case 106: *value = 16; break;    /* blocks of an SM */
    default: *value = 0;
  }
  return 0;
}
int cuDevicePrimaryCtxRetain(Handle* context, int device) { *context = 1; return 0; }
int cuCtxCreate_v2(Handle* context, unsigned flags, int device) { *context = 1; return 0; }
int cuCtxGetCurrent(Handle* context) { *context = 1; return 0; }
int cuMemGetInfo_v2(size_t* left, size_t* all) { *left = *all = (size_t)8 << 30; return 0; }
int cuMemAlloc_v2(Handle* p, size_t size) { *p = (Handle)calloc(1, size); return 0; }
int cuMemAllocHost_v2(Handle* p, size_t size) { return cuMemAlloc_v2(p, size); }
int cuMemAllocAsync(Handle* p, size_t size, Handle s) { return cuMemAlloc_v2(p, size); }
int cuMemAllocManaged(Handle* p, size_t size, unsigned f) { return cuMemAlloc_v2(p, size); }
int cuMemFree_v2(Handle p) { free((void*)p); return 0; }
int cuMemFreeAsync(Handle p, Handle s) { return cuMemFree_v2(p); }
static int move(void* to, const void* from, size_t size) { memcpy(to, from, size); return 0; }
int cuMemcpyHtoD_v2(Handle to, void* from, size_t n) { return move((void*)to, from, n); }
int cuMemcpyDtoH_v2(void* to, Handle from, size_t n) { return move(to, (void*)from, n); }
int cuMemcpyDtoD_v2(Handle to, Handle from, size_t n) { return move((void*)to, (void*)from, n); }
int cuMemcpyHtoDAsync_v2(Handle to, void* from, size_t n, Handle s) {
  return move((void*)to, from, n);
}
int cuMemcpyDtoHAsync_v2(void* to, Handle from, size_t n, Handle s) {
  return move(to, (void*)from, n);
}
int cuMemsetD8_v2(Handle p, unsigned char value, size_t n) { memset((void*)p, value, n); return 0; }
int cuMemsetD32_v2(Handle p, unsigned value, size_t n) {
  for (size_t i = 0; i < n; ++i) ((unsigned*)p)[i] = value;
  return 0;
}
int cuDeviceGetDefaultMemPool(Handle* pool, int device) { *pool = 1; return 0; }
int cuModuleLoadDataEx(Handle* module, const char* image, unsigned n, void* names, void* values) {
  static int modules;
  char name[32];
  snprintf(name, sizeof name, "%03d.ptx", modules);
  FILE* out = file(name, "w");
  if (out) fputs(image, out), fclose(out);
  *module = ++modules;
  return 0;
}
int cuModuleGetFunction(Handle* function, Handle module, const char* name) {
  *function = (Handle)strdup(name);
  return 0;
}
int cuFuncGetAttribute(int* value, int which, Handle function) { *value = 0; return 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* n, Handle f, int b, size_t s) {
  *n = 2;
  return 0;
}
int cuLaunchKernel(Handle f, unsigned gx, unsigned gy, unsigned gz, unsigned x, unsigned y,
                   unsigned z, unsigned bytes, Handle stream, void** arguments, void** more) {
  FILE* out = file("launches", "a");
  if (!out) return 0;
  fprintf(out, "%s %u %u %u %u %u\\n", (char*)f, gx, gy, gz, x * y * z, bytes);
  fclose(out);
  return 0;
}
int cuStreamCreate(Handle* stream, unsigned flags) { *stream = 1; return 0; }
int cuEventCreate(Handle* event, unsigned flags) { *event = 1; return 0; }
int cuEventElapsedTime(float* time, Handle start, Handle stop) { *time = 0; return 0; }
int cuPointerGetAttribute(void* data, int which, Handle p) { *(int*)data = 2; return 0; }
int cuGetErrorName(int error, const char** name) { *name = "error"; return 0; }
int cuGetErrorString(int error, const char** text) { *text = "error"; return 0; }
"""
# What may be asked for and has nothing to do, and what is only looked up: 801 is "not supported".
_NOTHING = """
cuInit cuCtxSetCurrent cuCtxSetLimit cuCtxSynchronize cuMemAdvise cuMemPoolSetAttribute
cuMemPoolTrimTo cuMemFreeHost cuModuleLoadData cuFuncSetAttribute cuStreamSynchronize
cuStreamDestroy_v2 cuStreamWaitEvent cuEventDestroy cuEventRecord cuEventSynchronize
"""
_REFUSED = """
cuExternalMemoryGetMappedBuffer cuExternalMemoryGetMappedMipmappedArray cuImportExternalMemory
cuImportExternalSemaphore cuMipmappedArrayGetLevel cuSignalExternalSemaphoresAsync
cuSurfObjectCreate cuWaitExternalSemaphoresAsync cuGraphAddEmptyNode cuGraphAddKernelNode
cuGraphAddNode cuGraphConditionalHandleCreate cuGraphCreate cuGraphDestroy cuGraphExecDestroy
cuGraphInstantiate cuGraphLaunch cuLinkAddData_v2 cuLinkAddFile_v2 cuLinkComplete
cuLinkCreate_v2 cuLinkDestroy
"""


@dataclass(frozen=True)
class TaichiLaunch:
    """A task of a kernel, as Taichi launches it on a GPU."""

    name: str  # as Taichi gives it
    ptx: str = field(repr=False)  # of the module that holds it
    grid: tuple[int, ...]  # blocks in each of three directions
    threads: int  # of a block
    shared_bytes: int  # of a block, that the launch gives it besides its own


def ptx(
    function: Callable[..., Any],
    *arguments: Any,
    capability: tuple[int, int] = (8, 6),
    sms: int = 82,
    seconds: float = SECONDS,
) -> tuple[TaichiLaunch, ...]:
    """The tasks that `function(*arguments)` would launch on a GPU, in order; none of them runs.

    Args:
        function: of a module, since a child process imports it there; it calls kernels on its
            arguments itself, without kernels.taichi.launch.
        arguments: NumPy arrays and numbers.
        capability: compute capability of the GPU: (8, 6) is sm_86.
        sms: streaming multiprocessors, by which Taichi chooses the grid.
        seconds: that the child may take.

    Returns:
        Those of the kernels, without what prepares Taichi itself.

    Raises:
        TaichiError: the child fails, or takes longer.
        MissingPackage: Taichi or g++ is not installed.
    """
    if not available(runtime.name()):
        require(runtime.name(), "kernels in Taichi")
    compiler = optional.tool("g++", "a stand-in for NVIDIA's driver")
    with tempfile.TemporaryDirectory(prefix="kernels-taichi-") as name:
        folder = Path(name)
        source, library = folder / "driver.c", folder / "libcuda.so"
        source.write_text(_source(), encoding="utf-8")
        command = [compiler, "-x", "c", "-shared", "-fPIC", "-w", str(source), "-o", str(library)]
        built = child.run(command, seconds=seconds)
        if built.status:
            raise TaichiError(f"g++ refuses the driver: {child.last_line(built.stderr)}")
        library.with_suffix(".so.1").symlink_to(library)
        variables = {
            "KERNELS_TAICHI": runtime.name(),
            "LD_LIBRARY_PATH": str(folder),
            **dict(zip((OUT, MAJOR, MINOR, SMS), map(str, (folder, *capability, sms)))),
        }
        run_once(__name__, (function, arguments), folder, seconds, variables)
        modules = [path.read_text() for path in sorted(folder.glob("*.ptx"))]
        launches = (folder / "launches").read_text().splitlines()
    tasks = []
    for line in launches:
        task, *numbers = line.split()
        gx, gy, gz, threads, bytes_ = map(int, numbers)
        module = next((m for m in modules if re.search(rf"\.entry {task}\(", m)), "")
        if not task.startswith("runtime_"):
            tasks.append(TaichiLaunch(task, module, (gx, gy, gz), threads, bytes_))
    return tuple(tasks)


def _source() -> str:
    empty = [f"int {name}(void) {{ return 0; }}" for name in _NOTHING.split()]
    refused = [f"int {name}(void) {{ return 801; }}" for name in _REFUSED.split()]
    return "\n".join((_DRIVER, *empty, *refused, ""))


def main(question: tuple) -> None:
    """In the child: start Taichi on the GPU that is not there, run what the parent asked for."""
    try:
        ti = runtime.module()
        memory = {"device_memory_GB": MEMORY_GB} if runtime.name() == "taichi" else {}
        ti.init(arch=ti.cuda, offline_cache=False, log_level=ti.ERROR, **memory)
        function, arguments = question
        function(*arguments)
        ti.sync()
    except Exception as error:
        sys.exit(brief(error))
