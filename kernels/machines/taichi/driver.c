/* NVIDIA's driver as Taichi asks it while it compiles and launches; numbers are CUDA's, of device
   attributes. See ptx.py. */
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
  fprintf(out, "%s %u %u %u %u %u\n", (char*)f, gx, gy, gz, x * y * z, bytes);
  fclose(out);
  return 0;
}
int cuStreamCreate(Handle* stream, unsigned flags) { *stream = 1; return 0; }
int cuEventCreate(Handle* event, unsigned flags) { *event = 1; return 0; }
int cuEventElapsedTime(float* time, Handle start, Handle stop) { *time = 0; return 0; }
int cuPointerGetAttribute(void* data, int which, Handle p) { *(int*)data = 2; return 0; }
int cuGetErrorName(int error, const char** name) { *name = "error"; return 0; }
int cuGetErrorString(int error, const char** text) { *text = "error"; return 0; }

/* What may be asked for and has nothing to do. */
#define NOTHING(name) int name(void) { return 0; }
NOTHING(cuInit) NOTHING(cuCtxSetCurrent) NOTHING(cuCtxSetLimit) NOTHING(cuCtxSynchronize)
NOTHING(cuMemAdvise) NOTHING(cuMemPoolSetAttribute) NOTHING(cuMemPoolTrimTo) NOTHING(cuMemFreeHost)
NOTHING(cuModuleLoadData) NOTHING(cuFuncSetAttribute) NOTHING(cuStreamSynchronize)
NOTHING(cuStreamDestroy_v2) NOTHING(cuStreamWaitEvent) NOTHING(cuEventDestroy)
NOTHING(cuEventRecord) NOTHING(cuEventSynchronize)

/* What is only looked up: "not supported". */
#define REFUSED(name) int name(void) { return 801; }
REFUSED(cuExternalMemoryGetMappedBuffer) REFUSED(cuExternalMemoryGetMappedMipmappedArray)
REFUSED(cuImportExternalMemory) REFUSED(cuImportExternalSemaphore) REFUSED(cuMipmappedArrayGetLevel)
REFUSED(cuSignalExternalSemaphoresAsync) REFUSED(cuSurfObjectCreate)
REFUSED(cuWaitExternalSemaphoresAsync) REFUSED(cuGraphAddEmptyNode) REFUSED(cuGraphAddKernelNode)
REFUSED(cuGraphAddNode) REFUSED(cuGraphConditionalHandleCreate) REFUSED(cuGraphCreate)
REFUSED(cuGraphDestroy) REFUSED(cuGraphExecDestroy) REFUSED(cuGraphInstantiate)
REFUSED(cuGraphLaunch) REFUSED(cuLinkAddData_v2) REFUSED(cuLinkAddFile_v2) REFUSED(cuLinkComplete)
REFUSED(cuLinkCreate_v2) REFUSED(cuLinkDestroy)
