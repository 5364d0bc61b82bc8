// SPDX-License-Identifier: Apache-2.0
#pragma once

// The limit of file traffic: the plainest fast loop over one preallocated file, by the kernel's interface alone.
//
// Direct I/O, requests of 1 MiB, eight at a time, from and to huge pages: through io_uring with a registered buffer
// where that is allowed, else by eight threads. What the library moves in the same run is put beside it.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <vtier/core/config.hpp>

#if VTIER_HAS_URING
#include <liburing.h>
#include <sys/uio.h>
#endif

namespace vtier::bench {

/// A file without a name as long as a piece of memory, written from it and read into it as a whole.
///
/// Needs   memory that stays, aligned to pages, a multiple of 1 MiB
/// Errors  std::system_error
/// Threads the one that made it
class raw_file {
 public:
  static constexpr std::size_t request_bytes = std::size_t{1} << 20U;
  static constexpr unsigned depth = 8;

  raw_file(const std::filesystem::path& directory, std::span<std::byte> memory) : memory_{memory} {
    open(directory);
#if VTIER_HAS_URING
    start_ring();
#endif
  }
  raw_file(const raw_file&) = delete;
  raw_file& operator=(const raw_file&) = delete;
  ~raw_file() {
#if VTIER_HAS_URING
    if (ring_) ::io_uring_queue_exit(&*ring_);
#endif
    ::close(descriptor_);
  }

  void write() { move(true); }
  void read() { move(false); }

  /// How the bytes move: "io_uring, direct".
  [[nodiscard]] std::string how() const {
    std::string text = "8 threads";
#if VTIER_HAS_URING
    if (ring_) text = fixed_ ? "io_uring with a registered buffer" : "io_uring";
#endif
    return text + (direct_ ? ", direct" : ", through the page cache");
  }

 private:
  [[noreturn]] static void fail(int error, const std::string& what) {
    throw std::system_error(error, std::generic_category(), "the raw loop: " + what);
  }

  void open(const std::filesystem::path& directory) {
    for (const int direct : {O_DIRECT, 0}) {
      descriptor_ = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | direct, 0600);
      if (descriptor_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT)) {
        std::string name = (directory / "vtier-bench-XXXXXX").string();
        descriptor_ = ::mkostemp(name.data(), O_CLOEXEC | direct);
        if (descriptor_ >= 0) ::unlink(name.c_str());
      }
      direct_ = direct != 0;
      if (descriptor_ >= 0) break;
      if (errno != EINVAL) fail(errno, "a file in " + directory.string());
    }
    if (descriptor_ < 0) fail(EINVAL, "a file in " + directory.string());
    const auto size = static_cast<::off_t>(memory_.size());
    if (::fallocate(descriptor_, 0, 0, size) != 0 && (errno != EOPNOTSUPP || ::ftruncate(descriptor_, size) != 0)) {
      const int error = errno;
      ::close(descriptor_);
      fail(error, "room for " + std::to_string(memory_.size()) + " bytes in " + directory.string());
    }
  }

  [[nodiscard]] std::span<std::byte> piece(std::size_t offset) const {
    return memory_.subspan(offset, (std::min)(request_bytes, memory_.size() - offset));
  }

#if VTIER_HAS_URING
  void start_ring() {
    ring_.emplace();
    int refused = -EINVAL;
#if defined(IORING_SETUP_SINGLE_ISSUER) && defined(IORING_SETUP_DEFER_TASKRUN)
    refused = ::io_uring_queue_init(depth, &*ring_, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
#endif
    if (refused == -EINVAL) refused = ::io_uring_queue_init(depth, &*ring_, 0);
    if (refused != 0) {
      ring_.reset();
      return;
    }
    const ::iovec whole{memory_.data(), memory_.size()};
    fixed_ = ::io_uring_register_buffers(&*ring_, &whole, 1) == 0;
  }

  void submit(bool writes, std::size_t offset) {
    ::io_uring_sqe* const entry = ::io_uring_get_sqe(&*ring_);
    if (entry == nullptr) fail(EBUSY, "no entry in the ring");
    const auto part = piece(offset);
    const auto size = static_cast<unsigned>(part.size());
    if (fixed_) {
      writes ? ::io_uring_prep_write_fixed(entry, descriptor_, part.data(), size, offset, 0)
             : ::io_uring_prep_read_fixed(entry, descriptor_, part.data(), size, offset, 0);
    } else {
      writes ? ::io_uring_prep_write(entry, descriptor_, part.data(), size, offset)
             : ::io_uring_prep_read(entry, descriptor_, part.data(), size, offset);
    }
    ::io_uring_sqe_set_data64(entry, size);
  }

  void move_by_ring(bool writes) {
    std::size_t next = 0;
    unsigned in_flight = 0;
    while (next < memory_.size() || in_flight > 0) {
      for (; in_flight < depth && next < memory_.size(); next += request_bytes, ++in_flight) submit(writes, next);
      const int result = ::io_uring_submit_and_wait(&*ring_, 1);
      if (result < 0 && result != -EINTR) fail(-result, "io_uring_enter");
      ::io_uring_cqe* done = nullptr;
      while (::io_uring_peek_cqe(&*ring_, &done) == 0) {
        const int moved = done->res;
        const std::uint64_t wanted = ::io_uring_cqe_get_data64(done);
        ::io_uring_cqe_seen(&*ring_, done);
        --in_flight;
        if (moved < 0) fail(-moved, "a transfer");
        if (static_cast<std::uint64_t>(moved) != wanted) fail(EIO, "a short transfer");
      }
    }
  }
#endif

  void move(bool writes) {
#if VTIER_HAS_URING
    if (ring_) return move_by_ring(writes);
#endif
    std::atomic<std::size_t> next{0};
    std::atomic<int> error{0};
    const auto work = [&] {
      for (;;) {
        const std::size_t offset = next.fetch_add(request_bytes);
        if (offset >= memory_.size() || error != 0) return;
        const auto part = piece(offset);
        const auto at = static_cast<::off_t>(offset);
        const ::ssize_t moved = writes ? ::pwrite(descriptor_, part.data(), part.size(), at)
                                       : ::pread(descriptor_, part.data(), part.size(), at);
        if (moved < 0 || static_cast<std::size_t>(moved) != part.size()) error = moved < 0 ? errno : EIO;
      }
    };
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < depth; ++i) threads.emplace_back(work);
    threads.clear();
    if (error != 0) fail(error, "a transfer");
  }

  std::span<std::byte> memory_;
  int descriptor_ = -1;
  bool direct_ = false;
#if VTIER_HAS_URING
  std::optional<::io_uring> ring_;
  bool fixed_ = false;
#endif
};

}  // namespace vtier::bench
