// One GpSimd engine on a CPU: its cores one after another, each a process of its own.
//
// The operator is compiled with -fsanitize=thread, for which the compiler puts a call before every
// load and store. Those calls end here and not in the sanitizer's library, so that every access to
// TCM is checked byte by byte. What the operator does with its stack or heap is not looked at.
//
// usage: PROGRAM KERNEL FOLDER TCM_BYTES STOP SECONDS CORE,CORE,... DTYPE:SIZE,SIZE,... ...
// reads FOLDER/0, FOLDER/1, ...; writes FOLDER/result, and FOLDER/written, writer and report
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include <neuron/neuron-utils.hpp>
#include <torchneuron/register.h>

// In the file that holds the operator: its kernels by name.
void emulated_kernels(std::map<std::string, emulated::Function>& kernels);

namespace {

using emulated::Buffer;

constexpr size_t CORES = 64, FINDINGS = 64, WORDS = 400, ALIGN = 64;
constexpr uintptr_t NULL_PAGE = 1 << 16;
constexpr unsigned char POISON = 0xff;  // NaN as a float
constexpr int REFUSED = 3;

struct Finding {
  char kind[24], words[WORDS];
  int core;
  uintptr_t code;  // where in the operator
};
struct Traffic {
  uint64_t loads, loaded, stores, stored, peak;
};
struct Shared {  // all processes see it
  size_t findings;
  Finding finding[FINDINGS];
  Traffic traffic[CORES];
};

Shared* shared;
bool stop;  // at the first finding
unsigned seconds;
int core = -1, cores;
bool in_core;  // in its process
bool asked_for_result;
Buffer* result;
uint8_t* written;  // of each element of the result: how often,
uint8_t* writer;   // by which core (+ 1),
uint8_t* reader;   // and which core has read it (+ 1)
std::vector<Buffer*> inputs;
std::string folder, kernel;
std::map<std::string, emulated::Function> kernels;

std::map<std::string, emulated::Function>& shapes() {
  static std::map<std::string, emulated::Function> known;
  return known;
}

void* memory(size_t bytes, int flags) {
  void* at = mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE,
                  flags | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    fprintf(stderr, "no memory for %zu bytes: %s\n", bytes, strerror(errno));
    exit(1);
  }
  return at;
}

void report();

__attribute__((format(printf, 3, 4))) void refuse(const char* kind, void* code, const char* format,
                                                  ...) {
  const auto same = [&](const Finding& f) {
    return !strcmp(f.kind, kind) && f.core == core && f.code == reinterpret_cast<uintptr_t>(code);
  };
  Finding* const last = shared->finding + shared->findings;
  if (shared->findings < FINDINGS && std::none_of(shared->finding, last, same)) {
    Finding& found = shared->finding[shared->findings++];
    snprintf(found.kind, sizeof(found.kind), "%s", kind);
    found.core = core;
    found.code = reinterpret_cast<uintptr_t>(code);
    va_list words;
    va_start(words, format);
    vsnprintf(found.words, WORDS, format, words);
    va_end(words);
  }
  if (!stop || (core >= 0 && !in_core)) return;
  fflush(stdout);
  if (in_core) _exit(REFUSED);
  report();
  _exit(0);
}

#define CALLER __builtin_return_address(0)

// --- TCM -----------------------------------------------------------------------------------------

// The pool is a wide stretch of addresses in which every buffer has its own place, with a gap as
// large as the pool before and behind it: an index that is off by less meets no other buffer.
enum State : uint8_t { OUTSIDE, UNSET, SET };
struct Block {
  size_t at, bytes;
  bool live;
};
char* pool;
uint8_t* state;  // of each byte of the stretch
size_t stretch, gap, limit, taken, next;
std::vector<Block> blocks;
size_t refused_bytes, refused_taken;  // of the last tcm_malloc that returned null

void make_pool(size_t bytes) {
  limit = bytes;
  gap = std::max<size_t>(bytes, 4096);
  stretch = 8 * gap + (1 << 22);
  next = gap;
  pool = static_cast<char*>(memory(stretch, MAP_PRIVATE));
  state = static_cast<uint8_t*>(memory(stretch, MAP_PRIVATE));
}

