// SPDX-License-Identifier: Apache-2.0
#include <vtier/topology/sysfs.hpp>

#include <optional>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/topology/machine.hpp>

#include "support/catch.hpp"
#include "topology/fake_tree.hpp"

using namespace vtier::literals;
using vtier::machine;
using vtier::node_kind;
using vtier::test::fake_tree;
using numbers = std::vector<unsigned>;

namespace {

// Two sockets of two CPUs.
void two_sockets(const fake_tree& tree) {
  tree.file("sys/devices/system/cpu/online", "0-3");
  tree.file("sys/devices/system/node/online", "0-1");
  tree.node(0, "0-1", 64_GiB, "10 21");
  tree.node(1, "2-3", 32_GiB, "21 10");
}

}  // namespace

TEST_CASE("sysfs: nodes, CPUs, memory and distances") {
  const fake_tree tree;
  two_sockets(tree);
  tree.file("proc/self/status", "Name:\tx\nCpus_allowed_list:\t1-2\nMems_allowed_list:\t0-1");
  const machine m{vtier::read_sysfs(tree.roots())};
  REQUIRE(m.nodes().size() == 2);
  CHECK(m.nodes()[0].memory_bytes == 64_GiB);
  CHECK(m.nodes()[1].memory_bytes == 32_GiB);
  CHECK(m.nodes()[0].cpus == numbers{1});  // only what this process may use
  CHECK(m.nodes()[1].cpus == numbers{2});
  CHECK(m.allowed_cpus() == numbers{1, 2});
  CHECK(m.distance(0, 1) == 21U);
  CHECK(m.distance(1, 1) == 10U);
  CHECK(m.notes().empty());
}

TEST_CASE("sysfs: the machine knows what its container may use (VO-C06)") {
  const fake_tree tree;
  two_sockets(tree);
  CHECK(!machine{vtier::read_sysfs(tree.roots())}.memory_limit());
  tree.file("proc/self/cgroup", "0::/pod/box");
  tree.file("sys/fs/cgroup/pod/box/memory.max", "max");
  tree.file("sys/fs/cgroup/pod/memory.max", std::to_string(8_GiB));
  const machine m{vtier::read_sysfs(tree.roots())};
  REQUIRE(m.memory_limit());
  CHECK(m.memory_limit()->size_bytes == 8_GiB);
  CHECK(m.memory_limit()->file == tree.roots().sys + "/fs/cgroup/pod/memory.max");
}

TEST_CASE("sysfs: a machine that shows nothing at all still has a node, and nothing is bound to it") {
  const fake_tree tree;
  const machine m{vtier::read_sysfs(tree.roots())};
  REQUIRE(m.nodes().size() == 1);
  CHECK(m.nodes()[0].cpus == vtier::bound_cpus());
  CHECK(m.gpus().empty());
  CHECK(m.drives().empty());
  REQUIRE(m.notes().size() == 1);
  CHECK(m.notes()[0].find("no NUMA information") == 0);
  CHECK(!vtier::default_node(m.parts()));  // node 0 may well not exist
  CHECK(vtier::drives_of_device(8, 0, tree.roots()).empty());
}

TEST_CASE("sysfs: nodes 4 to 7 only, distances by number and not by column (VO-E05)") {
  const fake_tree tree;
  tree.file("sys/devices/system/cpu/online", "0-3");
  tree.file("sys/devices/system/node/online", "4-7");
  tree.node(4, "0", 417_GiB, "10 20 40 40");
  tree.node(5, "1", 209_GiB, "20 10 40 40");
  tree.node(6, "2", 209_GiB, "40 40 10 20");
  tree.node(7, "3", 210_GiB, "40 40 20 10");
  const machine m{vtier::read_sysfs(tree.roots())};
  REQUIRE(m.nodes().size() == 4);
  CHECK(m.distance(6, 7) == 20U);
  CHECK(m.distance(5, 7) == 40U);
  CHECK(!m.distance(0, 1));
  CHECK(vtier::default_node(m.parts()) == 4U);
  CHECK(vtier::nodes_by_distance(m.parts(), 6) == numbers{6, 7, 4, 5});
}

TEST_CASE("sysfs: a node that this process may not use is left out, and columns still fit (cpuset)") {
  const fake_tree tree;
  tree.file("sys/devices/system/cpu/online", "0-2");
  tree.file("sys/devices/system/node/online", "0,8,9");
  tree.node(0, "0", 8_GiB, "10 80 90");
  tree.node(8, "1", 8_GiB, "80 10 11");
  tree.node(9, "2", 8_GiB, "90 11 10");
  tree.file("proc/self/status", "Cpus_allowed_list:\t0-2\nMems_allowed_list:\t0,9");
  const machine m{vtier::read_sysfs(tree.roots())};
  REQUIRE(m.nodes().size() == 2);
  CHECK(m.node(8) == nullptr);
  CHECK(m.distance(0, 9) == 90U);
  CHECK(m.notes().size() == 1);
}

