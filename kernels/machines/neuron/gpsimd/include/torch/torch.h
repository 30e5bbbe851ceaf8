// What a custom operator for GpSimd uses of <torch/torch.h>, for a run on a CPU.
//
// Tensors, their factories, the accessor for one core and the TCM accessor, with the signatures of
// AWS's "Custom Operators API Reference Guide". The streaming accessors and the operations on whole
// tensors (torch::exp, ...) are not here: an operator that uses them does not compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

#define EMULATED_INLINE __attribute__((always_inline)) inline

namespace c10 {

enum class ScalarType { Float, Int, Char, Long, Short, Byte };

class IntArrayRef {
 public:
  IntArrayRef(const int64_t* data, size_t size) : data_(data), size_(size) {}
  IntArrayRef(const std::vector<int64_t>& v) : data_(v.data()), size_(v.size()) {}
  IntArrayRef(const std::initializer_list<int64_t>& v) : data_(v.begin()), size_(v.size()) {}
  int64_t operator[](size_t i) const { return data_[i]; }
  size_t size() const { return size_; }
  const int64_t* begin() const { return data_; }
  const int64_t* end() const { return data_ + size_; }
  std::vector<int64_t> vec() const { return {begin(), end()}; }
  bool operator==(const IntArrayRef& other) const { return vec() == other.vec(); }
  bool operator!=(const IntArrayRef& other) const { return !(*this == other); }

 private:
  const int64_t* data_;
  size_t size_;
};

}  // namespace c10

// The machine, in runtime.cpp: it checks every access, and knows the core that asks for it.
namespace emulated {

enum Role { INPUT, OUTPUT, SHAPE, TEMPORARY };

struct Buffer {
  std::vector<int64_t> sizes;
  c10::ScalarType type;
  char* data;  // null for the tensors of a shape function
  Role role;
  int number;  // of an input
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t size : sizes) n *= size;
    return n;
  }
};

Buffer* make(c10::IntArrayRef sizes, c10::ScalarType type);
void fill(Buffer* buffer, double value);
void need_one_core(const char* call);
void open_accessor(const Buffer* buffer, size_t rank, size_t width, char kind);
int64_t place(const Buffer* buffer, size_t axis, int64_t index);
void get(const Buffer* buffer, int64_t index, void* value, size_t width);
void set(Buffer* buffer, int64_t index, const void* value, size_t width);
void tensor_to_tcm(const Buffer* buffer, void* tcm, size_t offset, size_t count, size_t width,
                   char kind);
void tcm_to_tensor(Buffer* buffer, const void* tcm, size_t offset, size_t count, size_t width,
                   char kind);

// What a C++ type holds: a float, a signed or an unsigned whole number.
template <typename T>
constexpr char kind_of() {
  return std::is_floating_point<T>::value ? 'f' : std::is_signed<T>::value ? 'i' : 'u';
}

}  // namespace emulated

namespace torch {

using c10::IntArrayRef;
using c10::ScalarType;
constexpr ScalarType kFloat = ScalarType::Float;
constexpr ScalarType kInt = ScalarType::Int;
constexpr ScalarType kChar = ScalarType::Char;
constexpr ScalarType kLong = ScalarType::Long;
constexpr ScalarType kShort = ScalarType::Short;
constexpr ScalarType kByte = ScalarType::Byte;

// One element of a tensor: reading and writing it goes through the machine.
template <typename T, bool read_only>
class Element {
 public:
  Element(emulated::Buffer* buffer, int64_t index) : buffer_(buffer), index_(index) {}
  EMULATED_INLINE operator T() const {
    T value;
    emulated::get(buffer_, index_, &value, sizeof(T));
    return value;
  }
  EMULATED_INLINE Element& operator=(T value) {
    static_assert(!read_only, "the accessor of a const Tensor is read-only");
    emulated::set(buffer_, index_, &value, sizeof(T));
    return *this;
  }
  EMULATED_INLINE Element& operator=(const Element& other) { return *this = T(other); }
  EMULATED_INLINE Element& operator+=(T value) { return *this = T(*this) + value; }
  EMULATED_INLINE Element& operator-=(T value) { return *this = T(*this) - value; }
  EMULATED_INLINE Element& operator*=(T value) { return *this = T(*this) * value; }
  EMULATED_INLINE Element& operator/=(T value) { return *this = T(*this) / value; }