size_t room(size_t bytes) {
  for (size_t at = next, wrapped = 0;;) {
    if (at + bytes + gap > stretch) {
      if (wrapped++) {
        fprintf(stderr, "the emulator has no room for another TCM buffer\n");
        _exit(1);
      }
      at = gap;
    }
    auto hit = std::find_if(blocks.begin(), blocks.end(), [&](const Block& b) {
      return b.live && at < b.at + b.bytes + gap && b.at < at + bytes + gap;
    });
    if (hit == blocks.end()) return at;
    at = (hit->at + hit->bytes + gap + ALIGN - 1) / ALIGN * ALIGN;
  }
}

size_t distance(const Block& block, size_t offset) {
  if (offset < block.at) return block.at - offset;
  return offset < block.at + block.bytes ? 0 : offset - (block.at + block.bytes) + 1;
}

const Block* nearest(size_t offset) {
  const auto best = std::min_element(
      blocks.begin(), blocks.end(),
      [&](const Block& a, const Block& b) { return distance(a, offset) < distance(b, offset); });
  return best != blocks.end() && distance(*best, offset) <= gap ? &*best : nullptr;
}

void null_pointer(bool write, void* code) {
  const char* verb = write ? "writes" : "reads";
  if (refused_bytes)
    refuse("null", code,
           "%s through a null pointer: tcm_malloc(%zu) had returned null, as %zu of %zu bytes were "
           "taken",
           verb, refused_bytes, refused_taken, limit);
  else
    refuse("null", code, "%s through a null pointer", verb);
}

void outside(size_t offset, size_t width, bool write, const char* call, void* code) {
  const char* verb = write ? "writes" : "reads";
  const Block* block = nearest(offset);
  if (!block) return refuse("bounds", code, "%s%s outside of every TCM buffer", call, verb);
  const long from = static_cast<long>(offset) - static_cast<long>(block->at);
  if (!block->live && from >= 0 && from < static_cast<long>(block->bytes))
    return refuse("freed", code, "%s%s a TCM buffer of %zu bytes after tcm_free", call, verb,
                  block->bytes);
  const long w = static_cast<long>(width);
  refuse("bounds", code, "%s%s element %ld of a TCM buffer of %zu elements (%zu bytes each)", call,
         verb, (from - (from < 0 ? w - 1 : 0)) / w, block->bytes / width, width);
}

// Returns whether the access is to buffers of the pool, and to nothing else of it.
bool access(const void* at, size_t bytes, size_t width, bool write, const char* call, void* code) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(at);
  const uintptr_t offset = address - reinterpret_cast<uintptr_t>(pool);
  if (offset >= stretch) {
    if (address < NULL_PAGE) null_pointer(write, code);
    return false;
  }
  uint8_t* each = state + offset;
  for (size_t i = 0; i < bytes; ++i) {
    if (each[i] == OUTSIDE) {
      outside(offset + i, width, write, call, code);
      return false;
    }
    if (write) {
      each[i] = SET;
    } else if (each[i] == UNSET) {
      const Block* block = nearest(offset + i);
      refuse("unset", code, "%sreads element %zu of a TCM buffer of %zu elements (%zu bytes each), "
             "where nothing has been written", call, (offset + i - block->at) / width,
             block->bytes / width, width);
      return true;
    }
  }
  return true;
}

// --- tensors -------------------------------------------------------------------------------------

constexpr size_t WIDTH[] = {4, 4, 1, 8, 2, 1};  // in the order of ScalarType
constexpr char KIND[] = {'f', 'i', 'i', 'i', 'i', 'u'};
const char* const NAME[] = {"float32", "int32", "int8", "int64", "int16", "uint8"};

size_t width_of(const Buffer* buffer) { return WIDTH[static_cast<int>(buffer->type)]; }

std::string called(const Buffer* buffer) {
  if (buffer->role == emulated::INPUT) return "input " + std::to_string(buffer->number);
  return buffer->role == emulated::OUTPUT ? "the result" : "a tensor";
}

std::string shape_of(const Buffer* buffer) {
  std::string text = NAME[static_cast<int>(buffer->type)];
  for (size_t i = 0; i < buffer->sizes.size(); ++i)
    text += (i ? ", " : "[") + std::to_string(buffer->sizes[i]);
  return text + (buffer->sizes.empty() ? "[]" : "]");
}

std::string place_of(size_t flat) {
  std::string text;
  for (size_t axis = result->sizes.size(); axis--;) {
    text = std::to_string(flat % result->sizes[axis]) + (text.empty() ? "" : ", ") + text;
    flat /= result->sizes[axis];
  }
  return "[" + text + "]";
}

