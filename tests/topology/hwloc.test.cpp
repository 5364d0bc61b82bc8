// SPDX-License-Identifier: Apache-2.0
// Built also where hwloc is absent: then it only says so.

#include <vtier/core/config.hpp>

#include "support/catch.hpp"

#if VTIER_HAS_HWLOC

#include <vtier/topology/hwloc.hpp>

#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/error.hpp>

#include "topology/fake_tree.hpp"

using namespace vtier::literals;
using vtier::node_kind;
using numbers = std::vector<unsigned>;

namespace {

// What the calls in `body` write to standard error.
template <class F>
std::string standard_error_of(F body) {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  std::fflush(stderr);
  const int before = ::dup(2);
  ::dup2(::fileno(file), 2);
  body();
  std::fflush(stderr);
  ::dup2(before, 2);
  ::close(before);
  std::string text;
  std::rewind(file);
  for (int c = 0; (c = std::fgetc(file)) != EOF;) text.push_back(static_cast<char>(c));
  std::fclose(file);
  return text;
}

std::string sets(const std::string& cpus, const std::string& nodes) {
  return " cpuset=\"" + cpus + "\" complete_cpuset=\"" + cpus + "\" nodeset=\"" + nodes + "\" complete_nodeset=\"" +
         nodes + "\" ";
}

std::string node(unsigned number, const std::string& cpus, std::size_t memory_bytes, const std::string& more = "",
                 const std::string& inside = "") {
  char mask[32];
  std::snprintf(mask, sizeof mask, "0x%08x", 1U << number);
  return "<object type=\"NUMANode\" os_index=\"" + std::to_string(number) + "\"" + sets(cpus, mask) + "gp_index=\"" +
         std::to_string(100 + number) + "\" local_memory=\"" + std::to_string(memory_bytes) + "\" " + more + ">" +
         inside + "</object>";
}

std::string pu(unsigned number, const std::string& nodes) {
  char mask[32];
  std::snprintf(mask, sizeof mask, "0x%08x", 1U << number);
  return "<object type=\"PU\" os_index=\"" + std::to_string(number) + "\"" + sets(mask, nodes) + "gp_index=\"" +
         std::to_string(200 + number) + "\"/>";
}

// A host bridge and one PCI function below it.
std::string function(unsigned id, const std::string& address, const std::string& type, const std::string& inside) {
  const std::string bus = address.substr(5, 2);
  return "<object type=\"Bridge\" gp_index=\"" + std::to_string(300 + 10 * id) +
         "\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"" + address.substr(0, 4) + ":[" + bus + "-" + bus +
         "]\"><object type=\"PCIDev\" gp_index=\"" + std::to_string(301 + 10 * id) + "\" pci_busid=\"" + address +
         "\" pci_type=\"" + type + "\" pci_link_speed=\"31.507692\">" + inside + "</object></object>";
}

std::string topology(const std::string& cpus, const std::string& nodes, const std::string& inside,
                     const std::string& version = "2.0", const std::string& after = "") {
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"" +
         version + "\">\n<object type=\"Machine\" os_index=\"0\"" + sets(cpus, nodes) + "allowed_cpuset=\"" + cpus +
         "\" allowed_nodeset=\"" + nodes + "\" gp_index=\"1\">" + inside + "</object>" + after + "</topology>\n";
}

// Two packages of two CPUs, a GPU and a drive on the second, a GPU that nobody knows the place of.
std::string two_packages() {
  const std::string disk =
      "<object type=\"OSDev\" gp_index=\"400\" name=\"nvme0n1\" subtype=\"Disk\" osdev_type=\"0\"/>";
  return topology("0x0000000f", "0x00000003",
                  "<object type=\"Package\" os_index=\"0\"" + sets("0x00000003", "0x00000001") + "gp_index=\"2\">" +
                      node(0, "0x00000003", 64_GiB) + pu(0, "0x00000001") + pu(1, "0x00000001") + "</object>" +
                      "<object type=\"Package\" os_index=\"1\"" + sets("0x0000000c", "0x00000002") + "gp_index=\"3\">" +
                      node(1, "0x0000000c", 32_GiB) + pu(2, "0x00000002") + pu(3, "0x00000002") +
                      function(0, "0000:3b:00.0", "0302 [10de:2335] [10de:18be] a1", "") +
                      function(1, "0000:5e:00.0", "0108 [144d:a80a] [144d:a801] 00", disk) + "</object>" +
                      function(2, "0000:81:00.0", "0302 [10de:2335] [10de:18be] a1", ""),
                  "2.0",
                  "<distances2 type=\"NUMANode\" nbobjs=\"2\" kind=\"5\" name=\"NUMALatency\" indexing=\"os\">"
                  "<indexes length=\"4\">0 1 </indexes><u64values length=\"12\">10 21 21 10 </u64values></distances2>");
}

}  // namespace

TEST_CASE("hwloc: nodes, distances, GPUs and drives of an XML machine") {
  const auto m = vtier::machine_from_hwloc_xml_text(two_packages());
  REQUIRE(m.nodes().size() == 2);
  CHECK(m.nodes()[1].memory_bytes == 32_GiB);
  CHECK(m.nodes()[1].cpus == numbers{2, 3});
  CHECK(m.allowed_cpus() == numbers{0, 1, 2, 3});
  CHECK(m.distance(0, 1) == 21U);
  CHECK(m.distance(1, 1) == 10U);
  REQUIRE(m.gpus().size() == 2);
  CHECK(m.gpus()[0].address == vtier::pci_address{0, 0x3b, 0, 0});
  CHECK(m.gpus()[0].node == 1U);
  REQUIRE(m.gpus()[0].link_bytes_per_second);
  CHECK(*m.gpus()[0].link_bytes_per_second > 31e9);
  CHECK(!m.gpus()[1].node);  // hangs on the whole machine
  CHECK(!m.nearest_node(m.gpus()[1].address));
  CHECK(m.notes().size() == 1);
  REQUIRE(m.drives().size() == 1);
  CHECK(m.drives()[0].name == "nvme0n1");
  CHECK(m.drives()[0].node == 1U);
  CHECK(m.drives()[0].address == vtier::pci_address{0, 0x5e, 0, 0});
}

TEST_CASE("hwloc: the same machine from a file") {
  const vtier::test::fake_tree tree;
  tree.file("sys/machine.xml", two_packages());
  CHECK(vtier::machine_from_hwloc_xml(tree.roots().sys + "/machine.xml").gpus().size() == 2);
}

TEST_CASE("hwloc: memory nodes without CPUs are no default, in any order of numbers (VO-E03)") {
  const auto m = vtier::machine_from_hwloc_synthetic("package:4 [numa(memory=64GB)] [numa(memory=16GB)] core:2 pu:1");
  REQUIRE(m.nodes().size() == 8);
  std::size_t ordinary = 0;
  for (const auto& item : m.nodes()) {
    if (item.kind == node_kind::dram) {
      ++ordinary;
      CHECK(item.cpus.size() == 2);
    } else {
      CHECK(item.kind == node_kind::memory_only);
      CHECK(item.cpus.empty());
      CHECK(m.cpus_for(item.os_index).size() == 2);
    }
  }
  CHECK(ordinary == 4);
  CHECK(vtier::nodes_by_distance(m.parts(), 0).size() == 4);

  // A node of the whole machine whose number comes first does not take the sockets' CPUs away.
  const auto n = vtier::machine_from_hwloc_xml_text(topology(
      "0x0000000f", "0x00000007",
      node(0, "0x0000000f", 512_GiB) + "<object type=\"Package\" os_index=\"0\"" + sets("0x00000003", "0x00000003") +
          "gp_index=\"2\">" + node(1, "0x00000003", 64_GiB) + pu(0, "0x00000003") + pu(1, "0x00000003") + "</object>" +
          "<object type=\"Package\" os_index=\"1\"" + sets("0x0000000c", "0x00000005") + "gp_index=\"3\">" +
          node(2, "0x0000000c", 64_GiB) + pu(2, "0x00000005") + pu(3, "0x00000005") + "</object>"));
  REQUIRE(n.nodes().size() == 3);
  CHECK(n.node(0)->kind == node_kind::memory_only);
  CHECK(vtier::default_node(n.parts()) == 1U);
}

TEST_CASE("hwloc: memory that calls itself special is special, unless the CPUs have no other") {
  const std::string tier = "<info name=\"MemoryTier\" value=\"HBM\"/>";
  const auto both = vtier::machine_from_hwloc_xml_text(topology(
      "0x00000001", "0x00000003",
      node(0, "0x00000001", 16_GiB, "subtype=\"HBM\"", tier) + node(1, "0x00000001", 64_GiB) + pu(0, "0x00000003")));
  CHECK(both.node(0)->kind == node_kind::memory_only);
  CHECK(vtier::default_node(both.parts()) == 1U);
  const auto alone = vtier::machine_from_hwloc_xml_text(topology(
      "0x00000001", "0x00000001", node(0, "0x00000001", 16_GiB, "subtype=\"HBM\"", tier) + pu(0, "0x00000001")));
  CHECK(vtier::default_node(alone.parts()) == 0U);
}

TEST_CASE("hwloc: GPU memory shown as nodes (VO-E04)") {
  std::string inside = node(0, "0x00000003", 480_GiB) + node(1, "0x0", 96_GiB, "subtype=\"GPUMemory\"",
                                                             "<info name=\"PCIBusID\" value=\"0009:01:00.0\"/>");
  for (unsigned i = 2; i < 9; ++i) inside += node(i, "0x0", 0);
  const auto m = vtier::machine_from_hwloc_xml_text(
      topology("0x00000003", "0x000001ff", inside + pu(0, "0x00000001") + pu(1, "0x00000001")));
  REQUIRE(m.nodes().size() == 9);
  CHECK(m.node(1)->kind == node_kind::gpu_memory);
  CHECK(vtier::nodes_by_distance(m.parts(), 1) == numbers{0});
  CHECK(vtier::default_node(m.parts()) == 0U);
}

TEST_CASE("hwloc: nodes 4 to 7 only (VO-E05)") {
  const auto m = vtier::machine_from_hwloc_synthetic("numa:4(indexes=4,5,6,7 memory=209GB) pu:2");
  REQUIRE(m.nodes().size() == 4);
  CHECK(m.nodes().front().os_index == 4);
  CHECK(m.node(0) == nullptr);
  CHECK(vtier::default_node(m.parts()) == 4U);
  CHECK(m.cpus_for(7) == numbers{6, 7});
}

TEST_CASE("hwloc: what it cannot read is a usage_error, and nothing is printed (VO-E09)") {
  const vtier::test::fake_tree tree;
  tree.file("sys/broken.xml", "<topology version=\"2.0\"><object type=\"Machine\"");
  const std::string printed = standard_error_of([&] {
    CHECK_THROWS_AS(vtier::machine_from_hwloc_xml(tree.roots().sys + "/absent.xml"), vtier::usage_error);
    CHECK_THROWS_AS(vtier::machine_from_hwloc_xml(tree.roots().sys + "/broken.xml"), vtier::usage_error);
    CHECK_THROWS_AS(vtier::machine_from_hwloc_xml_text("no topology"), vtier::usage_error);
    CHECK_THROWS_AS(vtier::machine_from_hwloc_xml_text(""), vtier::usage_error);
    CHECK_THROWS_AS(vtier::machine_from_hwloc_synthetic("nonsense:0"), vtier::usage_error);
    const std::string future = topology("0x1", "0x1", node(0, "0x1", 1_GiB) + pu(0, "0x1"), "99.0");
    CHECK_THROWS_AS(vtier::machine_from_hwloc_xml_text(future), vtier::usage_error);
  });
  CHECK(printed == "");
}

TEST_CASE("hwloc: firmware tables that contradict each other print nothing and lose no node (VO-E10)") {
  const vtier::test::fake_tree tree;  // packages of CPUs 0-3 and 4-7, nodes of CPUs 0,1,4,5 and 2,3,6,7
  for (const char* name : {"online", "possible", "present"}) {
    tree.file(std::string{"sys/devices/system/cpu/"} + name, "0-7");
  }
  for (unsigned i = 0; i < 8; ++i) {
    const std::string base = "sys/devices/system/cpu/cpu" + std::to_string(i) + "/";
    const std::string package = i < 4 ? "0000000f" : "000000f0";
    tree.file(base + "online", "1");
    tree.file(base + "topology/physical_package_id", i < 4 ? "0" : "1");
    tree.file(base + "topology/core_id", std::to_string(i));
    tree.file(base + "topology/core_siblings", package);
    tree.file(base + "topology/package_cpus", package);
  }
  tree.file("sys/devices/system/node/online", "0-1");
  tree.node(0, "0-1,4-5", 8_GiB, "10 20");
  tree.node(1, "2-3,6-7", 8_GiB, "20 10");
  tree.file("sys/devices/system/node/node0/cpumap", "00000033");
  tree.file("sys/devices/system/node/node1/cpumap", "000000cc");
  const std::string root = tree.roots().sys.substr(0, tree.roots().sys.size() - 4);
  ::setenv("HWLOC_FSROOT", root.c_str(), 1);
  numbers first;
  numbers second;
  const std::string printed = standard_error_of([&] {
    const auto m = vtier::machine_from_hwloc();
    if (m.node(0) != nullptr) first = m.node(0)->cpus;
    if (m.node(1) != nullptr) second = m.node(1)->cpus;
  });
  ::unsetenv("HWLOC_FSROOT");
  CHECK(printed == "");
  CHECK(first == numbers{0, 1, 4, 5});
  CHECK(second == numbers{2, 3, 6, 7});
}

TEST_CASE("hwloc: a file that its own environment variable names keeps its devices in place") {
  const vtier::test::fake_tree tree;
  tree.file("sys/machine.xml", two_packages());
  ::setenv("HWLOC_XMLFILE", (tree.roots().sys + "/machine.xml").c_str(), 1);
  const auto m = vtier::machine_from_hwloc();
  ::unsetenv("HWLOC_XMLFILE");
  REQUIRE(m.gpus().size() == 2);
  CHECK(m.gpus()[0].node == 1U);
}

TEST_CASE("hwloc: another major version at run time is a clean error (VO-I12)") {
  vtier::detail::check_hwloc_version(0x00020100, 0x00020c00);
  CHECK_THROWS_AS(vtier::detail::check_hwloc_version(0x00020800, 0x00030000), vtier::usage_error);
  CHECK_THROWS_AS(vtier::detail::check_hwloc_version(0x00020800, 0x00010b00), vtier::usage_error);
}

TEST_CASE("hwloc: this machine, without a word on standard error and without binding anything (VO-C05)") {
  const auto before = vtier::bound_cpus();
  numbers cpus;
  const std::string printed = standard_error_of([&] {
    const auto m = vtier::machine_from_hwloc();
    CHECK(!m.nodes().empty());
    cpus = m.allowed_cpus();
  });
  CHECK(printed == "");
  CHECK(!cpus.empty());
  CHECK(vtier::bound_cpus() == before);
}

#else

TEST_CASE("hwloc: absent") { WARN("skipped: built without hwloc, machine::discover() reads sysfs"); }

#endif
