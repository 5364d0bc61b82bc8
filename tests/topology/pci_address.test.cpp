// SPDX-License-Identifier: Apache-2.0
#include <vtier/topology/pci_address.hpp>

#include <string>

#include "support/catch.hpp"

using vtier::pci_address;

TEST_CASE("pci_address: reads every form that systems write, domains above 16 bits too (VO-E01)") {
  CHECK(pci_address::parse("10001:8a:00.0") == pci_address{0x10001, 0x8a, 0, 0});
  CHECK(pci_address::parse("5d0505:01:00.0") == pci_address{0x5d0505, 1, 0, 0});
  CHECK(pci_address::parse("0000:3b:00.0") == pci_address{0, 0x3b, 0, 0});
  CHECK(pci_address::parse("3b:00.0") == pci_address::parse("0000:3b:00.0"));
  CHECK(pci_address::parse("0000:3B:00.0") == pci_address::parse("0000:3b:00.0"));
  CHECK(pci_address::parse("00000000:3B:00.0") == pci_address::parse("0000:3b:00.0"));  // CUDA's form
  CHECK(pci_address::parse("ffffffff:ff:1f.7") == pci_address{0xffffffff, 0xff, 31, 7});
}

TEST_CASE("pci_address: refuses what is no address (VO-E01)") {
  for (const char* text : {"garbage", "", "10001:8a:20.0", "0000:00:1f.8", "0000:3b:00", "0000:3b:00.", "0000-3b:00.0",
                           "0000:3b.00:0", ":3b:00.0", "100000000:3b:00.0", "0000:3b:00.0 ", " 0000:3b:00.0",
                           "-1:3b:00.0", "0x00:3b:00.0", "g000:3b:00.0", "0000:3b:0g.0", "0000:00:3b:00.0"}) {
    CAPTURE(text);
    CHECK(!pci_address::parse(text));
  }
}

TEST_CASE("pci_address: writes the kernel's form and reads it back") {
  CHECK(pci_address{0, 0x3B, 0, 0}.to_string() == "0000:3b:00.0");
  CHECK(pci_address{0x10001, 0x8a, 0x1f, 7}.to_string() == "10001:8a:1f.7");
  CHECK(pci_address{0x5d0505, 1, 0, 0}.to_string() == "5d0505:01:00.0");
  CHECK(pci_address{0xffffffff, 0, 0, 0}.to_string() == "ffffffff:00:00.0");
  const pci_address address{0x10001, 0xfe, 0x1a, 5};
  CHECK(pci_address::parse(address.to_string()) == address);
}

TEST_CASE("pci_address: every part counts in a comparison") {
  const pci_address base{1, 1, 1, 1};
  CHECK(!(base == pci_address{2, 1, 1, 1}));
  CHECK(!(base == pci_address{1, 2, 1, 1}));
  CHECK(!(base == pci_address{1, 1, 2, 1}));
  CHECK(!(base == pci_address{1, 1, 1, 2}));
  static_assert(pci_address::parse("3b:00.0").has_value());
}
