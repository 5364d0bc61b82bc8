// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every limit of a hierarchy, in one struct, checked together when the hierarchy is made.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/policy/placement.hpp>
#include <vtier/policy/step_trace.hpp>

namespace vtier {

/// When room is made in a tier before anybody asks for it.
///
/// Units   shares of what staging and reservations leave of the tier's budget
struct watermarks {
  double high = 1.0;  // above it, tensors that nobody uses leave in the background; 1: never
  double low = 1.0;   // until no more than this is used
};

/// Limits and choices of a hierarchy; the defaults are for a training job.
struct options {
  /// Staging buffers between device and files, in bytes; taken from the budget of the first tier in host memory. 0: an
  /// eighth of that tier, at most 32 MiB.
  std::size_t staging_budget = 0;
  /// The largest piece of a transfer from or to files, in bytes.
  std::size_t chunk_bytes_max = 2_MiB;
  /// How many prefetches may wait, and as many evictions; those that can wait longest are dropped for more urgent ones.
  std::size_t prefetch_count_max = 256;
  /// How many bytes the prefetches that wait may want together; one of any size may. 0: half of the first tier.
  std::size_t prefetch_bytes_max = 0;
  /// How many bytes of prefetches from files may be on their way at once, so that a more urgent one need not wait
  /// behind more than these; one of any size may.
  std::size_t prefetch_flight_bytes_max = 64_MiB;
  /// How much of a tier may hold prefetched bytes that nobody has used yet.
  double prefetch_share_max = 0.5;
  /// How much of each tier in host memory is kept free or clean by writing to files ahead of need. 0: only on need.
  double clean_share = 0.25;
  /// Watermarks by tier, the fastest first; tiers without an entry have none. The default is none: evictions from a
  /// device into memory wait for nobody, and a copy that is not made costs least. They are for tiers above files, where
  /// whoever needs room would wait for a write.
  std::vector<vtier::watermarks> watermarks;
  /// Whether a thread of the hierarchy's own moves things between calls. Without it they move during calls only.
  bool progress_thread = true;
  /// Where that thread runs: CPU numbers of the system; empty: on the CPUs of the NUMA node that the first tier in host
  /// memory is bound to, or anywhere where it is bound to none.
  std::vector<unsigned> progress_cpus;
  /// Whether steps are recorded and later ones follow a plan made from that: where the device times its events.
  bool plan_steps = true;
  /// How fast bytes cross each boundary between two tiers, the fastest tiers first. Empty: as measured in the recorded
  /// step.
  std::vector<vtier::link_rates> links;
  /// How many events the timeline keeps, 64 bytes of host memory each; the oldest go first. 0: none,
  /// and nothing is recorded.
  std::size_t timeline_events_max = 0;
  /// In which tiers tensors may live, by role.
  placement place;
  /// Called with what a destructor or a background transfer could not throw; it is in the report too. It is called
  /// under the hierarchy's lock: it must not call back and not throw.
  std::function<void(const std::string&)> on_error;

  /// Refuses values that cannot work.
  ///
  /// Errors  usage_error that names the field
  void check() const {
    if (chunk_bytes_max < 4_KiB) throw usage_error("options.chunk_bytes_max must be at least 4 KiB");
    if (prefetch_count_max == 0) throw usage_error("options.prefetch_count_max must be at least 1");
    if (prefetch_flight_bytes_max == 0) throw usage_error("options.prefetch_flight_bytes_max must be at least 1");
    if (!(prefetch_share_max > 0.0 && prefetch_share_max <= 1.0)) {
      throw usage_error("options.prefetch_share_max must be above 0 and at most 1");
    }
    for (const auto& w : watermarks) {
      if (!(w.low > 0.0 && w.low <= w.high && w.high <= 1.0)) {
        throw usage_error("options.watermarks needs 0 < low <= high <= 1");
      }
    }
    if (timeline_events_max > 16'777'216) throw usage_error("options.timeline_events_max must be at most 16777216");
    if (!(clean_share >= 0.0 && clean_share <= 1.0)) throw usage_error("options.clean_share must be between 0 and 1");
  }
};

}  // namespace vtier
