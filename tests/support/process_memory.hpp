// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the kernel books for this process, and what the machine has.

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <sstream>
#include <string>

namespace vtier::test {

/// A line of /proc/self/status such as "VmLck:", in bytes; 0 where there is none.
inline std::size_t status_bytes(const std::string& key) {
  std::ifstream file{"/proc/self/status"};
  for (std::string word; file >> word;) {
    std::size_t kibibytes = 0;
    if (word == key && file >> kibibytes) return kibibytes * 1024;
  }
  return 0;
}

/// How much of this process's memory its forked children do not get, in bytes.
inline std::size_t kept_from_children_bytes() {
  std::ifstream file{"/proc/self/smaps"};
  std::size_t total = 0;
  std::size_t mapping_bytes = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words{line};
    std::string word;
    words >> word;
    if (word == "Size:" && words >> mapping_bytes) mapping_bytes *= 1024;
    if (word != "VmFlags:") continue;
    while (words >> word) {
      if (word == "dc") total += mapping_bytes;
    }
  }
  return total;
}

/// Whether mlock locks here: under AddressSanitizer it says yes and does nothing.
inline bool locking_is_real() {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const p = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return false;
  const std::size_t before = status_bytes("VmLck:");
  const bool real = ::mlock(p, page) == 0 && status_bytes("VmLck:") == before + page;
  ::munmap(p, page);
  return real;
}

/// The machine's memory.
inline std::size_t physical_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace vtier::test