// Notes that this core reads or writes elements of the result; two cores must not meet there.
void note(size_t first, size_t count, bool write, const char* call, void* code) {
  const uint8_t me = static_cast<uint8_t>(core + 1);
  for (size_t i = first; i < first + count; ++i) {
    if (write) {
      if (writer[i])
        refuse("twice", code, "%s writes element %s of the result, which core %d has written", call,
               place_of(i).c_str(), writer[i] - 1);
      else if (reader[i] && reader[i] != me)
        refuse("race", code, "%s writes element %s of the result, which core %d has read", call,
               place_of(i).c_str(), reader[i] - 1);
      writer[i] = me;
      written[i] = static_cast<uint8_t>(std::min(255, written[i] + 1));
    } else {
      if (writer[i] && writer[i] != me)
        refuse("race", code, "%s reads element %s of the result, which core %d writes", call,
               place_of(i).c_str(), writer[i] - 1);
      else if (!writer[i])
        refuse("unset", code, "%s reads element %s of the result, which it has not written", call,
               place_of(i).c_str());
      reader[i] = me;
    }
  }
}

// Refuses bits that are read as what they are not: as many of them, and another type.
void same_kind(const Buffer* buffer, size_t width, char kind, const char* call, void* code) {
  if (!buffer->data || width != width_of(buffer) || kind == KIND[static_cast<int>(buffer->type)])
    return;
  const char* words = kind == 'f' ? "floats" : kind == 'i' ? "signed" : "unsigned";
  refuse("dtype", code, "%s takes %s%s of %zu bytes, and %s is %s", call, words,
         kind == 'f' ? "" : " whole numbers", width, called(buffer).c_str(),
         shape_of(buffer).c_str());
}

// How many of `count` elements from `offset` on there are to transfer; refuses what there is not.
size_t whole(const Buffer* buffer, size_t offset, size_t count, size_t width, const char* call,
             void* code) {
  const size_t n = static_cast<size_t>(buffer->numel());
  if (!buffer->data) {
    refuse("shape", code, "%s in a shape function: its tensors have sizes and no data", call);
    return 0;
  }
  if (width != width_of(buffer)) {
    refuse("dtype", code, "%s takes elements of %zu bytes, and %s is %s", call, width,
           called(buffer).c_str(), shape_of(buffer).c_str());
    return 0;
  }
  if (count <= n && offset <= n - count) return count;
  refuse("bounds", code, "%s takes %zu elements from %zu on of %s, which has %zu: %s", call, count,
         offset, called(buffer).c_str(), n, shape_of(buffer).c_str());
  return offset < n ? n - offset : 0;
}

void transfer(Buffer* buffer, char* tcm, size_t offset, size_t count, size_t width, bool store,
              void* code) {
  const char* call = store ? "tcm_to_tensor" : "tensor_to_tcm";
  const std::string prefix = std::string(call) + " ";
  Traffic& traffic = shared->traffic[core];
  (store ? traffic.stores : traffic.loads)++;
  (store ? traffic.stored : traffic.loaded) += count * width;
  count = whole(buffer, offset, count, width, call, code);
  if (store && buffer->role == emulated::INPUT)
    return refuse("input", code, "%s writes to %s", call, called(buffer).c_str());
  if (!count) return;
  if (!access(tcm, count * width, width, !store, prefix.c_str(), code)) {
    const uintptr_t from = reinterpret_cast<uintptr_t>(tcm) - reinterpret_cast<uintptr_t>(pool);
    if (from >= stretch && reinterpret_cast<uintptr_t>(tcm) >= NULL_PAGE)
      refuse("bounds", code, "%s is given a pointer that tcm_malloc has not returned", call);
    return;
  }
  if (buffer == result) note(offset, count, store, call, code);
  char* there = buffer->data + offset * width;
  memcpy(store ? there : tcm, store ? tcm : there, count * width);
}

// --- cores ---------------------------------------------------------------------------------------

void last_words(int number, siginfo_t* info, void*) {
  stop = true;
  const uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
  if (number == SIGALRM)
    refuse("time", nullptr, "has not ended after %u seconds", seconds);
  else if (number == SIGABRT)
    refuse("crash", nullptr, "ended itself: abort() or a failed assert()");
  else if (number == SIGFPE)
    refuse("crash", nullptr, "divides an integer by zero");
  else if (number == SIGILL)
    refuse("crash", nullptr, "reached code that the compiler takes for impossible");
  else
    refuse("crash", nullptr, "crashed at the address %#zx, which is nobody's memory",
           static_cast<size_t>(address));
}

