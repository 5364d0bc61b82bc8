// SPDX-License-Identifier: Apache-2.0
#pragma once

// Moving exactly so many bytes through a file engine while the caller waits.
//
// For loaders and tests, which have nothing else to do meanwhile; the runtime has `transfer/`. Each part of a transfer
// is checked by itself: a sum over parts hides that one of them was short.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/io/detail/errno_name.hpp>
#include <vtier/io/file_engine.hpp>

namespace vtier::io {

/// How a blocking transfer is cut.
///
/// Units   bytes
struct blocking_options {
  std::size_t chunk_bytes = std::size_t{1} << 20U;  // rounded up to the alignment
  std::size_t alignment_bytes = 1;                  // of the file: where the rest of a short part may begin
};

namespace detail {

/// One transfer of exactly so many bytes.
template <file_engine Engine>
class exact_transfer {
 public:
  exact_transfer(Engine& on, int descriptor, file_operation operation, std::size_t offset_bytes,
                 std::span<std::byte> memory, std::string_view path, const blocking_options& options)
      : engine_{on},
        descriptor_{descriptor},
        operation_{operation},
        offset_bytes_{offset_bytes},
        memory_{memory},
        path_{path},
        alignment_{options.alignment_bytes} {
    if (!is_power_of_two(alignment_) || options.chunk_bytes == 0) {
      throw usage_error("blocking_options: alignment_bytes must be a power of two and chunk_bytes at least 1, given " +
                        std::to_string(alignment_) + " and " + std::to_string(options.chunk_bytes));
    }
    if (!checked_add(offset_bytes, memory.size())) throw usage_error("a file range ends beyond 64 bits");
    if (on.in_flight() != 0) {
      throw usage_error("a blocking transfer needs an idle engine, there are " + std::to_string(on.in_flight()) +
                        " requests in flight: reap them first");
    }
    chunk_ = align_up((std::min)(options.chunk_bytes, chunk_bytes_max), alignment_);
  }

  /// Runs it; returns when nothing of it is in flight any more, also on error.
  void run() {
    parts_.resize((std::min)(engine_.depth_max(), memory_.size() / chunk_ + 2));
    try {
      while (advance()) {
      }
    } catch (...) {  // the engine itself is broken: memory stays until the kernel is done with it
      settle();
      throw;
    }
    if (error_) throw *error_;
  }

 private:
  // Bytes [first, last) of the transfer; `done` of them from the front have moved.
  struct part {
    std::size_t first = 0;
    std::size_t last = 0;
    std::size_t done = 0;
    std::size_t asked = 0;  // where the request in flight begins
    std::uint64_t tag = 0;  // of the request in flight; 0: none
    std::size_t interruptions = 0;
  };

  static constexpr std::size_t chunk_bytes_max = std::size_t{1} << 40U;
  static constexpr std::size_t interruptions_max = 10'000;
  static constexpr int refusals_max = 10'000;
  static constexpr std::int64_t wait_ns = 1'000'000'000;
  static constexpr std::int64_t refused_wait_ns = 1'000'000;

  [[nodiscard]] static bool complete(const part& p) noexcept { return p.first + p.done == p.last; }

  // One round: fill the depth, wait, take completions. False when all is done.
  [[nodiscard]] bool advance() {
    bool refused = false;
    for (part& p : parts_) {
      if (refused || error_) break;
      if (p.tag == 0 && (!complete(p) || begin(p))) refused = !submit(p);
    }
    if (engine_.in_flight() == 0) {
      if (!refused) return false;
      if (++refusals_ > refusals_max) {
        throw io_error(EBUSY, text(0, memory_.size(), 0) + ": the file engine takes no requests (EBUSY)");
      }
      engine_.wait(refused_wait_ns);
      return true;
    }
    refusals_ = 0;
    engine_.wait(wait_ns);
    take();
    return true;
  }

  // The next part of the transfer; its end is aligned, so that the one after it begins aligned.
  [[nodiscard]] bool begin(part& p) noexcept {
    if (next_ == memory_.size()) return false;
    const std::size_t end = align_down(offset_bytes_ + next_, alignment_) - offset_bytes_ + chunk_;
    p = {};
    p.first = next_;
    p.last = (std::min)(end, memory_.size());
    next_ = p.last;
    return true;
  }

  [[nodiscard]] bool submit(part& p) {
    const std::size_t reached = offset_bytes_ + p.first + p.done;
    const std::size_t from = (std::max)(align_down(reached, alignment_), offset_bytes_ + p.first);
    file_request request;
    request.descriptor = descriptor_;
    request.operation = operation_;
    request.offset_bytes = from;
    request.memory = memory_.subspan(from - offset_bytes_, p.last - (from - offset_bytes_));
    request.tag = tag_ + 1;
    if (!engine_.try_submit(request)) return false;
    p.tag = ++tag_;
    p.asked = from - offset_bytes_ - p.first;
    return true;
  }

