// SPDX-License-Identifier: Apache-2.0
#include <vtier/topology/memory_limit.hpp>

#include <string>

#include "support/catch.hpp"
#include "topology/fake_tree.hpp"

#include <vtier/core/bytes.hpp>

using namespace vtier::literals;
using vtier::group_memory_limit;
using vtier::test::fake_tree;

TEST_CASE("memory_limit: the smallest limit on the way up counts, and its file is named (VO-C06)") {
  const fake_tree tree;
  CHECK(!group_memory_limit(tree.roots()));
  tree.file("proc/self/cgroup", "0::/kube/pod/box");
  CHECK(!group_memory_limit(tree.roots()));
  tree.file("sys/fs/cgroup/kube/pod/box/memory.max", "max");
  CHECK(!group_memory_limit(tree.roots()));
  tree.file("sys/fs/cgroup/kube/pod/memory.max", std::to_string(8_GiB));  // in a parent
  REQUIRE(group_memory_limit(tree.roots()));
  CHECK(group_memory_limit(tree.roots())->size_bytes == 8_GiB);
  CHECK(group_memory_limit(tree.roots())->file == tree.roots().sys + "/fs/cgroup/kube/pod/memory.max");
  tree.file("sys/fs/cgroup/kube/pod/box/memory.max", std::to_string(64_GiB));
  CHECK(group_memory_limit(tree.roots())->size_bytes == 8_GiB);
  tree.file("sys/fs/cgroup/kube/pod/box/memory.max", std::to_string(2_GiB));
  CHECK(group_memory_limit(tree.roots())->size_bytes == 2_GiB);
  tree.file("sys/fs/cgroup/kube/pod/box/memory.max", "rubbish");
  CHECK(group_memory_limit(tree.roots())->size_bytes == 8_GiB);
}

TEST_CASE("memory_limit: every limit on the way up, and what is used of it (VO-C06)") {
  const fake_tree tree;
  tree.file("proc/self/cgroup", "0::/pod/box");
  tree.file("sys/fs/cgroup/pod/box/memory.max", std::to_string(2_GiB));
  tree.file("sys/fs/cgroup/pod/memory.max", std::to_string(4_GiB));
  tree.file("sys/fs/cgroup/pod/memory.stat", "anon " + std::to_string(3_GiB) + "\nfile 5\ninactive_anon 0");
  const auto limits = vtier::group_memory_limits(tree.roots());
  REQUIRE(limits.size() == 2);
  CHECK(limits[0].size_bytes == 2_GiB);
  CHECK(limits[0].used_bytes == 0);
  CHECK(limits[0].free_bytes() == 2_GiB);
  CHECK(limits[1].used_bytes == 3_GiB);
  CHECK(limits[1].free_bytes() == 1_GiB);
  tree.file("sys/fs/cgroup/pod/memory.stat", "anon " + std::to_string(5_GiB));
  CHECK(vtier::group_memory_limits(tree.roots())[1].free_bytes() == 0);
  CHECK(group_memory_limit(tree.roots())->size_bytes == 2_GiB);
}

TEST_CASE("memory_limit: groups of the older version, and containers that see only their own tree (VO-C06)") {
  const fake_tree tree;
  tree.file("proc/self/cgroup", "5:cpu,cpuacct:/job\n9:memory:/docker/0123\n0::/");
  tree.file("sys/fs/cgroup/memory/docker/0123/memory.limit_in_bytes", "9223372036854771712");  // none
  CHECK(!group_memory_limit(tree.roots()));
  tree.file("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(512_MiB));
  REQUIRE(group_memory_limit(tree.roots()));
  CHECK(group_memory_limit(tree.roots())->size_bytes == 512_MiB);
  tree.file("sys/fs/cgroup/memory.max", std::to_string(256_MiB));  // both at once: the smaller
  CHECK(group_memory_limit(tree.roots())->size_bytes == 256_MiB);
  tree.file("sys/fs/cgroup/unified/memory.max", std::to_string(128_MiB));  // the newer one beside the older
  CHECK(group_memory_limit(tree.roots())->file == tree.roots().sys + "/fs/cgroup/unified/memory.max");
  tree.file("sys/fs/cgroup/memory/memory.stat", "rss 1\ntotal_rss " + std::to_string(100_MiB) + "\ntotal_rss_huge 0");
  CHECK(vtier::group_memory_limits(tree.roots())[0].used_bytes == 100_MiB);
}

TEST_CASE("memory_limit: a group outside of what this process may see") {
  const fake_tree tree;
  for (const char* group : {"0::/../../other", "0::", "0::no slash", "4:memory", "rubbish", ""}) {
    CAPTURE(group);
    tree.file("proc/self/cgroup", group);
    CHECK(!group_memory_limit(tree.roots()));
  }
}
