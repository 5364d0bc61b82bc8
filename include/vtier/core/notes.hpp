// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a part does without, said once: a list of short sentences that ends up in the report.
//
// There is no global log. Each resource and each hierarchy owns its notes; the same sentence is kept once however often
// it is said.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>

namespace vtier {

/// A list of remarks, each kept once, in the order of first saying; copies share the list.
///
/// Threads any
/// Cost    one lock and a search of a short list for each say()
class notes {
 public:
  /// The most sentences kept; later new ones are dropped, so that nothing grows without bound.
  static constexpr std::size_t count_max = 256;

  notes() : state_{std::make_shared<state>()} {}
  // No moves: a list that was moved from can still be told something.
  notes(const notes&) = default;
  notes& operator=(const notes&) = default;

  /// Adds a sentence unless it is there already.
  void say(std::string sentence) {
    sentence = one_line(std::move(sentence));
    const std::scoped_lock hold{state_->lock};
    if (state_->list.size() >= count_max) return;
    if (std::find(state_->list.begin(), state_->list.end(), sentence) != state_->list.end()) return;
    state_->list.push_back(std::move(sentence));
  }

  /// All sentences so far.
  [[nodiscard]] std::vector<std::string> list() const {
    const std::scoped_lock hold{state_->lock};
    return state_->list;
  }

 private:
  struct state {
    std::mutex lock;
    std::vector<std::string> list;
  };
  std::shared_ptr<state> state_;
};

}  // namespace vtier