void listen() {
  static char own[1 << 16];  // the stack may be what has run out
  stack_t stack = {};
  stack.ss_sp = own;
  stack.ss_size = sizeof(own);
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = last_words;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM})
    sigaction(number, &action, nullptr);
  alarm(seconds);
}

void run_core(int number) {
  core = number;
  in_core = true;
  listen();
  std::vector<torch::Tensor> arguments;
  for (Buffer* input : inputs) arguments.emplace_back(input);
  const torch::Tensor returned = kernels[kernel](arguments);
  Buffer* last = returned.buffer();
  if (!asked_for_result && cores > 1) {
    refuse("result", nullptr, "returns without get_dst_tensor(): of %d cores no returned tensor is "
           "taken", cores);
  } else if (!asked_for_result) {
    if (!last || last->sizes != result->sizes || last->type != result->type) {
      refuse("result", nullptr, "returns %s, and the shape function says %s",
             last ? shape_of(last).c_str() : "nothing", shape_of(result).c_str());
    } else {
      memcpy(result->data, last->data, last->numel() * width_of(last));
      note(0, last->numel(), true, "the return", nullptr);
    }
  }
  for (const Block& block : blocks)
    if (block.live)
      refuse("leak", nullptr, "tcm_malloc(%zu) was never freed: the next call has so much less",
             block.bytes);
  fflush(stdout);
  _exit(0);
}

// --- the program ---------------------------------------------------------------------------------

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

Buffer* read_input(const std::string& spec, int number) {
  const std::vector<std::string> parts = split(spec, ':');
  auto* buffer = new Buffer{{}, c10::ScalarType::Float, nullptr, emulated::INPUT, number};
  const auto name = std::find(std::begin(NAME), std::end(NAME), parts[0]);
  buffer->type = static_cast<c10::ScalarType>(name - std::begin(NAME));
  if (parts.size() > 1)
    for (const std::string& size : split(parts[1], ',')) buffer->sizes.push_back(std::stoll(size));
  const size_t bytes = buffer->numel() * width_of(buffer);
  buffer->data = static_cast<char*>(memory(bytes, MAP_PRIVATE));
  std::ifstream(folder + "/" + std::to_string(number), std::ios::binary).read(buffer->data, bytes);
  return buffer;
}

void dump(const char* name, const void* data, size_t bytes) {
  std::ofstream(folder + "/" + name, std::ios::binary)
      .write(static_cast<const char*>(data), bytes);
}

void report() {
  std::ofstream file(folder + "/report");
  if (result) {
    const size_t n = result->numel();
    file << "result\t" << NAME[static_cast<int>(result->type)];
    for (int64_t size : result->sizes) file << "\t" << size;
    file << "\n";
    dump("result", result->data, n * width_of(result));
    dump("written", written, n);
    dump("writer", writer, n);
  }
  for (int i = 0; i < cores; ++i) {
    const Traffic& t = shared->traffic[i];
    file << "core\t" << i << "\t" << t.loads << "\t" << t.loaded << "\t" << t.stores << "\t"
         << t.stored << "\t" << t.peak << "\n";
  }
  for (size_t i = 0; i < shared->findings; ++i) {
    const Finding& f = shared->finding[i];
    file << "finding\t" << f.kind << "\t" << f.core << "\t" << f.code << "\t" << f.words << "\n";
  }
}

void make_result() {
  std::vector<torch::Tensor> arguments;
  for (const Buffer* input : inputs)
    arguments.emplace_back(
        new Buffer{input->sizes, input->type, nullptr, emulated::SHAPE, input->number});
  const Buffer* given = shapes()[kernel](arguments).buffer();
  auto* made = new Buffer{given->sizes, given->type, nullptr, emulated::OUTPUT, 0};
  const size_t n = made->numel();
  made->data = static_cast<char*>(memory(n * width_of(made), MAP_SHARED));
  memset(made->data, POISON, n * width_of(made));
  written = static_cast<uint8_t*>(memory(n, MAP_SHARED));
  writer = static_cast<uint8_t*>(memory(n, MAP_SHARED));
  reader = static_cast<uint8_t*>(memory(n, MAP_SHARED));
  result = made;
}

}  // namespace

// --- what the headers declare --------------------------------------------------------------------