TEST_CASE("sysfs: the kernel does not know the node of the GPU (VO-E02)") {
  for (const char* text : {"-1", "", "empty", "4294967295", "2", "4294967296", "one"}) {
    CAPTURE(text);
    const fake_tree tree;
    two_sockets(tree);
    tree.pci("pci0000:3a", "0000:3b:00.0", "0x10de", "0x030200", text);
    const machine m{vtier::read_sysfs(tree.roots())};
    REQUIRE(m.gpus().size() == 1);
    CHECK(!m.gpus()[0].node);
    CHECK(!m.nearest_node(m.gpus()[0].address));
    CHECK(m.notes().size() == 1);
  }
  const fake_tree tree;
  two_sockets(tree);
  tree.pci("pci0000:3a", "0000:3b:00.0", "0x10de", "0x030200", "1");
  const machine m{vtier::read_sysfs(tree.roots())};
  CHECK(m.nearest_node(m.gpus().at(0).address) == 1U);
  CHECK(m.notes().empty());
}

TEST_CASE("sysfs: memory without CPUs is a node of its own and no default (VO-E03)") {
  const fake_tree tree;
  tree.file("sys/devices/system/cpu/online", "0-3");
  tree.node(0, "0-3", 64_GiB, "10 14");
  tree.node(1, "", 256_GiB, "14 10");
  const machine m{vtier::read_sysfs(tree.roots())};
  CHECK(m.node(0)->kind == node_kind::dram);
  CHECK(m.node(1)->kind == node_kind::memory_only);
  CHECK(vtier::default_node(m.parts()) == 0U);
  CHECK(m.cpus_for(1) == numbers{0, 1, 2, 3});
}

TEST_CASE("sysfs: a node whose CPUs are all forbidden is still ordinary memory (VO-E07)") {
  const fake_tree tree;
  two_sockets(tree);
  tree.file("proc/self/status", "Cpus_allowed_list:\t0-1");
  const machine m{vtier::read_sysfs(tree.roots())};
  CHECK(m.node(1)->kind == node_kind::dram);
  CHECK(m.cpus_for(1).empty());
  CHECK(vtier::nearest_memory(m.parts(), 1U) == 1U);
}

TEST_CASE("sysfs: GPU memory that is shown as nodes (VO-E04)") {
  const fake_tree tree;
  tree.file("sys/devices/system/cpu/online", "0-71");
  tree.file("sys/devices/system/node/online", "0-8");
  tree.node(0, "0-71", 480_GiB, "10 80 80 80 80 80 80 80 80");
  tree.node(1, "", 96_GiB, "80 10 255 255 255 255 255 255 255");
  for (unsigned i = 2; i < 9; ++i) tree.node(i, "", 0, "");
  tree.pci("pci0009:00", "0009:01:00.0", "0x10de", "0x030200", "0");
  tree.file("proc/driver/nvidia/gpus/0009:01:00.0/numa_status", "Node: 1\nStatus: online");
  tree.file("proc/driver/nvidia/gpus/0009:01:00.0/information", "Model: \t\t NVIDIA GH200\nIRQ:   \t\t 1");
  const machine m{vtier::read_sysfs(tree.roots())};
  CHECK(m.node(1)->kind == node_kind::gpu_memory);
  REQUIRE(m.gpus().size() == 1);
  CHECK(m.gpus()[0].name == "NVIDIA GH200");
  CHECK(vtier::nodes_by_distance(m.parts(), 1) == numbers{0});
  CHECK(m.nearest_node(m.gpus()[0].address) == 0U);
  CHECK(m.notes().empty());
}

TEST_CASE("sysfs: which PCI functions are GPUs, and how fast their link is") {
  const fake_tree tree;
  two_sockets(tree);
  tree.pci("pci0000:00", "0000:00:01.0", "0x8086", "0x060400", "0");               // a bridge
  tree.pci("pci0000:00/0000:00:01.0", "0000:01:00.0", "0x10de", "0x030200", "0");  // 3D controller
  tree.pci("pci0000:00", "0000:02:00.0", "0x10de", "0x040300", "0");               // the sound of a graphics card
  tree.pci("pci0000:00", "0000:03:00.0", "0x1002", "0x120000", "1");               // AMD accelerator
  tree.pci("pci0000:00", "0000:04:00.0", "0x1a03", "0x030000", "0");               // a server's own display
  tree.file("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/max_link_speed", "32.0 GT/s PCIe");
  tree.file("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/max_link_width", "16");
  tree.file("sys/devices/pci0000:00/0000:00:01.0/max_link_speed", "16.0 GT/s PCIe");
  tree.file("sys/devices/pci0000:00/0000:00:01.0/max_link_width", "16");
  tree.file("sys/devices/pci0000:00/0000:03:00.0/max_link_speed", "Unknown");
  const machine m{vtier::read_sysfs(tree.roots())};
  REQUIRE(m.gpus().size() == 2);
  CHECK(m.gpus()[0].address.to_string() == "0000:01:00.0");
  REQUIRE(m.gpus()[0].link_bytes_per_second);
  CHECK(*m.gpus()[0].link_bytes_per_second > 31.4e9);  // the slot's rate, which is less than the card's
  CHECK(*m.gpus()[0].link_bytes_per_second < 31.6e9);
  CHECK(m.gpus()[1].node == 1U);
  CHECK(!m.gpus()[1].link_bytes_per_second);
}