  void take() {
    std::array<file_completion, 64> completions;
    for (;;) {
      const std::size_t count = engine_.reap(completions);
      for (std::size_t i = 0; i < count; ++i) account(completions[i]);
      if (count < completions.size()) return;
    }
  }

  void account(const file_completion& completion) {
    const auto at = std::find_if(parts_.begin(), parts_.end(),
                                 [&](const part& p) { return p.tag != 0 && p.tag == completion.tag; });
    if (at == parts_.end()) return;  // somebody else's: counted for no part
    part& p = *at;
    p.tag = 0;
    const std::size_t wanted = p.last - p.first;
    if (completion.result == -EINTR || completion.result == -EAGAIN) {
      if (++p.interruptions > interruptions_max) fail(p, static_cast<int>(-completion.result), wanted, "without end");
      return;
    }
    if (completion.result < 0) return fail(p, static_cast<int>(-completion.result), wanted, "");
    const std::size_t reached = p.asked + static_cast<std::size_t>(completion.result);
    if (reached > wanted) return fail(p, EIO, wanted, "the engine reports more than was asked");
    if (reached <= p.done) {
      const bool reading = operation_ == file_operation::read;
      return fail(p, reading ? ENODATA : EIO, wanted, reading ? "the file ends there" : "the file takes no more");
    }
    p.done = reached;
    p.interruptions = 0;
  }

  // The first error stays; the transfer runs dry before it is thrown.
  void fail(const part& p, int error_number, std::size_t wanted, const char* remark) {
    if (error_) return;
    std::string message = text(p.first, wanted, p.done) + " (" + errno_name(error_number) + ")";
    if (*remark != '\0') message += std::string("; ") + remark;
    error_.emplace(error_number, message);
  }

  [[nodiscard]] std::string text(std::size_t first, std::size_t wanted, std::size_t got) const {
    return std::string(operation_ == file_operation::read ? "cannot read " : "cannot write ") + path_text(path_) +
           " at offset " + std::to_string(offset_bytes_ + first) + ": wanted " + std::to_string(wanted) +
           " bytes, got " + std::to_string(got);
  }

  void settle() noexcept {
    try {
      std::array<file_completion, 64> ignored;
      while (engine_.in_flight() > 0) {
        engine_.wait(wait_ns);
        static_cast<void>(engine_.reap(ignored));
      }
    } catch (...) {  // the first exception is the one to tell
    }
  }

  Engine& engine_;
  int descriptor_;
  file_operation operation_;
  std::size_t offset_bytes_;
  std::span<std::byte> memory_;
  std::string_view path_;
  std::size_t alignment_;
  std::size_t chunk_ = 0;
  std::size_t next_ = 0;  // where the next part begins
  std::uint64_t tag_ = 0;
  int refusals_ = 0;
  std::vector<part> parts_;
  std::optional<io_error> error_;
};

}  // namespace detail

/// Reads exactly target.size() bytes at an offset; blocks until they are there.
///
/// Units   bytes
/// Needs   an engine with nothing in flight; on a direct file, offset, size and memory aligned
/// Gives   nothing of the transfer is in flight afterwards, also on error
/// Errors  io_error that names path, offset, wanted and got: the errno of the transfer, ENODATA where the file ends
///         before; usage_error for an engine in use or options that cannot work
/// Threads as the engine: one at a time
/// Cost    ceil(size / chunk_bytes) requests and one for each short transfer; one allocation
template <file_engine Engine>
void read_exact(Engine& engine, int descriptor, std::size_t offset_bytes, std::span<std::byte> target,
                std::string_view path, const blocking_options& options = {}) {
  detail::exact_transfer<Engine>{engine, descriptor, file_operation::read, offset_bytes, target, path, options}.run();
}

/// Writes exactly source.size() bytes at an offset; blocks until the system has taken them.
///
/// Units   bytes
/// Needs   an engine with nothing in flight; on a direct file, offset, size and memory aligned
/// Gives   nothing of the transfer is in flight afterwards, also on error
/// Errors  io_error that names path, offset, wanted and got: the errno of the transfer, EIO where a write makes no
///         progress; usage_error for an engine in use or options that cannot work
/// Threads as the engine: one at a time
/// Cost    ceil(size / chunk_bytes) requests and one for each short transfer; one allocation
template <file_engine Engine>
void write_exact(Engine& engine, int descriptor, std::size_t offset_bytes, std::span<const std::byte> source,
                 std::string_view path, const blocking_options& options = {}) {
  // A request's memory is not const because reads fill it; a write only looks.
  const std::span<std::byte> memory{const_cast<std::byte*>(source.data()), source.size()};
  detail::exact_transfer<Engine>{engine, descriptor, file_operation::write, offset_bytes, memory, path, options}.run();
}

}  // namespace vtier::io
