// SPDX-License-Identifier: Apache-2.0
// The allocators without a hierarchy: a pool over pinned memory, shared by containers, capped, accounted for, and asked
// to make room; then the places of a whole step, known before it runs.

#include <cstddef>
#include <iostream>
#include <memory_resource>
#include <span>
#include <string>
#include <vector>

#include <vtier/tier.hpp>

using namespace vtier::literals;

int main() {
  // One slab is taken from the system; everything after that is bookkeeping.
  const vtier::pool memory{vtier::pinned{{.budget = 64_MiB}}};

  // Adaptors go around any resource, in any order: this one caps the activations and says who holds what.
  const vtier::tracked account{vtier::limited{memory, {.budget = 16_MiB, .name = "activations"}},
                               {.role = "activation"}};
  using resource = vtier::tracked<vtier::limited<vtier::pool<vtier::pinned>>>;

  std::vector<float, vtier::allocator<float, resource>> hidden(1'000'000, 1.0F, account);
  std::cout << "held for activations: " << vtier::format_bytes(account.usage("activation").live_bytes) << '\n';
  try {
    static_cast<void>(account.allocate(13_MiB, 256));
  } catch (const vtier::out_of_memory& full) {
    std::cout << "refused: " << full.what() << '\n';
  }

  // A cache that gives way when somebody needs its room.
  std::vector<float, vtier::allocator<float, resource>> cache(2'500'000, 0.0F, account);
  const vtier::on_failure patient{account, [&](std::size_t, std::size_t) {
                                    const bool had = !cache.empty();
                                    cache = decltype(cache)(account);
                                    return had;
                                  }};
  void* const urgent = patient.allocate(8_MiB, 256);
  std::cout << "the cache made room: " << (cache.capacity() == 0 ? "yes" : "no") << '\n';
  patient.deallocate(urgent, 8_MiB, 256);

  // Code that takes std::pmr.
  vtier::pmr_resource polymorphic{memory};
  std::pmr::vector<std::pmr::string> names{&polymorphic};
  for (int i = 0; i < 100; ++i) names.push_back("a name that is too long for the string's own buffer");

  // Whoever knows a step in advance needs no allocator in it: (bytes, first moment, moment after the last).
  const std::vector<vtier::lifetime> step{{6_MiB, 0, 3}, {4_MiB, 1, 5}, {6_MiB, 3, 6}, {2_MiB, 0, 6}};
  const auto places = vtier::pack(step);
  std::cout << "the step fits in " << vtier::format_bytes(places.size_bytes) << ", live at most "
            << vtier::format_bytes(places.live_bytes_max) << '\n';

  const bool right = hidden.back() == 1.0F && names.size() == 100 && account.outstanding().size() == 1 &&
                     places.size_bytes == places.live_bytes_max;
  std::cout << "all as it should be: " << (right ? "yes" : "no") << '\n';
  return right ? 0 : 1;
}