namespace emulated {

void declare(const std::string& kernel, Function shape) { shapes()[kernel] = shape; }

void need_arguments(const char* function, size_t takes, size_t given) {
  if (takes == given) return;
  stop = true;
  refuse("library", nullptr, "%s takes %zu tensors, and %zu are given", function, takes, given);
}

Buffer* make(c10::IntArrayRef sizes, c10::ScalarType type) {
  auto* buffer = new Buffer{sizes.vec(), type, nullptr, core < 0 ? SHAPE : TEMPORARY, 0};
  if (core >= 0) {
    const size_t bytes = buffer->numel() * width_of(buffer);
    buffer->data = static_cast<char*>(memory(bytes, MAP_PRIVATE));
    memset(buffer->data, POISON, bytes);
  }
  return buffer;
}

template <typename T>
void fill_as(Buffer* buffer, double value) {
  T* data = reinterpret_cast<T*>(buffer->data);
  std::fill(data, data + buffer->numel(), static_cast<T>(value));
}

void fill(Buffer* buffer, double value) {
  if (!buffer->data) return;
  if (buffer == result) note(0, result->numel(), true, "fill_", CALLER);
  using Fill = void (*)(Buffer*, double);
  static const Fill fills[] = {fill_as<float>,   fill_as<int32_t>, fill_as<int8_t>,
                               fill_as<int64_t>, fill_as<int16_t>, fill_as<uint8_t>};
  fills[static_cast<int>(buffer->type)](buffer, value);
}

void need_one_core(const char* call) {
  if (cores > 1)
    refuse("accessor", CALLER, "%s with %d cores: only TCM accessors work there", call, cores);
}

void open_accessor(const Buffer* buffer, size_t rank, size_t width, char kind) {
  if (core >= 0 && cores > 1)
    refuse("accessor", CALLER, "accessor with %d cores: only TCM accessors work there", cores);
  if (rank != buffer->sizes.size()) {
    stop = true;  // its index arithmetic would make no sense
    refuse("dtype", CALLER, "accessor of rank %zu, and %s is %s", rank, called(buffer).c_str(),
           shape_of(buffer).c_str());
  }
  whole(buffer, 0, 0, width, "accessor", CALLER);
  same_kind(buffer, width, kind, "accessor", CALLER);
}

int64_t place(const Buffer* buffer, size_t axis, int64_t index) {
  const int64_t size = buffer->sizes[axis];
  if (index >= 0 && index < size) return index;
  refuse("bounds", CALLER, "accessor takes index %ld of dimension %zu of %s: %s",
         static_cast<long>(index), axis, called(buffer).c_str(), shape_of(buffer).c_str());
  return 0;
}

void get(const Buffer* buffer, int64_t index, void* value, size_t width) {
  if (buffer == result) note(index, 1, false, "accessor", CALLER);
  memcpy(value, buffer->data + index * width, width);
}

void set(Buffer* buffer, int64_t index, const void* value, size_t width) {
  if (buffer->role == INPUT)
    return refuse("input", CALLER, "accessor writes to %s", called(buffer).c_str());
  if (buffer == result) note(index, 1, true, "accessor", CALLER);
  memcpy(buffer->data + index * width, value, width);
}

void tensor_to_tcm(const Buffer* buffer, void* tcm, size_t offset, size_t count, size_t width,
                   char kind) {
  same_kind(buffer, width, kind, "tensor_to_tcm", CALLER);
  transfer(const_cast<Buffer*>(buffer), static_cast<char*>(tcm), offset, count, width, false,
           CALLER);
}

void tcm_to_tensor(Buffer* buffer, const void* tcm, size_t offset, size_t count, size_t width,
                   char kind) {
  same_kind(buffer, width, kind, "tcm_to_tensor", CALLER);
  transfer(buffer, const_cast<char*>(static_cast<const char*>(tcm)), offset, count, width, true,
           CALLER);
}

}  // namespace emulated

namespace torch {
namespace neuron {

void* tcm_malloc(size_t bytes) {
  if (bytes > limit - taken) {
    refused_bytes = bytes;
    refused_taken = taken;
    return nullptr;
  }
  const size_t at = room(bytes);
  next = (at + bytes + gap + ALIGN - 1) / ALIGN * ALIGN;
  blocks.erase(std::remove_if(blocks.begin(), blocks.end(),
                              [&](const Block& b) {
                                return !b.live && at < b.at + b.bytes && b.at < at + bytes;
                              }),
               blocks.end());
  blocks.push_back({at, bytes, true});
  memset(pool + at, POISON, bytes);
  memset(state + at, UNSET, bytes);
  taken += bytes;
  Traffic& traffic = shared->traffic[core];
  traffic.peak = std::max<uint64_t>(traffic.peak, taken);
  return pool + at;
}

void tcm_free(void* pointer) {
  if (!pointer) return;
  for (Block& block : blocks) {
    if (pool + block.at != pointer || !block.live) continue;
    block.live = false;
    memset(state + block.at, OUTSIDE, block.bytes);
    taken -= block.bytes;
    return;
  }
  refuse("freed", CALLER, "tcm_free is given a pointer that is no TCM buffer, or one freed before");
}

}  // namespace neuron
}  // namespace torch

