// SPDX-License-Identifier: Apache-2.0
#pragma once

// A slab of the resource below that an adaptor wants to know the end of.

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include <vtier/core/config.hpp>
#include <vtier/core/notes.hpp>
#include <vtier/io/engine.hpp>
#include <vtier/memory/slab.hpp>

namespace vtier::detail {

/// A slab that calls a function once it has been given back.
template <class End>
class held_slab final : public slab_backing {
 public:
  held_slab(slab inner, End end) : inner_{std::move(inner)}, end_{std::move(end)} {}
  ~held_slab() override {
    inner_.reset();
    end_();
  }
  std::byte* base() override { return inner_->base(); }
  void commit(std::size_t end_bytes) override { inner_->commit(end_bytes); }
  file_place locate(std::size_t offset_bytes) const override { return inner_->locate(offset_bytes); }
  std::optional<io::engine> make_engine(notes& remarks) const override { return inner_->make_engine(remarks); }

 private:
  std::optional<slab> inner_;
  End end_;
};

/// Puts the end of a slab into words: `end`, which does not throw, is called after the slab has been given back.
///
/// Errors  std::bad_alloc; then the slab is given back and `end` is not called
template <class End>
[[nodiscard]] slab hold_slab(slab inner, End end) {
  slab_properties properties = inner.properties();
  return {std::move(properties), std::make_unique<held_slab<End>>(std::move(inner), std::move(end))};
}

}  // namespace vtier::detail
