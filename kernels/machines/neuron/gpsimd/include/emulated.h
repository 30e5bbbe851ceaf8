// Before the operator's own headers: calls of these are checked as its loads and stores are, and so
// are the calls that the standard library makes of the compiler's own.
#pragma once

#include <cstddef>

extern "C" {
void* memcpy(void*, const void*, std::size_t) noexcept __asm__("emulated_memcpy");
void* memmove(void*, const void*, std::size_t) noexcept __asm__("emulated_memcpy");
void* memset(void*, int, std::size_t) noexcept __asm__("emulated_memset");
int memcmp(const void*, const void*, std::size_t) noexcept __asm__("emulated_memcmp");
}
#define __builtin_memcpy memcpy
#define __builtin_memmove memmove
#define __builtin_memset memset
#define __builtin_memcmp memcmp
