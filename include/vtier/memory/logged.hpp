// SPDX-License-Identifier: Apache-2.0
#pragma once

// A line for every allocation: what was asked when, by whom, in which stream. For replay and for reading.
//
// The text is that of allocation_log.hpp. Lines are collected and written by whoever fills the buffer; the others go on
// meanwhile.

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/memory/allocation_log.hpp>
#include <vtier/memory/detail/adaptor.hpp>
#include <vtier/memory/resource.hpp>

namespace vtier {

/// How a `logged` resource writes.
struct logged_options {
  std::size_t buffer_bytes = 65'536;                  // of text, before it is written
  std::function<std::int64_t()> time_us_of_day = {};  // empty: the local time
};

namespace detail {

/// The local time.
///
/// Units   microseconds since midnight
[[nodiscard]] inline std::int64_t local_time_us() noexcept {
  const std::int64_t since =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  const std::time_t seconds = since / 1'000'000;
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  return ((std::int64_t{parts.tm_hour} * 60 + parts.tm_min) * 60 + parts.tm_sec) * 1'000'000 + since % 1'000'000;
}

/// The buffer in front of a stream of text.
class log_writer {
 public:
  log_writer(std::ostream& out, logged_options options) : out_{&out}, options_{std::move(options)} { begin(); }
  log_writer(const std::string& path, logged_options options)
      : file_{path, std::ios::trunc}, out_{&file_}, options_{std::move(options)} {
    if (!file_) {
      const int error = errno == 0 ? EIO : errno;
      throw io_error(error, path + ": the allocation log cannot be opened");
    }
    begin();
  }
  log_writer(const log_writer&) = delete;
  log_writer& operator=(const log_writer&) = delete;
  ~log_writer() { flush(); }

  /// Adds a line; one that there is no memory for is counted as lost.
  void add(allocation_action action, const void* pointer, std::size_t size_bytes, std::uint64_t stream) noexcept {
    bool is_full = false;
    try {
      allocation_record record;
      record.thread = static_cast<std::uint64_t>(::gettid());
      record.action = action;
      record.pointer = reinterpret_cast<std::uintptr_t>(pointer);
      record.size_bytes = size_bytes;
      record.stream = stream;
      const std::scoped_lock hold{lock_};
      record.time_us = options_.time_us_of_day ? options_.time_us_of_day() : local_time_us();
      const std::size_t before = text_.size();
      try {
        append_allocation_record(text_, record);
      } catch (...) {
        text_.resize(before);
        ++lost_;
      }
      is_full = text_.size() >= options_.buffer_bytes;
    } catch (...) {
      const std::scoped_lock hold{lock_};
      ++lost_;
    }
    if (!is_full) return;
    const std::unique_lock writing{writing_, std::try_to_lock};
    if (writing) write();
  }

  void flush() noexcept {
    const std::scoped_lock writing{writing_};
    write();
    try {
      out_->flush();
    } catch (...) {  // of a stream that was told to throw; notes() says what is missing
    }
  }

  [[nodiscard]] std::vector<std::string> complaints() const {
    std::vector<std::string> list;
    const std::scoped_lock hold{lock_};
    if (lost_ > 0) list.push_back("the allocation log lost " + std::to_string(lost_) + " lines for want of memory");
    if (failed_) list.emplace_back("the allocation log is not complete: writing it has failed");
    return list;
  }

 private:
  void begin() {
    text_.reserve(options_.buffer_bytes + 256);
    text_ += allocation_log_header;
    text_ += '\n';
  }

  // With `writing_` held: chunks are written in the order in which they were taken.
  void write() noexcept {
    chunk_.clear();
    {
      const std::scoped_lock hold{lock_};
      chunk_.swap(text_);
    }
    bool failed = false;
    try {
      failed = !out_->write(chunk_.data(), static_cast<std::streamsize>(chunk_.size()));
    } catch (...) {
      failed = true;
    }
    if (!failed) return;
    const std::scoped_lock hold{lock_};
    failed_ = true;
  }

