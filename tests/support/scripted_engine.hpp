// SPDX-License-Identifier: Apache-2.0
#pragma once

// A file engine over plain memory that misbehaves as told: short transfers, errors, interruptions, late and shuffled
// completions. It refuses requests that break its stated alignment, as a strict drive would.

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include <vtier/core/error.hpp>
#include <vtier/core/random_source.hpp>
#include <vtier/io/file_engine.hpp>

namespace vtier::test {

/// What a scripted_engine does; shared with the test, which may change it at any time.
struct engine_script {
  std::vector<std::byte> file;  // the bytes of descriptor 0
  std::size_t depth_max = 4;
  std::size_t bytes_max = ~std::size_t{0};  // more than this is a short transfer
  std::size_t offset_alignment = 1;
  std::size_t memory_alignment = 1;
  std::uint64_t seed = 1;                   // order of completions
  bool held = false;                        // nothing completes while set
  int fail_at = 0;                          // this request, counted from 1, completes with -EIO
  int interrupt_every = 0;                  // every so many requests complete with -EINTR
  bool refuse_every_other = false;          // try_submit says no every second time
  std::size_t taken_max = ~std::size_t{0};  // after so many requests try_submit says no
  bool broken = false;                      // try_submit throws
  std::vector<std::size_t> taken;           // offsets of the requests, in order
  std::size_t refused = 0;
  std::size_t requests = 0;
  std::size_t misaligned = 0;
  std::size_t asked = 0;
};

/// The engine.
class scripted_engine {
 public:
  explicit scripted_engine(std::shared_ptr<engine_script> script) : script_{std::move(script)} {}

  bool try_submit(const file_request& request) {
    if (script_->broken) throw io_error(EBADF, "the engine is broken");
    if (in_flight() >= script_->depth_max || script_->requests >= script_->taken_max ||
        (script_->refuse_every_other && ++script_->asked % 2 == 0)) {
      ++script_->refused;
      return false;
    }
    ++script_->requests;
    script_->taken.push_back(request.offset_bytes);
    const auto address = reinterpret_cast<std::uintptr_t>(request.memory.data());
    if (request.offset_bytes % script_->offset_alignment != 0 ||
        request.memory.size() % script_->offset_alignment != 0 || address % script_->memory_alignment != 0) {
      ++script_->misaligned;
      flying_.push_back({request, -EINVAL});
      return true;
    }
    std::int64_t result = 0;
    if (static_cast<int>(script_->requests) == script_->fail_at) {
      result = -EIO;
    } else if (script_->interrupt_every > 0 &&
               script_->requests % static_cast<std::size_t>(script_->interrupt_every) == 0) {
      result = -EINTR;
    } else {
      const std::size_t end = script_->file.size();
      const std::size_t there = request.offset_bytes < end ? end - request.offset_bytes : 0;
      result = static_cast<std::int64_t>((std::min)({request.memory.size(), script_->bytes_max, there}));
    }
    flying_.push_back({request, result});
    return true;
  }

  std::size_t reap(std::span<file_completion> completions) {
    std::size_t count = 0;
    random_source random{script_->seed++};
    while (!script_->held && count < completions.size() && !flying_.empty()) {
      const auto at = flying_.begin() + static_cast<std::ptrdiff_t>(random.below(flying_.size()));
      if (at->result > 0) {  // data moves at the moment of completion
        std::byte* const place = script_->file.data() + at->request.offset_bytes;
        const auto size = static_cast<std::size_t>(at->result);
        if (at->request.operation == file_operation::read) {
          std::memcpy(at->request.memory.data(), place, size);
        } else {
          std::memcpy(place, at->request.memory.data(), size);
        }
      }
      completions[count++] = {at->request.tag, at->result};
      flying_.erase(at);
    }
    return count;
  }

  void wait(std::int64_t /*timeout_ns*/) {}
  bool register_buffers(std::span<const std::span<std::byte>> /*buffers*/) { return false; }
  [[nodiscard]] std::size_t in_flight() const noexcept { return flying_.size(); }
  [[nodiscard]] std::size_t depth_max() const noexcept { return script_->depth_max; }
  [[nodiscard]] std::string_view name() const noexcept { return "scripted"; }

 private:
  struct flight {
    file_request request;
    std::int64_t result;
  };
  std::shared_ptr<engine_script> script_;
  std::vector<flight> flying_;
};

static_assert(file_engine<scripted_engine>);

}  // namespace vtier::test