 private:
  emulated::Buffer* buffer_;
  int64_t index_;
};

template <typename T, size_t N, bool read_only>
class TensorAccessor {
 public:
  TensorAccessor(emulated::Buffer* buffer, int64_t first = 0) : buffer_(buffer), first_(first) {}
  int64_t size(size_t axis) const { return buffer_->sizes[buffer_->sizes.size() - N + axis]; }
  EMULATED_INLINE TensorAccessor<T, N - 1, read_only> operator[](int64_t i) const {
    const size_t axis = buffer_->sizes.size() - N;
    return {buffer_, (first_ + emulated::place(buffer_, axis, i)) * buffer_->sizes[axis + 1]};
  }

 private:
  emulated::Buffer* buffer_;
  int64_t first_;
};

template <typename T, bool read_only>
class TensorAccessor<T, 1, read_only> {
 public:
  TensorAccessor(emulated::Buffer* buffer, int64_t first = 0) : buffer_(buffer), first_(first) {}
  int64_t size(size_t) const { return buffer_->sizes.back(); }
  EMULATED_INLINE Element<T, read_only> operator[](int64_t i) const {
    return {buffer_, first_ + emulated::place(buffer_, buffer_->sizes.size() - 1, i)};
  }

 private:
  emulated::Buffer* buffer_;
  int64_t first_;
};

template <bool read_only>
class TensorTcmAccessor {
 public:
  explicit TensorTcmAccessor(emulated::Buffer* buffer) : buffer_(buffer) {}
  template <typename T>
  EMULATED_INLINE void tensor_to_tcm(T* tcm_ptr, size_t tensor_offset, size_t num_elem) const {
    emulated::tensor_to_tcm(buffer_, tcm_ptr, tensor_offset, num_elem, sizeof(T),
                           emulated::kind_of<T>());
  }
  template <typename T>
  EMULATED_INLINE void tcm_to_tensor(T* tcm_ptr, size_t tensor_offset, size_t num_elem) const {
    static_assert(!read_only, "the accessor of a const Tensor is read-only");
    emulated::tcm_to_tensor(buffer_, tcm_ptr, tensor_offset, num_elem, sizeof(T),
                           emulated::kind_of<T>());
  }

 private:
  emulated::Buffer* buffer_;
};

class Tensor {
 public:
  Tensor() : buffer_(nullptr) {}
  explicit Tensor(emulated::Buffer* buffer) : buffer_(buffer) {}
  IntArrayRef sizes() const { return buffer_->sizes; }
  int64_t size(int64_t axis) const { return buffer_->sizes[axis < 0 ? axis + dim() : axis]; }
  int64_t dim() const { return static_cast<int64_t>(buffer_->sizes.size()); }
  int64_t numel() const { return buffer_->numel(); }
  ScalarType scalar_type() const { return buffer_->type; }

  template <typename T, size_t N>
  EMULATED_INLINE TensorAccessor<T, N, true> accessor() const& {
    emulated::open_accessor(buffer_, N, sizeof(T), emulated::kind_of<T>());
    return {buffer_};
  }
  template <typename T, size_t N>
  EMULATED_INLINE TensorAccessor<T, N, false> accessor() & {
    emulated::open_accessor(buffer_, N, sizeof(T), emulated::kind_of<T>());
    return {buffer_};
  }
  TensorTcmAccessor<true> tcm_accessor() const& { return TensorTcmAccessor<true>(buffer_); }
  TensorTcmAccessor<false> tcm_accessor() & { return TensorTcmAccessor<false>(buffer_); }

  EMULATED_INLINE const Tensor& fill_(double value) const {
    emulated::need_one_core("fill_");
    emulated::fill(buffer_, value);
    return *this;
  }
  emulated::Buffer* buffer() const { return buffer_; }

 private:
  emulated::Buffer* buffer_;
};

inline Tensor empty(IntArrayRef size, ScalarType type) {
  return Tensor(emulated::make(size, type));
}
inline Tensor full(IntArrayRef size, double value, ScalarType type) {
  Tensor tensor = empty(size, type);
  emulated::fill(tensor.buffer(), value);
  return tensor;
}
inline Tensor zeros(IntArrayRef size, ScalarType type) { return full(size, 0, type); }
inline Tensor ones(IntArrayRef size, ScalarType type) { return full(size, 1, type); }

namespace neuron {

// The reference guide shows these two without naming a header for them.
void* tcm_malloc(size_t nbytes);
void tcm_free(void* ptr);

}  // namespace neuron
}  // namespace torch