TEST_CASE("sysfs: a drive in a domain above 16 bits is found and takes the node of a bridge above it (VO-E01)") {
  const fake_tree tree;
  two_sockets(tree);
  const std::string base = "sys/devices/pci0000:c9/0000:c9:00.5";
  const std::string disk = base + "/pci10001:00/10001:00:01.0/10001:8a:00.0/nvme/nvme0/nvme0n1";
  tree.file(base + "/numa_node", "1");
  tree.file(base + "/pci10001:00/10001:00:01.0/10001:8a:00.0/numa_node", "-1");
  tree.file(disk + "/nvme0n1p2/partition", "2");
  tree.link("sys/block/nvme0n1", disk);
  tree.link("sys/dev/block/259:2", disk + "/nvme0n1p2");
  tree.link("sys/block/loop0", "sys/devices/virtual/block/loop0");
  const machine m{vtier::read_sysfs(tree.roots())};
  REQUIRE(m.drives().size() == 1);
  CHECK(m.drives()[0].name == "nvme0n1");
  CHECK(m.drives()[0].address == vtier::pci_address{0x10001, 0x8a, 0, 0});
  CHECK(m.nearest_node(m.drives()[0]) == 1U);

  const auto behind = vtier::drives_of_device(259, 2, tree.roots());  // a partition stands for its drive
  REQUIRE(behind.size() == 1);
  CHECK(behind[0].name == "nvme0n1");
  CHECK(behind[0].node == 1U);
}

TEST_CASE("sysfs: the drives below a volume over an array, each once, and a ring of links ends") {
  const fake_tree tree;
  two_sockets(tree);
  for (const std::string name : {"nvme0", "nvme1"}) {
    const std::string function = "sys/devices/pci0000:80/0000:8" + name.substr(4) + ":00.0";
    tree.file(function + "/numa_node", name.substr(4));
    tree.file(function + "/nvme/" + name + "/" + name + "n1/" + name + "n1p1/partition", "1");
    tree.link("sys/devices/virtual/block/md0/slaves/" + name + "n1p1",
              function + "/nvme/" + name + "/" + name + "n1/" + name + "n1p1");
  }
  tree.link("sys/devices/virtual/block/dm-0/slaves/md0", "sys/devices/virtual/block/md0");
  tree.link("sys/devices/virtual/block/dm-0/slaves/again", "sys/devices/virtual/block/md0");
  tree.link("sys/devices/virtual/block/dm-0/slaves/ring", "sys/devices/virtual/block/dm-0");
  tree.link("sys/dev/block/253:0", "sys/devices/virtual/block/dm-0");
  const auto found = vtier::drives_of_device(253, 0, tree.roots());
  REQUIRE(found.size() == 2);
  CHECK(found[0].name == "nvme0n1");
  CHECK(found[0].node == 0U);
  CHECK(found[1].name == "nvme1n1");
  CHECK(found[1].node == 1U);
  CHECK(found[1].address == vtier::pci_address{0, 0x81, 0, 0});
}

TEST_CASE("sysfs: a drive that several controllers share has the place of one of them") {
  const fake_tree tree;
  two_sockets(tree);
  const std::string controller = "sys/devices/pci0000:80/0000:81:00.0/nvme/nvme3";
  tree.file("sys/devices/pci0000:80/0000:81:00.0/numa_node", "1");
  tree.file(controller + "/nvme0c3n1/hidden", "1");
  tree.link("sys/block/nvme0c3n1", controller + "/nvme0c3n1");
  const std::string subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys0";
  tree.file(subsystem + "/nvme0n1/size", "1");
  tree.link(subsystem + "/nvme3", controller);
  tree.link("sys/block/nvme0n1", subsystem + "/nvme0n1");
  const machine m{vtier::read_sysfs(tree.roots())};
  REQUIRE(m.drives().size() == 1);
  CHECK(m.drives()[0].name == "nvme0n1");
  CHECK(m.drives()[0].node == 1U);
  CHECK(m.drives()[0].address == vtier::pci_address{0, 0x81, 0, 0});
}

TEST_CASE("sysfs: the drive of a path on this machine") {
  CHECK(!vtier::drive_of("/no/such/path"));
  CHECK(!vtier::drive_of("/proc"));  // no block device
  const fake_tree tree;
  const auto real = vtier::drive_of(tree.roots().sys);
  if (!real) {
    WARN("skipped: the scratch folder is on no block device");
    return;
  }
  CHECK(!real->name.empty());
}
