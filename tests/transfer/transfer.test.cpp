// SPDX-License-Identifier: Apache-2.0
#include <vtier/transfer/transfer.hpp>

#include "support/catch.hpp"
#include "support/numbered_event.hpp"

static_assert(vtier::urgency::demand < vtier::urgency::prefetch);
static_assert(vtier::urgency::prefetch < vtier::urgency::write_back);

TEST_CASE("a transfer has ended when it is done, failed or cancelled", "[transfer][transfer]") {
  using vtier::transfer_state;
  vtier::transfer<vtier::test::numbered_event> t;
  CHECK(t.state == transfer_state::queued);
  CHECK_FALSE(t.ended());
  t.state = transfer_state::running;
  CHECK_FALSE(t.ended());
  for (const transfer_state end : {transfer_state::done, transfer_state::failed, transfer_state::cancelled}) {
    t.state = end;
    CHECK(t.ended());
  }
}

TEST_CASE("a transfer that nobody has filled in moves nothing, on demand", "[transfer][transfer]") {
  const vtier::transfer<vtier::test::numbered_event> t;
  CHECK(t.size_bytes == 0);
  CHECK(t.priority == vtier::urgency::demand);
  CHECK(t.source.memory == nullptr);
  CHECK_FALSE(static_cast<bool>(t.error));
  CHECK((t.source_after.empty() && t.target_after.empty() && t.finished.empty()));
}