  std::ofstream file_;
  std::ostream* out_;
  logged_options options_;
  std::mutex writing_;
  std::string chunk_;
  mutable std::mutex lock_;
  std::string text_;
  std::size_t lost_ = 0;
  bool failed_ = false;
};

/// Numbers for streams: their own handle where they have one, else 1, 2, ... in the order of first use.
template <class Stream>
class stream_numbers {
 public:
  [[nodiscard]] std::uint64_t of(const Stream& stream) noexcept {
    if constexpr (std::is_convertible_v<const Stream&, const void*>) {
      const void* const handle = stream;
      return reinterpret_cast<std::uintptr_t>(handle);
    } else {
      const std::scoped_lock hold{lock_};
      std::size_t i = 0;
      while (i < seen_.size() && !(seen_[i] == stream)) ++i;
      try {
        if (i == seen_.size() && i < count_max) seen_.push_back(stream);
      } catch (...) {  // it gets its number the next time
      }
      return i + 1;
    }
  }

 private:
  static constexpr std::size_t count_max = 1024;  // those beyond share a number
  std::mutex lock_;
  std::vector<Stream> seen_;
};

template <resource Upstream>
struct logged_state {
  template <class Target>
  logged_state(Upstream from, Target& target, logged_options options)
      : upstream{std::move(from)}, writer{target, std::move(options)} {}
  Upstream upstream;
  log_writer writer;
  stream_numbers<typename stream_names<Upstream>::or_none> streams;
};

}  // namespace detail

/// A resource that writes down every allocation, free and refusal as RMM does.
///
/// Needs   a stream of text that outlives all handles, or the path of a file, which is emptied
/// Gives   a resource; a file or stream that is complete after flush() or the end of the last handle. Zero bytes, null
///         pointers and slabs are not written down. Lines that could not be written are told by notes()
/// Errors  io_error from the constructor for a path that cannot be opened; else whatever the resource below says
/// Threads any, where the resource below allows it; a free stands in the log before the address can be given again
/// Cost    two short locks and the text of a line; whoever fills the buffer writes it
template <resource Upstream>
class logged : public detail::adaptor<logged<Upstream>, Upstream, detail::logged_state<Upstream>> {
  using state_type = detail::logged_state<Upstream>;
  using base = detail::adaptor<logged<Upstream>, Upstream, state_type>;

 public:
  logged(Upstream upstream, std::ostream& out, logged_options options = {})
      : base{std::make_shared<state_type>(std::move(upstream), out, std::move(options))} {}
  logged(Upstream upstream, const std::string& path, logged_options options = {})
      : base{std::make_shared<state_type>(std::move(upstream), path, std::move(options))} {}

  /// Writes what is in the buffer.
  void flush() const noexcept { this->state().writer.flush(); }

  [[nodiscard]] std::vector<std::string> notes() const {
    auto list = this->upstream().notes();
    for (auto& complaint : this->state().writer.complaints()) list.push_back(std::move(complaint));
    return list;
  }

 private:
  friend base;

  template <class Order>
  [[nodiscard]] void* give(std::size_t size_bytes, std::size_t alignment_bytes, const Order& order) const {
    void* pointer = nullptr;
    try {
      pointer = order.allocate(size_bytes, alignment_bytes);
    } catch (...) {
      this->state().writer.add(allocation_action::allocate_failure, nullptr, size_bytes, number(order));
      throw;
    }
    this->state().writer.add(allocation_action::allocate, pointer, size_bytes, number(order));
    return pointer;
  }

  template <class Order>
  void take_back(void* pointer, std::size_t size_bytes, std::size_t alignment_bytes,
                 const Order& order) const noexcept {
    this->state().writer.add(allocation_action::free, pointer, size_bytes, number(order));
    order.deallocate(pointer, size_bytes, alignment_bytes);
  }

  [[nodiscard]] std::uint64_t number(const detail::host_order<Upstream>&) const noexcept { return 0; }
  [[nodiscard]] std::uint64_t number(const detail::stream_order<Upstream>& order) const noexcept {
    return this->state().streams.of(order.stream);
  }
};

}  // namespace vtier
