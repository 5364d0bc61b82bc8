// SPDX-License-Identifier: Apache-2.0
#include <vtier/runtime/options.hpp>

#include <functional>
#include <limits>
#include <string>

#include "support/catch.hpp"

namespace {

// Whether check() refuses, naming the field.
bool refused(const std::function<void(vtier::options&)>& change, const std::string& field) {
  vtier::options o;
  change(o);
  try {
    o.check();
    return false;
  } catch (const vtier::usage_error& e) {
    return std::string{e.what()}.find("options." + field) != std::string::npos;
  }
}

}  // namespace

TEST_CASE("the defaults are good", "[runtime][options]") {
  CHECK_NOTHROW(vtier::options{}.check());
  vtier::options still;
  still.progress_thread = false;
  CHECK_NOTHROW(still.check());
}

TEST_CASE("each value that cannot work is refused by its name", "[runtime][options]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(refused([](auto& o) { o.chunk_bytes_max = 4095; }, "chunk_bytes_max"));
  CHECK(refused([](auto& o) { o.chunk_bytes_max = 0; }, "chunk_bytes_max"));
  CHECK(refused([](auto& o) { o.prefetch_count_max = 0; }, "prefetch_count_max"));
  CHECK(refused([](auto& o) { o.prefetch_flight_bytes_max = 0; }, "prefetch_flight_bytes_max"));
  for (const double share : {0.0, -0.1, 1.1, nan, infinity}) {
    CAPTURE(share);
    CHECK(refused([&](auto& o) { o.prefetch_share_max = share; }, "prefetch_share_max"));
  }
  for (const vtier::watermarks& w : {vtier::watermarks{0.5, 0.6},
                                     {1.1, 0.5},
                                     {0.5, 0.0},
                                     {0.5, -0.1},
                                     {nan, 0.5},
                                     {0.5, nan},
                                     {infinity, 0.5},
                                     {0.0, 0.0}}) {
    CAPTURE(w.high, w.low);
    CHECK(refused([&](auto& o) { o.watermarks = {{}, w}; }, "watermarks"));
  }
  CHECK(refused([](auto& o) { o.timeline_events_max = 16'777'217; }, "timeline_events_max"));
  for (const double share : {-0.1, 1.1, nan, infinity}) {
    CAPTURE(share);
    CHECK(refused([&](auto& o) { o.clean_share = share; }, "clean_share"));
  }
}

TEST_CASE("the ends of the ranges are good", "[runtime][options]") {
  vtier::options o;
  o.chunk_bytes_max = 4096;
  o.prefetch_count_max = 1;
  o.prefetch_bytes_max = 1;
  o.prefetch_flight_bytes_max = 1;
  o.prefetch_share_max = 1.0;
  o.clean_share = 0.0;
  o.timeline_events_max = 16'777'216;
  CHECK_NOTHROW(o.check());
  o.clean_share = 1.0;
  CHECK_NOTHROW(o.check());
  o.watermarks = {{1.0, 1.0}, {0.5, 0.5}, {1.0, 0.001}};
  CHECK_NOTHROW(o.check());
}