uint32_t get_cpu_id() { return static_cast<uint32_t>(core); }
uint32_t get_cpu_count() { return static_cast<uint32_t>(cores); }
torch::Tensor get_dst_tensor() {
  asked_for_result = true;
  return torch::Tensor(result);
}

// --- what the compiler calls before each load and store ------------------------------------------

extern "C" {

#define ACCESS(name, width, write) \
  void name(void* at) { access(at, width, width, write, "", CALLER); }
ACCESS(__tsan_read1, 1, false)
ACCESS(__tsan_read2, 2, false)
ACCESS(__tsan_read4, 4, false)
ACCESS(__tsan_read8, 8, false)
ACCESS(__tsan_read16, 16, false)
ACCESS(__tsan_write1, 1, true)
ACCESS(__tsan_write2, 2, true)
ACCESS(__tsan_write4, 4, true)
ACCESS(__tsan_write8, 8, true)
ACCESS(__tsan_write16, 16, true)
ACCESS(__tsan_unaligned_read2, 2, false)
ACCESS(__tsan_unaligned_read4, 4, false)
ACCESS(__tsan_unaligned_read8, 8, false)
ACCESS(__tsan_unaligned_read16, 16, false)
ACCESS(__tsan_unaligned_write2, 2, true)
ACCESS(__tsan_unaligned_write4, 4, true)
ACCESS(__tsan_unaligned_write8, 8, true)
ACCESS(__tsan_unaligned_write16, 16, true)
void __tsan_read_range(void* at, size_t n) { access(at, n, 1, false, "", CALLER); }
void __tsan_write_range(void* at, size_t n) { access(at, n, 1, true, "", CALLER); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}

// The operator's calls of these are renamed (emulated.h): the C library is not looked into.
void* emulated_memcpy(void* to, const void* from, size_t n) {
  access(from, n, 1, false, "memcpy ", CALLER);
  access(to, n, 1, true, "memcpy ", CALLER);
  return memmove(to, from, n);
}
void* emulated_memset(void* to, int value, size_t n) {
  access(to, n, 1, true, "memset ", CALLER);
  return memset(to, value, n);
}
int emulated_memcmp(const void* one, const void* other, size_t n) {
  access(one, n, 1, false, "memcmp ", CALLER);
  access(other, n, 1, false, "memcmp ", CALLER);
  return memcmp(one, other, n);
}
}

int main(int count, char** words) {
  shared = static_cast<Shared*>(memory(sizeof(Shared), MAP_SHARED));
  kernel = words[1];
  emulated_kernels(kernels);
  folder = words[2];
  stop = words[4][0] == '1';
  seconds = static_cast<unsigned>(std::stoul(words[5]));
  std::vector<int> order;
  for (const std::string& each : split(words[6], ',')) order.push_back(std::stoi(each));
  cores = static_cast<int>(order.size());
  for (int i = 7; i < count; ++i) inputs.push_back(read_input(words[i], i - 7));
  alarm(seconds);  // a shape function may not end either
  make_result();
  alarm(0);
  make_pool(std::stoul(words[3]));
  for (int each : order) {
    fflush(stdout);
    const pid_t child = fork();
    if (child < 0) {
      perror("fork");
      return 1;
    }
    if (!child) run_core(each);
    int status = 0;
    waitpid(child, &status, 0);
    core = each;
    if (WIFSIGNALED(status))
      refuse("crash", nullptr, "was ended by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != REFUSED)
      refuse("crash", nullptr, "ended with exit status %d", WEXITSTATUS(status));
    core = -1;
    if (stop && shared->findings) break;
  }
  const size_t n = result->numel();
  const size_t missing = std::count(written, written + n, 0);
  if (missing && !(stop && shared->findings)) {
    const size_t first = std::find(written, written + n, 0) - written;
    stop = false;
    refuse("unwritten", nullptr, "no core writes element %s of the result, and %zu of %zu in all are missing",
           place_of(first).c_str(), missing, n);
  }
  report();
  return 0;
}
