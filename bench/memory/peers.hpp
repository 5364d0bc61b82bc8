// SPDX-License-Identifier: Apache-2.0
#pragma once

// Other allocators, driven as the library's pool is: those of the C library and of shared libraries that are looked for
// when the bench runs, and the pools of the standard library.
//
// A shared library is opened for itself alone: this program's own malloc stays what it is, and each function that is
// called is shown to come from the library that it is measured for.

#include <dlfcn.h>
#include <malloc.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory_resource>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/child_process.hpp"

namespace vtier::bench {

/// malloc and free of whoever, and how many bytes of address space it says that it holds.
///
/// Threads any
class c_allocator {
 public:
  static constexpr bool touchable = true;

  c_allocator(void* (*malloc_function)(std::size_t), void (*free_function)(void*), std::function<std::size_t()> taken)
      : allocate_{malloc_function},
        deallocate_{free_function},
        taken_{std::move(taken)},
        before_bytes_{taken_ ? taken_() : 0} {}

  [[nodiscard]] void* allocate(std::size_t size_bytes) { return allocate_(size_bytes); }
  void deallocate(void* pointer, std::size_t /*size_bytes*/) { deallocate_(pointer); }
  [[nodiscard]] std::optional<std::size_t> taken_bytes() {
    if (!taken_) return std::nullopt;
    const std::size_t now = taken_();
    return now > before_bytes_ ? now - before_bytes_ : 0;
  }

 private:
  void* (*allocate_)(std::size_t);
  void (*deallocate_)(void*);
  std::function<std::size_t()> taken_;
  std::size_t before_bytes_;  // what this program held already
};

namespace detail {

/// The private writable memory of this process, whether it was touched or not.
///
/// Units   bytes; 0 where the kernel does not say
inline std::size_t writable_bytes() {
  std::ifstream from{"/proc/self/status"};
  for (std::string line; std::getline(from, line);) {
    if (line.rfind("VmData:", 0) == 0) return std::strtoull(line.c_str() + 7, nullptr, 10) * 1024;
  }
  return 0;
}

/// A shared library that stays open.
class library {
 public:
  /// Errors  skipped where none of the names can be opened
  explicit library(const std::vector<std::string>& names) {
    std::string problem;
    for (const auto& name : names) {
      handle_ = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) {
        name_ = name;
        return;
      }
      if (problem.empty()) problem = ::dlerror();
    }
    throw skipped("not here: " + problem);
  }

  /// A function of this library.
  ///
  /// Errors  skipped where there is none of the names, or another library answers
  template <class Function>
  Function* find(const std::vector<std::string>& symbols) const {
    for (const auto& symbol : symbols) {
      void* const found = ::dlsym(handle_, symbol.c_str());
      if (found == nullptr) continue;
      ::Dl_info info{};
      const std::string stem = name_.substr(0, name_.find(".so"));
      if (::dladdr(found, &info) == 0 || std::string{info.dli_fname}.find(stem) == std::string::npos) {
        throw skipped(symbol + " of " + name_ + " comes from elsewhere");
      }
      return reinterpret_cast<Function*>(found);
    }
    throw skipped(name_ + " has no " + symbols.front());
  }

