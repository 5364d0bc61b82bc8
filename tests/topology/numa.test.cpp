// SPDX-License-Identifier: Apache-2.0
#include <vtier/topology/numa.hpp>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include <vtier/topology/discover.hpp>

#include "support/catch.hpp"

namespace {

// Fresh pages, so that nothing has touched them.
struct pages {
  std::size_t size = 0;
  void* base = nullptr;
  explicit pages(std::size_t count)
      : size{count * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))},
        base{::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)} {
    REQUIRE(base != MAP_FAILED);
  }
  pages(const pages&) = delete;
  pages& operator=(const pages&) = delete;
  ~pages() { ::munmap(base, size); }
};

}  // namespace

#if VTIER_HAS_NUMA

TEST_CASE("numa: bound pages carry the policy and land on the node (VO-C04)") {
  const auto node = vtier::default_node(vtier::machine::discover().parts());
  if (!node) {
    WARN("skipped: this system says nothing about NUMA nodes");
    return;
  }
  const pages fresh{64};
  CHECK(!vtier::page_node_share(fresh.base, fresh.size, *node));  // nothing touched yet
  if (const int error = vtier::bind_pages(fresh.base, fresh.size, *node); error == EPERM || error == ENOSYS) {
    WARN("skipped: this system forbids binding pages: " << std::strerror(error));
    return;
  } else {
    REQUIRE(error == 0);
  }
  int mode = -1;
  vtier::detail::node_mask mask;
  REQUIRE(::get_mempolicy(&mode, mask.words.data(), vtier::detail::node_mask::nodes_max, fresh.base, MPOL_F_ADDR) == 0);
  CHECK(mode == MPOL_BIND);
  vtier::detail::node_mask expected;
  REQUIRE(expected.add(*node));
  CHECK(mask.words == expected.words);
  std::memset(fresh.base, 1, fresh.size);
  CHECK(vtier::page_node_share(fresh.base, fresh.size, *node) == 1.0);
  CHECK(vtier::page_node_share(fresh.base, fresh.size, *node + 1) == 0.0);
}

TEST_CASE("numa: a sample covers a range that is larger than it, and one that begins within a page") {
  const pages fresh{5000};
  std::byte* const base = static_cast<std::byte*>(fresh.base);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto node = vtier::default_node(vtier::machine::discover().parts()).value_or(0);
  std::memset(base + 4990 * page, 1, 10 * page);  // only the end is there
  const auto share = vtier::page_node_share(fresh.base, fresh.size, node);
  if (!share) {
    WARN("skipped: this system does not say where pages are");
    return;
  }
  CHECK(*share >= 0.0);
  CHECK(vtier::page_node_share(base + 4999 * page + 17, 1, node).has_value());
  CHECK(vtier::page_node_share(base + 4989 * page + 17, page, node).has_value());  // reaches into a touched page
  CHECK(!vtier::page_node_share(base, 100, node));
  CHECK(!vtier::page_node_share(base + 4990 * page, 0, node));
  CHECK(!vtier::page_node_share(nullptr, 100, node));
}

TEST_CASE("numa: where a container forbids the call, that is the answer and nothing is printed (VO-C05)") {
  const pages fresh{4};
  int ends[2] = {-1, -1};
  REQUIRE(::pipe(ends) == 0);
  const ::pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {  // only system calls from here on
    ::dup2(ends[1], 2);
    ::sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(::seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mbind, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const ::sock_fprog filter{4, program};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) ::_exit(2);
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) ::_exit(2);
    const unsigned nodes[] = {0};
    const bool refused = vtier::bind_pages(fresh.base, fresh.size, 0) == EPERM &&
                         vtier::interleave_pages(fresh.base, fresh.size, nodes) == EPERM;
    *static_cast<char*>(fresh.base) = 1;  // the memory itself is fine
    ::_exit(refused ? 0 : 1);
  }
  ::close(ends[1]);
  char byte = 0;
  CHECK(::read(ends[0], &byte, 1) == 0);  // nothing came before the end
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) {
    WARN("skipped: this system allows no filter of system calls");
    return;
  }
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("numa: impossible nodes are refused and change nothing (VO-C04)") {
  const pages fresh{4};
  const int last = vtier::bind_pages(fresh.base, fresh.size, 1023);
  CHECK((last == EINVAL || last == EPERM));
  for (const unsigned node : {4095U, 4096U, 4294967295U}) CHECK(vtier::bind_pages(fresh.base, fresh.size, node) != 0);
  CHECK(vtier::bind_pages(fresh.base, fresh.size, 4294967295U) == EINVAL);  // "-1" of a file, as a node
  CHECK(vtier::interleave_pages(fresh.base, fresh.size, {}) == EINVAL);
  const std::vector<unsigned> broken{0, 4294967295U};
  CHECK(vtier::interleave_pages(fresh.base, fresh.size, broken) == EINVAL);
  CHECK(vtier::bind_pages(fresh.base, 0, 0) == 0);
  int mode = -1;
  if (::get_mempolicy(&mode, nullptr, 0, fresh.base, MPOL_F_ADDR) == 0) CHECK(mode == MPOL_DEFAULT);
}

TEST_CASE("numa: pages are spread over all default nodes") {
  const auto m = vtier::machine::discover();
  const auto nodes = vtier::nodes_by_distance(m.parts(), 0);
  const pages fresh{64};
  const int error = m.parts().numa_known ? vtier::interleave_pages(fresh.base, fresh.size, nodes) : ENOSYS;
  if (error != 0) {
    WARN("skipped: pages cannot be interleaved here: " << std::strerror(error));
    return;
  }
  int mode = -1;
  REQUIRE(::get_mempolicy(&mode, nullptr, 0, fresh.base, MPOL_F_ADDR) == 0);
  CHECK(mode == MPOL_INTERLEAVE);
  std::memset(fresh.base, 1, fresh.size);
  double sum = 0.0;
  for (const unsigned node : nodes) sum += vtier::page_node_share(fresh.base, fresh.size, node).value_or(0.0);
  CHECK(sum > 0.999);
  CHECK(sum < 1.001);
}

#else

TEST_CASE("numa: without libnuma every answer is \"not available\"") {
  const pages fresh{4};
  const std::vector<unsigned> nodes{0};
  CHECK(!vtier::can_bind_pages());
  CHECK(vtier::bind_pages(fresh.base, fresh.size, 0) == ENOSYS);
  CHECK(vtier::interleave_pages(fresh.base, fresh.size, nodes) == ENOSYS);
  std::memset(fresh.base, 1, fresh.size);
  CHECK(!vtier::page_node_share(fresh.base, fresh.size, 0));
}

#endif
