// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/mapped_file.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/memory/pool.hpp>

#include "contract/resource.hpp"
#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/own_mounts.hpp"
#include "support/scratch_directory.hpp"
#include "support/tensors.hpp"

using namespace vtier::literals;
using vtier::mapped_file;
namespace fs = std::filesystem;

namespace {

constexpr int skipped = 3;

std::size_t open_files() {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator{"/proc/self/fd"}, fs::directory_iterator{}));
}

// For use in a child: says what was wrong and goes on to false.
bool expect(bool condition, const std::string& text) {
  if (!condition) std::fprintf(stderr, "expected: %s\n", text.c_str());
  return condition;
}

// The errno of the constructor; the message names the path.
int refusal(const fs::path& directory) {
  try {
    const mapped_file memory{directory, {.budget = 1_MiB}};
    return 0;
  } catch (const vtier::io_error& e) {
    const std::string text = e.what();
    const std::string start = directory.string().substr(0, 60);
    return text.find(start) != std::string::npos ? e.code().value() : -1;
  }
}

}  // namespace

TEST_CASE("mapped_file is a resource", "[memory][mapped_file]") {
  const std::size_t files_before = open_files();
  {
    const vtier::test::scratch_directory directory;
    SECTION("in one directory") {
      const auto make = [&](std::size_t budget) { return mapped_file{directory.path(), {.budget = budget}}; };
      vtier::test::check_resource(make, vtier::test::host_bytes{}, 20);
      vtier::test::check_slab(make, vtier::test::host_bytes{});
    }
    SECTION("through the page cache") {
      const auto make = [&](std::size_t budget) {
        return mapped_file{directory.path(), {.budget = budget, .direct = false}};
      };
      vtier::test::check_resource(make, vtier::test::host_bytes{}, 1);
      vtier::test::check_slab(make, vtier::test::host_bytes{});
    }
    SECTION("over three directories in thin stripes") {
      const vtier::test::scratch_directory second;
      const vtier::test::scratch_directory third;
      const auto make = [&](std::size_t budget) {
        return mapped_file{{directory.path(), second.path(), third.path()}, {.budget = budget, .stripe_bytes = 12'288}};
      };
      vtier::test::check_resource(make, vtier::test::host_bytes{}, 1);
      vtier::test::check_slab(make, vtier::test::host_bytes{});
      CHECK((second.empty() && third.empty()));
    }
    CHECK(directory.empty());
  }
  CHECK(open_files() == files_before);
}

TEST_CASE("the mapping shows what lies in the files, at the place that the slab names", "[memory][mapped_file]") {
  const vtier::test::scratch_directory first;
  const vtier::test::scratch_directory second;
  const auto check = [](vtier::slab slab, std::size_t file_count) {
    const std::size_t size = slab.size_bytes();
    slab.commit(size / 2);
    std::byte* const base = slab.base();  // mapped half-way: the rest is mapped as it is committed
    slab.commit(size);
    for (std::size_t i = 0; i < size; ++i) base[i] = std::byte{vtier::test::pattern(5, i)};
    std::vector<int> descriptors;
    std::vector<std::byte> found(size);
    for (std::size_t at = 0; at < size;) {
      const auto place = slab.locate(at);
      REQUIRE(place.contiguous_bytes > 0);
      const std::size_t count = (std::min)(place.contiguous_bytes, size - at);
      // The descriptor may be for direct I/O, which has rules about memory; another one of the same file has none.
      std::ifstream file{"/proc/self/fd/" + std::to_string(place.descriptor), std::ios::binary};
      file.seekg(static_cast<std::streamoff>(place.offset_bytes));
      file.read(reinterpret_cast<char*>(found.data() + at), static_cast<std::streamsize>(count));
      REQUIRE(file.gcount() == static_cast<std::streamsize>(count));
      descriptors.push_back(place.descriptor);
      at += count;
    }
    std::size_t differences = 0;
    for (std::size_t i = 0; i < size; ++i) differences += found[i] == std::byte{vtier::test::pattern(5, i)} ? 0U : 1U;
    CHECK(differences == 0);
    std::sort(descriptors.begin(), descriptors.end());
    descriptors.erase(std::unique(descriptors.begin(), descriptors.end()), descriptors.end());
    CHECK(descriptors.size() == file_count);
  };
  check(mapped_file{first.path(), {.budget = 1_MiB}}.make_slab(), 1);
  check(mapped_file{{first.path(), second.path()}, {.budget = 1_MiB, .stripe_bytes = 64_KiB}}.make_slab(), 2);
  check(mapped_file{{first.path(), second.path()}, {.budget = 1'000'000, .stripe_bytes = 20'000}}.make_slab(), 2);
}

TEST_CASE("a file slab that shrinks gives its space back to the file system", "[memory][mapped_file]") {
  const vtier::test::scratch_directory first;
  const vtier::test::scratch_directory second;
  const auto check = [](vtier::slab slab) {
    const auto space = [&] {
      std::size_t total = 0;
      std::vector<int> seen;
      for (std::size_t at = 0; at < slab.size_bytes(); at += 64_KiB) {
        const int file = slab.locate(at).descriptor;
        if (std::find(seen.begin(), seen.end(), file) != seen.end()) continue;
        seen.push_back(file);
        struct ::stat about {};
        REQUIRE(::fstat(file, &about) == 0);
        total += static_cast<std::size_t>(about.st_blocks) * 512;
      }
      return total;
    };
    slab.commit(1_MiB);
    if (space() < 1_MiB) {
      WARN("skipped: this file system does not count what is reserved");
      return;
    }
    std::memset(slab.base(), 3, 1_MiB);
    slab.shrink(256_KiB - 1);  // the block of the last byte stays
    CHECK(space() < 512_KiB);
    CHECK(slab.base()[256_KiB - 1] == std::byte{3});
    slab.commit(1_MiB);
    CHECK(space() >= 1_MiB);
    CHECK(slab.base()[256_KiB - 1] == std::byte{3});
    CHECK(slab.base()[256_KiB] == std::byte{0});
    slab.base()[1_MiB - 1] = std::byte{4};
  };
  check(mapped_file{first.path(), {.budget = 1_MiB}}.make_slab());
  check(mapped_file{{first.path(), second.path()}, {.budget = 1_MiB, .stripe_bytes = 64_KiB}}.make_slab());
}

TEST_CASE("a file slab says what direct I/O needs and that it is lazy", "[memory][mapped_file]") {
  const vtier::test::scratch_directory directory;
  const mapped_file memory{directory.path(), {.budget = 1_MiB, .name = "nvme", .queue_depth_max = 9}};
  const auto slab = memory.make_slab();
  const auto& properties = slab.properties();
  CHECK(properties.lazy);
  CHECK(properties.name == "nvme");
  vtier::notes remarks;
  const auto moves = slab.make_engine(remarks);
  REQUIRE(moves);
  CHECK(moves->depth_max() == 9);
  CHECK(properties.place.find(directory.path().string()) != std::string::npos);
  CHECK(properties.alignment_bytes % properties.offset_alignment_bytes == 0);
  CHECK(vtier::is_power_of_two(properties.offset_alignment_bytes));
  CHECK(vtier::is_power_of_two(properties.memory_alignment_bytes));
  struct ::stat about {};
  REQUIRE(::fstat(slab.locate(0).descriptor, &about) == 0);
  CHECK((about.st_mode & 07777) == 0600);
  CHECK(about.st_nlink == 0);
  const auto buffered = mapped_file{directory.path(), {.budget = 1_MiB, .direct = false}}.make_slab();
  CHECK(buffered.properties().offset_alignment_bytes == 1);
}

TEST_CASE("free space in pieces is told from free space", "[memory][mapped_file]") {
  const vtier::test::scratch_directory directory;
  const mapped_file memory{directory.path(), {.budget = 64_KiB}};
  std::vector<void*> held;
  for (int i = 0; i < 4; ++i) held.push_back(memory.allocate(16_KiB, 16));
  memory.deallocate(held[0], 16_KiB, 16);
  memory.deallocate(held[2], 16_KiB, 16);
  try {
    static_cast<void>(memory.allocate(32_KiB, 16));
    FAIL("neighbours were given that are not free");
  } catch (const vtier::out_of_memory& e) {
    const std::string text = e.what();
    CAPTURE(text);
    CHECK(e.free_bytes() == 32_KiB);
    CHECK(text.find("16 KiB in one piece") != std::string::npos);
  }
  CHECK(memory.free_bytes() == 32_KiB);
  memory.deallocate(held[1], 16_KiB, 16);
  memory.deallocate(memory.allocate(48_KiB, 16), 48_KiB, 16);
  memory.deallocate(held[3], 16_KiB, 16);
  CHECK(memory.free_bytes() == 64_KiB);
}

TEST_CASE("memory that was given back reads as zeros when it comes again", "[memory][mapped_file]") {
  const vtier::test::scratch_directory directory;
  const mapped_file memory{directory.path(), {.budget = 64_KiB}};
  for (int i = 0; i < 3; ++i) {
    auto* const p = static_cast<std::byte*>(memory.allocate(64_KiB, 16));
    CHECK(std::all_of(p, p + 64_KiB, [](std::byte b) { return b == std::byte{}; }));
    std::memset(p, 0xA5, 64_KiB);
    memory.deallocate(p, 64_KiB, 16);
  }
}

TEST_CASE("sizes that cannot be are refused with the reason", "[memory][mapped_file]") {
  const vtier::test::scratch_directory directory;
  const std::size_t most = (std::numeric_limits<std::size_t>::max)();
  CHECK_THROWS_AS((mapped_file{directory.path(), {.budget = most}}), vtier::usage_error);
  CHECK_THROWS_AS((mapped_file{std::vector<std::string>{}, {.budget = 1_MiB}}), vtier::usage_error);
  CHECK_THROWS_AS((mapped_file{directory.path(), {.budget = 0}}.make_slab()), vtier::usage_error);
  const mapped_file memory{directory.path(), {.budget = 1_MiB}};
  CHECK_THROWS_AS(memory.allocate(1, 1_MiB), vtier::usage_error);
  CHECK(memory.free_bytes() == 1_MiB);
}

// VO-B10
TEST_CASE("a directory that cannot be used is refused at once, with path and errno", "[memory][mapped_file]") {
  const vtier::test::scratch_directory directory;
  const fs::path& root = directory.path();
  std::ofstream{root / "file"} << "x";
  fs::create_directory(root / "real");
  fs::create_directory_symlink(root / "real", root / "link");
  CHECK(refusal(root / "real") == 0);
  CHECK(refusal(root / "absent") == ENOENT);
  CHECK(refusal(root / "absent" / "below") == ENOENT);
  CHECK(refusal(root / "file") == ENOTDIR);
  CHECK(refusal(root / "link") == ELOOP);
  CHECK(refusal(root / std::string(5'000, 'x')) == ENAMETOOLONG);
  CHECK(refusal("") == ENOENT);
  CHECK(refusal("/proc") > 0);
  // One bad directory among good ones is enough, and the good ones keep nothing.
  CHECK_THROWS_AS((mapped_file{{root / "real", root / "absent"}, {.budget = 1_MiB}}), vtier::io_error);
  CHECK(fs::is_empty(root / "real"));
}

TEST_CASE("a directory without permission is refused as such", "[memory][mapped_file]") {
  const vtier::test::scratch_directory directory;
  fs::permissions(directory.path(), fs::perms::owner_read | fs::perms::owner_exec | fs::perms::group_read |
                                        fs::perms::group_exec | fs::perms::others_read | fs::perms::others_exec);
  const auto end = vtier::test::in_child([&] {
    if (::geteuid() == 0 && ::setuid(65'534) != 0) ::_exit(skipped);
    if (::access(directory.path().c_str(), X_OK) != 0) ::_exit(skipped);  // not even reachable: nothing to be learnt
    const int error = refusal(directory.path());
    return expect(error == EACCES, "EACCES, got " + std::to_string(error));
  });
  fs::permissions(directory.path(), fs::perms::owner_all);
  if (end.exit_status == skipped) {
    WARN("skipped: no other user to be here");
    return;
  }
  CAPTURE(end.text);
  CHECK(end.exit_status == 0);
}

TEST_CASE("a read-only file system is refused as such", "[memory][mapped_file]") {
  const vtier::test::scratch_directory directory;
  const auto end = vtier::test::in_child([&] {
    if (!vtier::test::enter_own_mounts() || !vtier::test::mount_read_only(directory.path())) ::_exit(skipped);
    const int error = refusal(directory.path());
    return expect(error == EROFS, "EROFS, got " + std::to_string(error));
  });
  if (end.exit_status == skipped) {
    WARN("skipped: this system allows no mounts of one's own");
    return;
  }
  CAPTURE(end.text);
  CHECK(end.exit_status == 0);
}

// VO-B01: without reserved space the store into the mapping would end the child by SIGBUS.
TEST_CASE("a full disk is an error at the allocation, never a signal at a store", "[memory][mapped_file]") {
  const vtier::test::scratch_directory directory;
  const auto with_disk = [&](const auto& check) {
    const auto end = vtier::test::in_child([&] {
      if (!vtier::test::enter_own_mounts() || !vtier::test::mount_disk(directory.path(), 10_MiB)) ::_exit(skipped);
      return check();
    });
    if (end.exit_status == skipped) {
      WARN("skipped: this system allows no mounts of one's own");
      return;
    }
    CAPTURE(end.text, end.signal);
    CHECK(end.exit_status == 0);
  };

  SECTION("of single allocations") {
    with_disk([&] {
      const std::size_t disk = vtier::test::free_disk_bytes(directory.path());
      bool good = true;
      {
        const mapped_file memory{directory.path(), {.budget = 64_MiB}};
        vtier::test::written_blocks blocks{memory, vtier::test::host_bytes{}};
        const auto refused = [&] {
          try {
            blocks.add(1_MiB);
            return false;
          } catch (const vtier::io_error& e) {
            const std::string text = e.what();
            good = expect(e.code().value() == ENOSPC && text.find(directory.path().string()) != std::string::npos,
                          "ENOSPC with the path: " + text) &&
                   good;
          } catch (const vtier::out_of_memory& e) {
            good = expect(std::string{e.what()}.find("free") != std::string::npos, e.what()) && good;
          }
          return true;
        };
        while (blocks.blocks.size() < 64 && !refused()) {
        }
        const std::size_t held = blocks.blocks.size();
        good = expect(held >= 8 && held <= 10, "about ten, got " + std::to_string(held)) && good;
        good = expect(memory.free_bytes() == 64_MiB - held * 1_MiB, "the refused bytes uncharged") && good;
        blocks.remove(3);
        good = expect(!refused(), "room after one was given back") && good;
        good = expect(refused(), "no more room than that") && good;
        for (std::size_t i = 0; i < held; ++i) good = expect(blocks.intact(i), "old bytes intact") && good;
      }
      return expect(vtier::test::free_disk_bytes(directory.path()) == disk, "all space given back") && good;
    });
  }
  SECTION("of a slab") {
    with_disk([&] {
      const mapped_file memory{directory.path(), {.budget = 64_MiB}};
      auto slab = memory.make_slab();
      slab.commit(4_MiB);
      std::memset(slab.base(), 1, 4_MiB);
      bool threw = false;
      try {
        slab.commit(64_MiB);
      } catch (const vtier::error&) {
        threw = true;
      }
      bool good = expect(threw, "a refusal");
      slab.commit(8_MiB);  // less is possible still
      std::memset(slab.base() + 4_MiB, 2, 4_MiB);
      good = expect(slab.base()[4_MiB - 1] == std::byte{1} && slab.base()[8_MiB - 1] == std::byte{2}, "bytes") && good;
      return good;
    });
  }
  SECTION("of a pool") {
    with_disk([&] {
      const vtier::pool memory{mapped_file{directory.path(), {.budget = 64_MiB}}};
      vtier::test::written_blocks blocks{memory, vtier::test::host_bytes{}};
      bool threw = false;
      try {
        while (blocks.blocks.size() < 64) blocks.add(1_MiB);
      } catch (const vtier::error&) {
        threw = true;
      }
      const std::size_t held = blocks.blocks.size();
      bool good = expect(threw && held >= 8, "a refusal after about ten");
      good = expect(memory.used_bytes() == held * 1_MiB, "the refused bytes uncharged") && good;
      blocks.remove(0);
      blocks.add(1_MiB);
      for (std::size_t i = 0; i < held; ++i) good = expect(blocks.intact(i), "old bytes intact") && good;
      return good;
    });
  }
}

TEST_CASE("a forked child gives nothing back that is its parent's, and gets nothing of it (VO-C07)", "[memory]") {
  const vtier::test::scratch_directory directory;
  for (const bool striped : {false, true}) {
    CAPTURE(striped);
    const std::vector<std::string> where(striped ? 2 : 1, directory.path().string());
    auto memory = std::make_unique<mapped_file>(where, vtier::mapped_file_options{.budget = 8_MiB});
    auto tier = std::make_unique<mapped_file>(where, vtier::mapped_file_options{.budget = 8_MiB});
    auto slab = std::make_unique<vtier::slab>(tier->make_slab());
    slab->commit(1_MiB);
    auto* const bytes = static_cast<unsigned char*>(memory->allocate(1_MiB, 16));
    for (std::size_t i = 0; i < 1_MiB; ++i) bytes[i] = vtier::test::pattern(3, i);
    std::memset(slab->base(), 4, 1_MiB);
    const auto end = vtier::test::in_child([&] {
      int refused = 0;
      const auto attempt = [&](auto&& call) {
        try {
          call();
        } catch (const vtier::usage_error& e) {
          if (std::string{e.what()}.find("forked") != std::string::npos) ++refused;
        }
      };
      attempt([&] { static_cast<void>(memory->allocate(4096, 16)); });  // the parent would give out the same bytes
      attempt([&] { static_cast<void>(memory->make_slab()); });
      attempt([&] { slab->commit(2_MiB); });
      memory->deallocate(bytes, 1_MiB, 16);  // as the destructor of a container does when the child ends
      slab.reset();
      tier.reset();
      memory.reset();
      return refused == 3;
    });
    CAPTURE(end.text, end.signal);
    CHECK(end.exit_status == 0);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < 1_MiB; ++i) wrong += bytes[i] != vtier::test::pattern(3, i) ? 1U : 0U;
    CHECK(wrong == 0);
    CHECK(slab->base()[1_MiB - 1] == std::byte{4});
    CHECK(memory->free_bytes() == 7_MiB);
    memory->deallocate(bytes, 1_MiB, 16);
    CHECK(memory->free_bytes() == 8_MiB);
  }
}
