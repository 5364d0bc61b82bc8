// SPDX-License-Identifier: Apache-2.0
#pragma once

// Memory in the files of a simulated drive: the slowest tier of a hierarchy under test.

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/notes.hpp>
#include <vtier/io/engine.hpp>
#include <vtier/io/sim.hpp>
#include <vtier/memory/budget.hpp>
#include <vtier/memory/detail/alignment.hpp>
#include <vtier/memory/resource.hpp>

namespace vtier::sim {

/// Limits of a `file` resource.
struct file_options {
  std::size_t budget = 0;     // bytes
  std::string name = "file";  // in messages and reports
};

/// Memory in files of a simulated drive; `mapped_file` is what it stands for.
///
/// Units   bytes; whole blocks of the drive's alignment are charged to the budget
/// Errors  out_of_memory from the budget; io_error from the drive
/// Threads one at a time, the world's
class file {
 public:
  static constexpr memory_kind kind = memory_kind::file;

  file(drive on, const file_options& options) : state_{std::make_shared<state>(std::move(on), options)} {}

  [[nodiscard]] void* allocate(std::size_t size_bytes, std::size_t alignment_bytes) const {
    vtier::detail::check_alignment(name(), alignment_bytes);
    if (alignment_bytes > 4096) {
      throw usage_error(name() + ": a mapping is aligned to 4096 bytes, asked " + std::to_string(alignment_bytes));
    }
    if (size_bytes == 0) return nullptr;
    const auto charged = checked_align_up(size_bytes, state_->granule());
    if (!charged || !state_->limit.try_take(*charged)) throw state_->limit.exceeded(size_bytes);
    try {
      const owned_file made{state_->on, *charged};
      state_->on.reserve(made.descriptor, *charged);
      void* const place = state_->on.bytes(made.descriptor);
      state_->given.emplace(place, std::exchange(made.descriptor, 0));
      return place;
    } catch (...) {
      state_->limit.give_back(*charged);
      throw;
    }
  }

  void deallocate(void* pointer, std::size_t size_bytes, std::size_t /*alignment_bytes*/) const noexcept {
    if (pointer == nullptr) return;
    const auto at = state_->given.find(pointer);
    VTIER_ASSERT(at != state_->given.end(), "memory was given back that a simulated file did not give");
    state_->on.close(at->second);
    state_->given.erase(at);
    state_->limit.give_back(align_up(size_bytes, state_->granule()));
  }

  /// Gives the rest of the budget as one file; space is reserved by slab::commit.
  [[nodiscard]] slab make_slab() const {
    const std::size_t rest = state_->limit.take_rest();
    const std::size_t size = align_down(rest, state_->granule());
    std::unique_ptr<backing> owner;
    try {
      if (size == 0) throw usage_error(name() + ": nothing is left of its budget");
      owner = std::make_unique<backing>(state_, rest);
    } catch (...) {
      state_->limit.give_back(rest);
      throw;
    }
    slab_properties properties;
    properties.name = name();
    properties.kind = kind;
    properties.size_bytes = size;
    properties.alignment_bytes = state_->granule();
    properties.offset_alignment_bytes = state_->on.options().offset_alignment_bytes;
    properties.memory_alignment_bytes = state_->on.options().memory_alignment_bytes;
    properties.lazy = true;
    properties.place = state_->on.name();
    return {std::move(properties), std::move(owner)};
  }

  [[nodiscard]] const std::string& name() const noexcept { return state_->limit.name(); }
  [[nodiscard]] std::size_t free_bytes() const noexcept { return state_->limit.free_bytes(); }
  [[nodiscard]] std::size_t budget_bytes() const noexcept { return state_->limit.limit_bytes(); }
  [[nodiscard]] std::size_t peak_bytes() const noexcept { return state_->limit.peak_bytes(); }
  [[nodiscard]] std::vector<std::string> notes() const { return {}; }

  friend bool operator==(const file& a, const file& b) noexcept { return a.state_ == b.state_; }

 private:
  struct state {
    state(drive d, const file_options& options) : on{std::move(d)}, limit{options.name, options.budget} {}
    [[nodiscard]] std::size_t granule() const noexcept {
      return (std::max)(on.options().offset_alignment_bytes, std::size_t{256});
    }
    drive on;
    budget limit;
    std::map<void*, int> given;
  };

  struct owned_file {
    owned_file(drive d, std::size_t size_bytes) : on{std::move(d)}, descriptor{on.open(size_bytes)} {}
    owned_file(const owned_file&) = delete;
    owned_file& operator=(const owned_file&) = delete;
    ~owned_file() {
      if (descriptor != 0) on.close(descriptor);
    }
    drive on;
    mutable int descriptor;
  };

  struct backing final : vtier::detail::slab_backing {
    backing(std::shared_ptr<state> from, std::size_t size)
        : owner{std::move(from)}, size_bytes{size}, content{owner->on, size} {}
    ~backing() override { owner->limit.give_back(size_bytes); }
    std::byte* base() override { return content.on.bytes(content.descriptor); }
    void commit(std::size_t end_bytes) override { content.on.reserve(content.descriptor, end_bytes); }
    void shrink(std::size_t end_bytes) noexcept override { content.on.release(content.descriptor, end_bytes); }
    file_place locate(std::size_t offset_bytes) const override {
      return {content.descriptor, offset_bytes, size_bytes - offset_bytes};
    }
    std::optional<io::engine> make_engine(vtier::notes& /*remarks*/) const override {
      return io::engine{engine{content.on}};
    }

    std::shared_ptr<state> owner;
    std::size_t size_bytes;
    owned_file content;
  };

  std::shared_ptr<state> state_;
};

static_assert(host_resource<sim::file>);

}  // namespace vtier::sim
