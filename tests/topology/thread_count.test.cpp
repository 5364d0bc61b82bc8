// SPDX-License-Identifier: Apache-2.0
#include <vtier/topology/thread_count.hpp>

#include <cstdlib>
#include <optional>
#include <string>

#include "support/catch.hpp"
#include "topology/fake_tree.hpp"

using vtier::test::fake_tree;

namespace {

// Sets a variable for one test.
class environment {
 public:
  explicit environment(const char* value) {
    const char* const text = std::getenv("OMP_NUM_THREADS");
    if (text != nullptr) before_ = text;
    set(value);
  }
  environment(const environment&) = delete;
  environment& operator=(const environment&) = delete;
  ~environment() { set(before_ ? before_->c_str() : nullptr); }

 private:
  static void set(const char* value) {
    if (value == nullptr) {
      ::unsetenv("OMP_NUM_THREADS");
    } else {
      ::setenv("OMP_NUM_THREADS", value, 1);
    }
  }
  std::optional<std::string> before_;
};

}  // namespace

TEST_CASE("thread_count: the smallest quota on the way up counts (VO-E12)") {
  const fake_tree tree;
  CHECK(!vtier::cpu_quota(tree.roots()));
  tree.file("proc/self/cgroup", "0::/a/b/c");
  CHECK(!vtier::cpu_quota(tree.roots()));
  tree.file("sys/fs/cgroup/cpu.max", "max 100000");
  CHECK(!vtier::cpu_quota(tree.roots()));
  tree.file("sys/fs/cgroup/a/cpu.max", "400000 100000");
  tree.file("sys/fs/cgroup/a/b/c/cpu.max", "850000 100000");
  CHECK(vtier::cpu_quota(tree.roots()) == 4U);
  tree.file("sys/fs/cgroup/a/b/c/cpu.max", "299999 100000");
  CHECK(vtier::cpu_quota(tree.roots()) == 2U);
  tree.file("sys/fs/cgroup/a/b/cpu.max", "1000 100000");
  CHECK(vtier::cpu_quota(tree.roots()) == 1U);  // never none
  tree.file("proc/self/cgroup", "0::/");
  tree.file("sys/fs/cgroup/cpu.max", "700000 100000");
  CHECK(vtier::cpu_quota(tree.roots()) == 7U);
  tree.file("sys/fs/cgroup/cpu.max", "700000 0");
  CHECK(!vtier::cpu_quota(tree.roots()));
}

TEST_CASE("thread_count: quotas of the older groups") {
  const fake_tree tree;
  tree.file("proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/job\n0::/");
  tree.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  tree.file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  CHECK(!vtier::cpu_quota(tree.roots()));
  tree.file("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "300000");
  tree.file("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000");
  CHECK(vtier::cpu_quota(tree.roots()) == 3U);
}

TEST_CASE("thread_count: the environment wins, else the smaller of CPUs and quota (VO-E12)") {
  const fake_tree tree;
  const std::size_t cpus = vtier::bound_cpus().size();
  {
    const environment none{nullptr};
    CHECK(vtier::default_thread_count(tree.roots()) == cpus);
    tree.file("proc/self/cgroup", "0::/");
    tree.file("sys/fs/cgroup/cpu.max", "100000 100000");
    CHECK(vtier::default_thread_count(tree.roots()) == 1U);
    tree.file("sys/fs/cgroup/cpu.max", "90000000000 100000");
    CHECK(vtier::default_thread_count(tree.roots()) == cpus);
  }
  {
    const environment three{"3"};
    CHECK(vtier::default_thread_count(tree.roots()) == 3U);
  }
  {
    const environment levels{"5,2"};
    CHECK(vtier::default_thread_count(tree.roots()) == 5U);
  }
  for (const char* text : {"0", "", "many", "-2"}) {
    const environment broken{text};
    CHECK(vtier::default_thread_count(tree.roots()) == cpus);
  }
}
