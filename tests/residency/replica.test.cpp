// SPDX-License-Identifier: Apache-2.0
#include <vtier/residency/replica.hpp>

#include <functional>
#include <string>

#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/numbered_event.hpp"

namespace {

using replica = vtier::replica<vtier::test::numbered_event>;
using events = vtier::test::numbered_events;
using vtier::replica_state;

replica placed() {
  replica r;
  r.place(512, 256, events{{1}});
  return r;
}
replica filling() {
  replica r = placed();
  r.begin_fill(4);
  return r;
}

bool forbidden(replica r, const std::function<void(replica&)>& change, const std::string& words) {
  return vtier::test::in_child([&] { change(r); }).asserted(words);
}

}  // namespace

TEST_CASE("a replica has no place until it is given one", "[residency][replica]") {
  replica r;
  CHECK(r.absent());
  CHECK_FALSE(r.idle());
  r.place(512, 256, events{{1}});
  CHECK(r.resident());
  CHECK(r.idle());
  CHECK(r.offset_bytes == 512);
  CHECK(r.size_bytes == 256);
  CHECK(r.version == 0);  // a place, no content
  CHECK(r.uses() == events{{1}});
}

TEST_CASE("a fill brings its version when it ends well", "[residency][replica]") {
  replica r = filling();
  CHECK(r.filling());
  CHECK_FALSE(r.resident());
  CHECK(r.version == 0);
  r.finish_fill(events{{2}, {3}});
  CHECK(r.resident());
  CHECK(r.version == 4);
  CHECK(r.written == events{{2}, {3}});
  CHECK(r.readers.empty());
}

TEST_CASE("a fill that was abandoned leaves a place without content", "[residency][replica]") {
  replica r = filling();
  r.abandon_fill(events{{2}});
  CHECK(r.resident());
  CHECK(r.version == 0);
  CHECK(r.uses() == events{{2}});
  CHECK(r.size_bytes == 256);
}

TEST_CASE("a fill over old content takes that away at once", "[residency][replica]") {
  replica r = placed();
  r.fill_in_order(3, events{{9}});
  r.begin_fill(4);
  CHECK(r.version == 0);
}

TEST_CASE("a copy in stream order is content at once, after its event", "[residency][replica]") {
  replica r = placed();
  r.readers = events{{5}};
  r.fill_in_order(3, events{{9}});
  CHECK(r.version == 3);
  CHECK(r.resident());
  CHECK(r.written == events{{9}});  // the copy waited for what was there before
  CHECK(r.readers.empty());
}

TEST_CASE("a drop hands on every use and leaves nothing", "[residency][replica]") {
  replica r = placed();
  r.fill_in_order(3, events{{9}});
  r.readers = events{{10}, {11}};
  r.prefetched = true;
  CHECK(r.drop() == events{{9}, {10}, {11}});
  CHECK(r.absent());
  CHECK(r.version == 0);
  CHECK(r.size_bytes == 0);
  CHECK(r.uses().empty());
  CHECK_FALSE(r.prefetched);
  r.place(0, 256, {});
  CHECK(r.resident());
}

TEST_CASE("a new place forgets what the old one was", "[residency][replica]") {
  replica r = placed();
  r.fill_in_order(3, events{{9}});
  r.prefetched = true;
  static_cast<void>(r.drop());
  r.place(0, 256, events{{7}});
  CHECK(r.version == 0);
  CHECK(r.uses() == events{{7}});
  CHECK_FALSE(r.prefetched);
}

TEST_CASE("a step that the states do not allow is a programmer's error", "[residency][replica]") {
  const auto place = [](replica& r) { r.place(0, 256, {}); };
  const auto begin = [](replica& r) { r.begin_fill(5); };
  const auto finish = [](replica& r) { r.finish_fill({}); };
  const auto abandon = [](replica& r) { r.abandon_fill({}); };
  const auto copy = [](replica& r) { r.fill_in_order(5, events{{1}}); };
  const auto drop = [](replica& r) { static_cast<void>(r.drop()); };
  replica leased = placed();
  leased.leases = 1;
  replica read = placed();
  read.transfers_out = 1;

  CHECK(forbidden(placed(), place, "given another"));
  CHECK(forbidden(filling(), place, "given another"));
  for (const replica& busy : {replica{}, filling(), leased, read}) {
    CHECK(forbidden(busy, begin, "was to be filled"));
    CHECK(forbidden(busy, copy, "was to be filled"));
    CHECK(forbidden(busy, drop, "dropped while"));
  }
  for (const replica& other : {replica{}, placed(), leased}) {
    CHECK(forbidden(other, finish, "never began"));
    CHECK(forbidden(other, abandon, "never began"));
  }
}

TEST_CASE("a replica that was dropped remembers what it held, and a new place changes nothing in that",
          "[residency][replica]") {
  replica r = placed();
  CHECK((r.left_version == 0 && r.left_step == 0));
  static_cast<void>(r.drop());
  r.leave(4, 9);
  r.place(0, 256, {});
  CHECK((r.left_version == 4 && r.left_step == 9));
  static_cast<void>(r.drop());
  CHECK((r.left_version == 0 && r.left_step == 0));
}