 private:
  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace detail

/// Starts this program again with room for thread-local variables of libraries that are opened late: jemalloc needs
/// more than the loader sets aside. Does nothing the second time, or where it cannot be done.
inline void make_room_for_thread_locals(char** argv) {
  constexpr const char* variable = "GLIBC_TUNABLES";
  const std::string wanted = "glibc.rtld.optional_static_tls=";
  const char* const before = std::getenv(variable);
  const std::string set = before == nullptr ? "" : before;
  if (set.find(wanted) != std::string::npos) return;
  ::setenv(variable, ((set.empty() ? "" : set + ":") + wanted + "16384").c_str(), 1);
  ::execv("/proc/self/exe", argv);
}

/// The C library's malloc. Holds: its arenas and its mappings (mallinfo2).
[[nodiscard]] inline c_allocator glibc_malloc() {
  ::Dl_info info{};
  void* (*const function)(std::size_t) = &std::malloc;
  if (::dladdr(reinterpret_cast<void*>(function), &info) != 0 &&
      std::string{info.dli_fname}.find("libc.so") == std::string::npos) {
    throw skipped(std::string{"malloc of this program is that of "} + info.dli_fname);
  }
  ::malloc_trim(0);  // what this program has freed counts for nobody
  return {&std::malloc, &std::free, [] {
            const auto now = ::mallinfo2();
            return now.arena + now.hblkhd;
          }};
}

/// mimalloc. Holds: the growth of this process's writable memory, used or not, as the kernel counts it (VmData). Its
/// own count of committed bytes does not come down when large blocks go back (2.0.9).
[[nodiscard]] inline c_allocator mimalloc() {
  const detail::library from{{"libmimalloc.so.2", "libmimalloc.so.3", "libmimalloc.so"}};
  return {from.find<void*(std::size_t)>({"mi_malloc"}), from.find<void(void*)>({"mi_free"}), detail::writable_bytes};
}

/// jemalloc. Holds: the extents that it has mapped (stats.mapped), without those it has given back but keeps reserved.
[[nodiscard]] inline c_allocator jemalloc() {
  const detail::library from{{"libjemalloc.so.2", "libjemalloc.so"}};
  auto* const control = from.find<int(const char*, void*, std::size_t*, void*, std::size_t)>({"mallctl", "je_mallctl"});
  return {from.find<void*(std::size_t)>({"malloc", "je_malloc"}), from.find<void(void*)>({"free", "je_free"}),
          [control] {
            std::uint64_t epoch = 1;
            std::size_t size = sizeof epoch;
            control("epoch", &epoch, &size, &epoch, sizeof epoch);
            std::size_t mapped = 0;
            size = sizeof mapped;
            return control("stats.mapped", &mapped, &size, nullptr, 0) == 0 ? mapped : 0;
          }};
}

/// tcmalloc of gperftools. Holds: its heap less the pages that it has given back.
[[nodiscard]] inline c_allocator tcmalloc() {
  const detail::library from{{"libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libtcmalloc.so"}};
  auto* const property = from.find<int(const char*, std::size_t*)>({"MallocExtension_GetNumericProperty"});
  return {
      from.find<void*(std::size_t)>({"tc_malloc", "malloc"}), from.find<void(void*)>({"tc_free", "free"}), [property] {
        std::size_t heap = 0;
        std::size_t unmapped = 0;
        const bool told =
            property("generic.heap_size", &heap) != 0 && property("tcmalloc.pageheap_unmapped_bytes", &unmapped) != 0;
        return told ? heap - unmapped : 0;
      }};
}

/// A pool of the standard library over malloc, with the largest blocks that libstdc++ lets it pool: 4 MiB. By default
/// it would hand all of these workloads through to malloc. Holds: what the pool has asked of the resource below it.
template <class Pool>
class standard_pool {
 public:
  static constexpr bool touchable = true;

  [[nodiscard]] void* allocate(std::size_t size_bytes) {
    try {
      return pool_.allocate(size_bytes, alignof(std::max_align_t));
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  void deallocate(void* pointer, std::size_t size_bytes) {
    pool_.deallocate(pointer, size_bytes, alignof(std::max_align_t));
  }
  [[nodiscard]] std::optional<std::size_t> taken_bytes() { return below_.held_bytes; }

 private:
  struct counted : std::pmr::memory_resource {
    void* do_allocate(std::size_t size_bytes, std::size_t alignment_bytes) override {
      void* const got = std::pmr::new_delete_resource()->allocate(size_bytes, alignment_bytes);
      held_bytes += size_bytes;
      return got;
    }
    void do_deallocate(void* pointer, std::size_t size_bytes, std::size_t alignment_bytes) override {
      std::pmr::new_delete_resource()->deallocate(pointer, size_bytes, alignment_bytes);
      held_bytes -= size_bytes;
    }
    bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }
    std::atomic<std::size_t> held_bytes{0};
  };

  counted below_;
  Pool pool_{std::pmr::pool_options{0, std::size_t{4} << 20U}, &below_};
};

}  // namespace vtier::bench
