// SPDX-License-Identifier: Apache-2.0
#pragma once

// Host pages from the system: huge where they can be, bound before they are touched, locked where that is allowed.
//
// `numa` and `pinned` differ only in what they ask of this file. The order matters and is kept here: map, choose the
// page size, bind, and only then touch or lock, because pages stay on the node of the first touch.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/notes.hpp>
#include <vtier/topology/memory_limit.hpp>
#include <vtier/topology/numa.hpp>
#include <vtier/topology/sysfs.hpp>

namespace vtier::detail {

/// How pages are wanted.
struct page_request {
  std::string name;              // for messages
  std::optional<unsigned> node;  // the system's number; empty: wherever the first touch is
  bool lock = false;             // page-lock; a refusal by the limit is a note unless `require_lock`
  bool require_lock = false;
  std::size_t budget_bytes = 0;  // what may come to be wanted in all, for messages
  system_roots roots{};          // where the kernel shows this process's limits
};

inline constexpr std::size_t huge_page_bytes = std::size_t{2} << 20U;

/// The size of an ordinary page.
inline std::size_t page_bytes() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }

/// The bytes that the kernel says a program can still have; empty where it does not say.
inline std::optional<std::size_t> available_bytes() noexcept {
  const int file = ::open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  char text[512];  // the line stands third
  const ::ssize_t got = ::read(file, text, sizeof text - 1);
  ::close(file);
  text[got > 0 ? got : 0] = '\0';
  const char* const line = std::strstr(text, "MemAvailable:");
  if (line == nullptr) return std::nullopt;
  const unsigned long long kibibytes = std::strtoull(line + std::strlen("MemAvailable:"), nullptr, 10);
  return checked_multiply(kibibytes, 1024U);
}

/// The memory of the machine, in bytes.
inline std::size_t physical_bytes() noexcept {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * page_bytes();
}

/// RLIMIT_MEMLOCK in words.
inline std::string locked_memory_limit() {
  ::rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  return "locked-memory limit " + (limit.rlim_cur == RLIM_INFINITY ? "none" : format_bytes(limit.rlim_cur));
}

/// The size that a request occupies: whole pages.
inline std::size_t pages_size(std::size_t size_bytes) noexcept {
  return checked_align_up(size_bytes, page_bytes()).value_or(0);
}

/// Gives pages back.
inline void unmap_pages(void* pointer, std::size_t size_bytes) noexcept {
  if (pointer != nullptr) ::munmap(pointer, pages_size(size_bytes));
}

/// The error for host memory that cannot be had; `free_max` is what there is at most.
[[nodiscard]] inline out_of_memory no_pages(const page_request& request, std::size_t size_bytes, const std::string& why,
                                            std::size_t free_max = ~std::size_t{0}) {
  return {request.name, size_bytes, (std::min)(available_bytes().value_or(0), free_max),
          request.name + ": asked " + format_bytes(size_bytes) + " of host memory, " + why};
}

/// Refuses what the machine or a control group does not have: it would not fail at once but end the process later, page
/// by page, without a word.
///
/// Errors  out_of_memory that names what is there, and the file that holds the limit
inline void check_pages(std::size_t size_bytes, const page_request& request) {
  const std::size_t wanted = pages_size(size_bytes);
  if (wanted == 0) throw no_pages(request, size_bytes, "which no machine has");
  if (const auto available = available_bytes(); available && wanted > *available) {
    throw no_pages(request, size_bytes,
                   "the machine has " + format_bytes(*available) + " available of " + format_bytes(physical_bytes()) +
                       (request.lock ? " (" + locked_memory_limit() + ")" : "") + ": lower the budget");
  }
  for (const memory_limit& limit : group_memory_limits(request.roots)) {
    if (wanted <= limit.free_bytes()) continue;
    throw no_pages(request, size_bytes,
                   "this process's group may use " + format_bytes(limit.size_bytes) + " (" + limit.file +
                       ") and uses " + format_bytes(limit.used_bytes) +
                       " of it, and the kernel would end it: lower the budget or raise that limit",
                   limit.free_bytes());
  }
}

/// Maps pages as asked, at the given alignment.
///
/// Units   bytes; exactly whole pages are mapped, no power of two
/// Errors  out_of_memory that names the limit; nothing stays mapped then
inline void* map_pages(std::size_t size_bytes, std::size_t alignment_bytes, const page_request& request,
                       notes& remarks) {
  const std::size_t wanted = pages_size(size_bytes);
  const std::size_t alignment = wanted >= huge_page_bytes && alignment_bytes < huge_page_bytes
                                    ? huge_page_bytes
                                    : (alignment_bytes < page_bytes() ? page_bytes() : alignment_bytes);
  const auto refuse = [&](const std::string& why) { return no_pages(request, size_bytes, why); };
  check_pages(size_bytes, request);
  const auto reserve = checked_add(wanted, alignment - page_bytes());
  if (!reserve) throw refuse("which no machine has");
  void* const raw = ::mmap(nullptr, *reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) throw refuse("the system answered: " + std::generic_category().message(errno));
  std::byte* const first = static_cast<std::byte*>(raw);
  const std::size_t skip = (alignment - (reinterpret_cast<std::uintptr_t>(raw) & (alignment - 1))) & (alignment - 1);
  if (skip > 0) ::munmap(first, skip);
  if (*reserve - skip > wanted) ::munmap(first + skip + wanted, *reserve - skip - wanted);
  std::byte* const pointer = first + skip;
  if (wanted >= huge_page_bytes) ::madvise(pointer, wanted, MADV_HUGEPAGE);  // a wish: ordinary pages work too

  if (request.node) {
    if (const int error = bind_pages(pointer, wanted, *request.node); error != 0) {
      if (error == EINVAL) {
        ::munmap(pointer, wanted);
        throw usage_error(request.name + ": NUMA node " + std::to_string(*request.node) +
                          " does not exist here: see vtier::machine::discover().nodes()");
      }
      remarks.say(request.name + ": memory is not bound to NUMA node " + std::to_string(*request.node) + " (" +
                  std::generic_category().message(error) + ")");
    }
  }
  if (request.lock && ::mlock(pointer, wanted) != 0) {
    const int error = errno;
    const std::string why = "page-locking failed (" + std::generic_category().message(error) + ", " +
                            locked_memory_limit() + ", the budget wants " +
                            format_bytes((std::max)(request.budget_bytes, wanted)) +
                            "): raise it with `ulimit -l` or limits.conf";
    if (request.require_lock) {
      ::munmap(pointer, wanted);
      throw refuse(why);
    }
    remarks.say(request.name + ": memory stays unlocked, " + why);
  }
  return pointer;
}

}  // namespace vtier::detail
