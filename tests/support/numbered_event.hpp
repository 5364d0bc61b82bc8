// SPDX-License-Identifier: Apache-2.0
#pragma once

// An event for passive state, which only keeps events and never asks them: a number that can be compared.

#include <vector>

namespace vtier::test {

struct numbered_event {
  int number = 0;
  friend bool operator==(const numbered_event&, const numbered_event&) = default;
};
using numbered_events = std::vector<numbered_event>;

}  // namespace vtier::test
