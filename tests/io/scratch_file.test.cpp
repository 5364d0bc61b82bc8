// SPDX-License-Identifier: Apache-2.0

#include <vtier/io/scratch_file.hpp>

#include <linux/magic.h>
#include <sys/vfs.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <type_traits>
#include <vector>

#include <vtier/io/blocking.hpp>
#include <vtier/io/threads.hpp>

#include "contract/file_engine.hpp"
#include "io/child.hpp"
#include "support/catch.hpp"
#include "support/scratch_directory.hpp"

using vtier::io::scratch_file;
using vtier::io::scratch_file_options;
using vtier::io::detail::posix_system;
using vtier::test::in_child;
using vtier::test::need;
using vtier::test::scratch_directory;
using namespace vtier::literals;

static_assert(!std::is_copy_constructible_v<scratch_file>);
static_assert(std::is_move_constructible_v<scratch_file> && std::is_move_assignable_v<scratch_file>);

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The real calls, but for answers that a test wants: the first function that gives a negative number decides.
struct scripted_system : posix_system {
  struct script {
    int tmpfile_error = 0;  // for O_TMPFILE
    int direct_error = 0;   // for O_DIRECT, after the file was made, as Linux does it
    int create_error = 0;   // for O_CREAT
    int unlink_error = 0;
    int names_taken = 0;  // so many names exist already
    int pwrite_error = 0;
    int fallocate_error = 0;
    int fallocate_interruptions = 0;
    std::size_t room_bytes = ~std::size_t{0};  // what pwrite takes before the drive is full
    std::function<void(struct ::statx&)> change_statx;
    std::vector<int> open_flags;
    std::vector<::mode_t> modes;
    std::vector<std::string> names;
    std::vector<std::string> unlinked;
    std::vector<std::size_t> allocated;
    int synchronised = 0;
  };
  std::shared_ptr<script> told = std::make_shared<script>();

  int openat(int directory, const char* name, int flags, ::mode_t mode) const {
    told->open_flags.push_back(flags);
    told->modes.push_back(mode);
    const bool unnamed = (flags & O_TMPFILE) == O_TMPFILE;
    if (unnamed && told->tmpfile_error != 0) return -told->tmpfile_error;
    if (!unnamed) {
      told->names.emplace_back(name);
      if (told->create_error != 0) return -told->create_error;
      if (told->names_taken-- > 0) return -EEXIST;
    }
    const int file = posix_system::openat(directory, name, flags & ~O_DIRECT, mode);
    if ((flags & O_DIRECT) != 0 && told->direct_error != 0 && file >= 0) {
      ::close(file);
      return -told->direct_error;
    }
    if ((flags & O_DIRECT) == 0 || file < 0) return file;
    if (::fcntl(file, F_SETFL, O_DIRECT) != 0) {  // the file system refuses it by itself
      ::close(file);
      return -EINVAL;
    }
    return file;
  }
  int unlinkat(int directory, const char* name) const {
    told->unlinked.emplace_back(name);
    return told->unlink_error != 0 ? -told->unlink_error : posix_system::unlinkat(directory, name);
  }
  int statx(int file, struct ::statx& about) const {
    const int result = posix_system::statx(file, about);
    if (result == 0 && told->change_statx) told->change_statx(about);
    return result;
  }
  int fallocate(int file, int mode, std::size_t offset, std::size_t size) const {
    if (told->fallocate_interruptions-- > 0) return -EINTR;
    if (told->fallocate_error != 0) return -told->fallocate_error;
    told->allocated.push_back(size);
    return posix_system::fallocate(file, mode, offset, size);
  }
  std::int64_t pwrite(int file, const std::byte* source, std::size_t size, std::size_t offset) const {
    if (told->pwrite_error != 0) return -told->pwrite_error;
    if (told->room_bytes == 0) return -ENOSPC;
    const std::size_t part = (std::min)(size, told->room_bytes);
    told->room_bytes -= part;
    return posix_system::pwrite(file, source, part, offset);
  }
  int fdatasync(int file) const {
    ++told->synchronised;
    return posix_system::fdatasync(file);
  }
};

template <class Call>
std::string refusal(int error_number, Call&& call) {
  try {
    call();
  } catch (const vtier::io_error& e) {
    CAPTURE(e.what());
    CHECK(e.code().value() == error_number);
    CHECK(has(e.what(), "(" + vtier::io::detail::errno_name(error_number) + ")"));
    return e.what();
  }
  CHECK(false);
  return "";
}

// Its notes, but for the one that some file systems cause in every file.
std::vector<std::string> notes_of(const scratch_file& file) {
  std::vector<std::string> kept = file.notes();
  std::erase_if(kept, [](const std::string& note) { return has(note, "does not tell the alignment"); });
  return kept;
}

std::size_t mode_of(const scratch_file& file) {
  struct ::stat about {};
  REQUIRE(::fstat(file.descriptor(), &about) == 0);
  CHECK(about.st_nlink == 0);  // no name
  return about.st_mode & 0777U;
}

void move_some(scratch_file& file) {
  vtier::io::threads engine;
  const vtier::test::page_bytes memory{64_KiB};
  vtier::test::fill_bytes(memory.span(), 1);
  const vtier::io::blocking_options parts{16_KiB, file.alignment_bytes()};
  vtier::io::write_exact(engine, file.descriptor(), 4096, memory.span(), file.path(), parts);
  const vtier::test::page_bytes back{64_KiB};
  vtier::io::read_exact(engine, file.descriptor(), 4096, back.span(), file.path(), parts);
  CHECK(vtier::test::count_wrong(back.span(), 1) == 0);
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) count += entry.exists() ? 1U : 0U;
  return count;
}

}  // namespace

TEST_CASE("scratch_file: unnamed, private, and gone with its owner") {
  const scratch_directory place;
  const std::size_t before = open_descriptors();
  {
    auto file = scratch_file::create(place.path());
    CHECK(place.empty());
    CHECK(mode_of(file) == 0600);
    CHECK((::fcntl(file.descriptor(), F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(file.path() == place.path().string());
    struct ::stat about {};
    REQUIRE(::fstat(file.descriptor(), &about) == 0);
    CHECK(about.st_size == 0);  // the probe left nothing
    CHECK(((::fcntl(file.descriptor(), F_GETFL) & O_DIRECT) != 0) == file.direct());
    if (file.direct()) {
      CHECK(vtier::is_power_of_two(file.alignment_bytes()));
      CHECK(vtier::is_power_of_two(file.memory_alignment_bytes()));
      CHECK(file.alignment_bytes() >= 512);
    } else {
      WARN("no direct I/O here: " + notes_of(file).front());
    }
    move_some(file);
    auto moved = std::move(file);
    move_some(moved);
    auto other = scratch_file::create(place.path());
    other = std::move(moved);
    move_some(other);
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("scratch_file: buffered when asked, without a note") {
  const scratch_directory place;
  scratch_file_options options;
  options.direct = false;
  auto file = scratch_file::create(place.path(), options);
  CHECK_FALSE(file.direct());
  CHECK(file.alignment_bytes() == 1);
  CHECK(file.memory_alignment_bytes() == 1);
  CHECK(notes_of(file).empty());
  move_some(file);
}

TEST_CASE("scratch_file: what a directory lacks is found out for each directory (VO-B03)") {
  const scratch_directory a;
  const scratch_directory b;
  for (const int error : {EOPNOTSUPP, EISDIR, ENOSYS, EINVAL}) {
    for (const bool direct : {true, false}) {
      CAPTURE(error, direct);
      scratch_file_options options;
      options.direct = direct;
      scripted_system lacks;
      lacks.told->tmpfile_error = error;
      lacks.told->names_taken = 2;
      const scripted_system has_it;
      auto in_a = scratch_file::create(a.path(), options, lacks);
      auto in_b = scratch_file::create(b.path(), options, has_it);
      CHECK(a.empty());
      CHECK(mode_of(in_a) == 0600);
      CHECK(lacks.told->modes.back() == 0600);
      const int flags = lacks.told->open_flags.back();
      CHECK((flags & (O_CREAT | O_EXCL | O_NOFOLLOW)) == (O_CREAT | O_EXCL | O_NOFOLLOW));
      REQUIRE(lacks.told->names.size() == 3);
      CHECK(lacks.told->names[0] != lacks.told->names[1]);
      CHECK(lacks.told->names[0].size() >= 32);
      CHECK(lacks.told->unlinked == std::vector<std::string>{lacks.told->names[2]});
      REQUIRE(notes_of(in_a).size() == 1);
      CHECK(has(notes_of(in_a).front(), vtier::io::detail::errno_name(error)));
      CHECK(in_a.direct() == in_b.direct());  // O_DIRECT is another question
      CHECK(has_it.told->open_flags.size() == 1);
      CHECK(has_it.told->names.empty());
      CHECK(notes_of(in_b).empty());
      move_some(in_a);
      move_some(in_b);
    }
  }
}

TEST_CASE("scratch_file: errors that are no missing feature are reported, not retried (VO-B03)") {
  const scratch_directory place;
  for (const int error : {EACCES, ENOSPC, EROFS, EMFILE, EDQUOT, EIO}) {
    scripted_system system;
    system.told->tmpfile_error = error;
    const std::string said = refusal(error, [&] { auto file = scratch_file::create(place.path(), {}, system); });
    CHECK(has(said, place.path().string()));
    CHECK(system.told->open_flags.size() == 1);
    scripted_system second;
    second.told->tmpfile_error = EOPNOTSUPP;
    second.told->create_error = error;
    refusal(error, [&] { auto file = scratch_file::create(place.path(), {}, second); });
    CHECK(second.told->open_flags.size() == 3);  // with O_DIRECT, without, under a name
  }
  SECTION("names that all exist end in an error, not in a loop") {
    scripted_system system;
    system.told->tmpfile_error = EOPNOTSUPP;
    system.told->names_taken = 1000;
    refusal(EEXIST, [&] { auto file = scratch_file::create(place.path(), {}, system); });
  }
  SECTION("a name that cannot be removed is told") {
    scripted_system system;
    system.told->tmpfile_error = EOPNOTSUPP;
    system.told->unlink_error = EPERM;
    const std::string said = refusal(EPERM, [&] { auto file = scratch_file::create(place.path(), {}, system); });
    CHECK(has(said, system.told->names.front()));
  }
}

TEST_CASE("scratch_file: O_DIRECT refused at open or at the first transfer goes on buffered (VO-B02)") {
  const scratch_directory place;
  scripted_system system;
  std::string reason;
  SECTION("at open") {
    system.told->direct_error = EINVAL;
    reason = "EINVAL at open";
  }
  SECTION("at open, in another way") {
    system.told->direct_error = EOPNOTSUPP;
    reason = "EOPNOTSUPP at open";
  }
  SECTION("at open, and no O_TMPFILE") {
    system.told->tmpfile_error = EINVAL;
    system.told->direct_error = EINVAL;
    reason = "EINVAL at open";
  }
  SECTION("at open of a named file, in another way") {
    system.told->tmpfile_error = EISDIR;
    system.told->direct_error = EOPNOTSUPP;
    reason = "EOPNOTSUPP at open";
  }
  SECTION("at the first transfer") {
    system.told->pwrite_error = EINVAL;
    reason = "EINVAL at the first transfer";
  }
#ifdef STATX_DIOALIGN
  SECTION("said by statx") {
    system.told->change_statx = [](struct ::statx& about) {
      about.stx_mask |= STATX_DIOALIGN;
      about.stx_dio_offset_align = 0;
      about.stx_dio_mem_align = 0;
    };
    reason = "statx";
  }
#endif
  auto file = scratch_file::create(place.path(), {}, system);
  CHECK_FALSE(file.direct());
  CHECK((::fcntl(file.descriptor(), F_GETFL) & O_DIRECT) == 0);
  CHECK(file.alignment_bytes() == 1);
  int said = 0;
  for (const std::string& note : notes_of(file)) said += has(note, "direct I/O is refused (" + reason + ")") ? 1 : 0;
  CHECK(said == 1);
  CHECK(notes_of(file).size() == (system.told->tmpfile_error != 0 ? 2U : 1U));
  CHECK(place.empty());  // also what O_CREAT made before O_DIRECT was refused
  system.told->pwrite_error = 0;
  move_some(file);
}

TEST_CASE("scratch_file: an error that is no refusal of O_DIRECT is not swallowed (VO-B02)") {
  const scratch_directory place;
  for (const int error : {EACCES, ENOENT, EPERM, ENOSPC, EIO}) {
    scripted_system system;
    system.told->direct_error = error;
    refusal(error, [&] { auto file = scratch_file::create(place.path(), {}, system); });
    CHECK(system.told->open_flags.size() == 1);  // no second try without it
    scripted_system named;
    named.told->tmpfile_error = EISDIR;
    named.told->direct_error = error;
    refusal(error, [&] { auto file = scratch_file::create(place.path(), {}, named); });
    CHECK(named.told->open_flags.size() == 2);
  }
}

TEST_CASE("scratch_file: an error of the first transfer that is no refusal is an error") {
  const scratch_directory place;
  for (const int error : {ENOSPC, EIO, EDQUOT, EACCES, ENOENT}) {
    scripted_system system;
    system.told->pwrite_error = error;
    refusal(error, [&] { auto file = scratch_file::create(place.path(), {}, system); });
  }
}

TEST_CASE("scratch_file: the alignment is the file system's word, or a block that every drive takes") {
  const scratch_directory place;
  scripted_system system;
#ifdef STATX_DIOALIGN
  SECTION("told by statx") {
    system.told->change_statx = [](struct ::statx& about) {
      about.stx_mask |= STATX_DIOALIGN;
      about.stx_dio_offset_align = 8192;
      about.stx_dio_mem_align = 1024;
    };
    const auto file = scratch_file::create(place.path(), {}, system);
    if (!file.direct()) return;
    CHECK(file.alignment_bytes() == 8192);
    CHECK(file.memory_alignment_bytes() == 1024);
    CHECK(file.notes().empty());
  }
  SECTION("not told") {
    for (const auto& [block, wanted] : std::map<unsigned, std::size_t>{
             {512, 4096}, {4096, 4096}, {16384, 16384}, {1048576, 4096}, {5000, 4096}, {0, 4096}}) {
      system.told->change_statx = [block = block](struct ::statx& about) {
        about.stx_mask &= ~STATX_DIOALIGN;
        about.stx_blksize = block;
      };
      const auto file = scratch_file::create(place.path(), {}, system);
      if (!file.direct()) return;
      CAPTURE(block);
      CHECK(file.alignment_bytes() == wanted);
      CHECK(file.memory_alignment_bytes() == wanted);
      REQUIRE(file.notes().size() == 1);
      CHECK(has(file.notes().front(), vtier::format_bytes(wanted)));
    }
  }
#endif
}

TEST_CASE("scratch_file: directories that cannot be used (VO-B10)") {
  const scratch_directory place;
  const std::filesystem::path base = place.path();
  std::ofstream{base / "file"} << "text";
  std::filesystem::create_directory(base / "real");
  std::filesystem::create_directory_symlink(base / "real", base / "link");
  std::filesystem::create_directory_symlink(base / "nowhere", base / "dangling");
  const std::size_t before = open_descriptors();
  const auto refused = [](int error, const std::filesystem::path& path, const std::string& advice) {
    const std::string said = refusal(error, [&] { const auto file = scratch_file::create(path); });
    CHECK(has(said, "'" + path.string().substr(0, 128)));
    CHECK(has(said, advice));
    CHECK(said.size() < 1000);
  };
  refused(ENOENT, base / "missing", "make it first");
  refused(ENOTDIR, base / "file", "not a directory");
  refused(ENOTDIR, base / "file" / "below", "not a directory");
  refused(ELOOP, base / "link", "links are not followed");
  refused(ELOOP, (base / "link").string() + "/", "links are not followed");
  refused(ELOOP, (base / "link").string() + "//./", "links are not followed");
  refused(ELOOP, base / "dangling", "links are not followed");
  refused(ENAMETOOLONG, base / std::string(5000, 'x'), "shorter");
  refused(ENOENT, "", "empty");
  CHECK(has(refusal(EINVAL, [&] { const auto file = scratch_file::create(base / std::string("real\0x", 6)); }),
            "real?x'"));
  try {
    const auto file = scratch_file::create("/proc");
    CHECK(false);
  } catch (const vtier::io_error& e) {
    CHECK(has(e.what(), "'/proc'"));
    CHECK(e.code().value() != 0);
  }
  CHECK(open_descriptors() == before);
  CHECK(std::filesystem::is_empty(base / "real"));
  // What only looks alike works.
  CHECK(scratch_file::create((base / "real").string() + "/./").descriptor() >= 0);
  CHECK(scratch_file::create(base / "link" / ".." / "real").descriptor() >= 0);
}

TEST_CASE("scratch_file: a directory without permission, as an ordinary user (VO-B10)") {
  const std::string answer = in_child([]() -> std::string {
    const scratch_directory place;
    std::filesystem::permissions(place.path(), std::filesystem::perms{0755});
    const auto closed = place.path() / "closed";
    const auto open = place.path() / "open";
    for (const auto& each : {closed, open}) std::filesystem::create_directory(each);
    std::filesystem::permissions(closed, std::filesystem::perms{0555});
    std::filesystem::permissions(open, std::filesystem::perms{0777});
    // A process of its own drops the rights, so that this one can clean up.
    return in_child([&]() -> std::string {
      vtier::test::become_ordinary_user();
      scratch_file works = scratch_file::create(open);
      works.reserve(0, 1_MiB);
      try {
        const auto file = scratch_file::create(closed);
      } catch (const vtier::io_error& e) {
        need(e.code().value() == EACCES, "EACCES");
        need(has(e.what(), "'" + closed.string() + "'") && has(e.what(), "owner"), e.what());
        return "refused";
      }
      return "not refused";
    });
  });
  CHECK(answer == "refused");
}

TEST_CASE("scratch_file: a file system that is mounted read-only (VO-B10)") {
  const scratch_directory place;
  const std::string answer = in_child([&]() -> std::string {
    const char* const path = place.path().c_str();
    if (!vtier::test::own_mounts() || ::mount(path, path, nullptr, MS_BIND, nullptr) != 0 ||
        ::mount(nullptr, path, nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
      return vtier::test::cannot_run + "no mounts of one's own";
    }
    try {
      const auto file = scratch_file::create(place.path());
    } catch (const vtier::io_error& e) {
      need(e.code().value() == EROFS, "EROFS");
      return has(e.what(), "read-only") ? "refused" : e.what();
    }
    return "not refused";
  });
  if (answer.starts_with(vtier::test::cannot_run)) {
    WARN(answer);
  } else {
    CHECK(answer == "refused");
  }
}

TEST_CASE("scratch_file: space is reserved before it is promised, and given back") {
  const scratch_directory place;
  auto file = scratch_file::create(place.path());
  CHECK(file.reserved_bytes() == 0);
  file.reserve(0, 4_MiB);
  CHECK(file.reserved_bytes() >= 4_MiB);
  CHECK(file.reserved_bytes() < 5_MiB);
  file.reserve(1_MiB, 4_MiB);  // overlaps
  CHECK(file.reserved_bytes() >= 5_MiB);
  CHECK(file.reserved_bytes() < 6_MiB);
  move_some(file);
  file.reserve(0, 5_MiB);
  vtier::io::threads engine;
  const vtier::test::page_bytes back{64_KiB};
  vtier::io::read_exact(engine, file.descriptor(), 4096, back.span(), file.path(), {64_KiB, file.alignment_bytes()});
  CHECK(vtier::test::count_wrong(back.span(), 1) == 0);  // reserving again keeps bytes
  file.reserve(0, 0);
  file.release(0, 0);
  file.release(1_MiB, 2_MiB);
  if (file.reserved_bytes() >= 5_MiB) {
    WARN("no holes here");
  } else {
    CHECK(file.reserved_bytes() >= 3_MiB);
    CHECK(file.reserved_bytes() < 4_MiB);
  }
  file.reserve(1_MiB, 2_MiB);
  CHECK(file.reserved_bytes() >= 5_MiB);
  CHECK(notes_of(file).empty());
}

TEST_CASE("scratch_file: a full drive is an error that says what is free, and the file is as before") {
  const scratch_directory place;
  const std::string answer = in_child([&]() -> std::string {
    if (!vtier::test::own_mounts() || ::mount("vtier", place.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
      return vtier::test::cannot_run + "no mounts of one's own";
    }
    auto file = scratch_file::create(place.path());
    file.reserve(0, 256_KiB);
    for (int again = 0; again < 2; ++again) {
      try {
        file.reserve(256_KiB, 8_MiB);
        return "not refused";
      } catch (const vtier::io_error& e) {
        const std::string said = e.what();
        need(e.code().value() == ENOSPC, "ENOSPC");
        need(has(said, "cannot reserve 8 MiB") && has(said, "'" + place.path().string() + "'"), said);
        need(has(said, "768 KiB are free"), said);
      }
    }
    need(file.reserved_bytes() == 256_KiB, "reserved as before");
    struct ::stat about {};
    need(::fstat(file.descriptor(), &about) == 0 && about.st_size == 256 * 1024, "length as before");
    file.reserve(256_KiB, 512_KiB);  // what is there can still be had
    return "refused";
  });
  if (answer.starts_with(vtier::test::cannot_run)) {
    WARN(answer);
  } else {
    CHECK(answer == "refused");
  }
}

TEST_CASE("scratch_file: a file larger than allowed is an error, not a signal") {
  const scratch_directory place;
  const std::string answer = in_child([&]() -> std::string {
    const ::rlimit limit{1U << 20U, 1U << 20U};
    need(::setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
    auto file = scratch_file::create(place.path());
    file.reserve(0, 1_MiB);
    try {
      file.reserve(0, 1_MiB + 1);
    } catch (const vtier::io_error& e) {
      return e.code().value() == EFBIG && has(e.what(), "ulimit -f") ? "refused" : e.what();
    }
    return "not refused";
  });
  CHECK(answer == "refused");
  auto file = scratch_file::create(place.path());
  refusal(EFBIG, [&] { file.reserve(~std::size_t{0} - 100, 4096); });
  refusal(EFBIG, [&] { file.reserve(std::size_t{1} << 63U, 4096); });
  CHECK(file.reserved_bytes() == 0);
}

TEST_CASE("scratch_file: without fallocate the range is written, bytes stay, and a note says so once") {
  const scratch_directory place;
  for (const int error : {EOPNOTSUPP, ENOSYS}) {
    for (const bool direct : {true, false}) {
      CAPTURE(error, direct);
      scratch_file_options options;
      options.direct = direct;
      scripted_system system;
      system.told->fallocate_error = error;
      auto file = scratch_file::create(place.path(), options, system);
      file.reserve(4096, 64_KiB, system);
      CHECK(file.reserved_bytes() >= 64_KiB);
      CHECK(system.told->synchronised == 1);
      move_some(file);  // [4096, 68 KiB)
      // Over the bytes, a hole before them, and new ground behind; ends inside blocks.
      file.reserve(100, 3_MiB + 77, system);
      CHECK(file.reserved_bytes() >= 3_MiB + 177);
      vtier::io::threads engine;
      const vtier::test::page_bytes back{3_MiB};
      vtier::io::read_exact(engine, file.descriptor(), 0, back.span(), file.path(), {1_MiB, file.alignment_bytes()});
      CHECK(vtier::test::count_wrong(back.span().subspan(4096, 64_KiB), 1) == 0);
      CHECK(std::count(back.data(), back.data() + 4096, std::byte{}) == 4096);
      CHECK(std::count(back.data() + 68_KiB, back.data() + 3_MiB, std::byte{}) ==
            static_cast<std::ptrdiff_t>(3_MiB - 68_KiB));
      CHECK(notes_of(file).size() == 1);
      CHECK(has(notes_of(file).front(), "no fallocate"));
      file.release(0, 1_MiB, system);  // best effort: says nothing
    }
  }
  SECTION("on a drive that fills up meanwhile") {
    scripted_system system;
    auto file = scratch_file::create(place.path(), {}, system);
    file.reserve(0, 64_KiB, system);
    system.told->fallocate_error = EOPNOTSUPP;
    system.told->room_bytes = 1_MiB + 4096;
    const std::string said = refusal(ENOSPC, [&] { file.reserve(64_KiB, 4_MiB, system); });
    CHECK(has(said, "cannot reserve 4 MiB"));
    CHECK(file.reserved_bytes() < 128_KiB);
    struct ::stat about {};
    REQUIRE(::fstat(file.descriptor(), &about) == 0);
    CHECK(about.st_size == 64 * 1024);
  }
}

TEST_CASE("scratch_file: errors of fallocate that mean something are not taken for a missing feature") {
  const scratch_directory place;
  for (const int error : {ENOSPC, EDQUOT, EIO, EFBIG}) {
    scripted_system system;
    auto file = scratch_file::create(place.path(), {}, system);
    system.told->fallocate_error = error;
    refusal(error, [&] { file.reserve(0, 1_MiB, system); });
    CHECK(file.reserved_bytes() == 0);
    CHECK(system.told->synchronised == 0);
  }
}

TEST_CASE("scratch_file: an interrupted fallocate goes on in smaller parts and reserves all") {
  const scratch_directory place;
  scripted_system system;
  auto file = scratch_file::create(place.path(), {}, system);
  system.told->fallocate_interruptions = 3;
  file.reserve(0, 8_MiB, system);
  CHECK(system.told->allocated == std::vector<std::size_t>(8, 1_MiB));
  CHECK(file.reserved_bytes() >= 8_MiB);
  system.told->allocated.clear();
  system.told->fallocate_interruptions = 100;
  file.reserve(8_MiB, 1_MiB, system);
  CHECK(system.told->allocated == std::vector<std::size_t>(16, 64_KiB));
}

TEST_CASE("scratch_file: a process that is killed leaves nothing behind (VO-B03)") {
  for (const int error : {0, EOPNOTSUPP}) {
    const scratch_directory place;
    const std::string answer = in_child([&]() -> std::string {
      scripted_system system;
      system.told->tmpfile_error = error;
      auto file = scratch_file::create(place.path(), {}, system);
      file.reserve(0, 1_MiB);
      ::kill(::getpid(), SIGKILL);
      return "alive";
    });
    CHECK(answer == "signal 9");
    CHECK(place.empty());
  }
}

// Without O_TMPFILE there is a name for the moment between two system calls; nothing can take it away from outside.
TEST_CASE("scratch_file: killed while it has a name, a process leaves one empty file that disturbs nobody (VO-B08)") {
  struct killed_before_unlink : posix_system {
    int openat(int directory, const char* name, int flags, ::mode_t mode) const {
      if ((flags & O_TMPFILE) == O_TMPFILE) return -EOPNOTSUPP;
      return posix_system::openat(directory, name, flags, mode);
    }
    int unlinkat(int, const char*) const {
      ::kill(::getpid(), SIGKILL);
      return 0;
    }
  };
  const scratch_directory place;
  for (std::size_t killed = 1; killed <= 3; ++killed) {
    const std::string answer = in_child([&]() -> std::string {
      auto file = scratch_file::create(place.path(), {}, killed_before_unlink{});
      return "alive";
    });
    CHECK(answer == "signal 9");
    std::size_t left = 0;
    for (const auto& entry : std::filesystem::directory_iterator{place.path()}) {
      struct ::stat about {};
      REQUIRE(::stat(entry.path().c_str(), &about) == 0);
      CHECK(has(entry.path().filename().string(), ".vtier-"));
      CHECK(about.st_blocks == 0);  // no space is reserved before the name is gone
      CHECK((about.st_mode & 0777U) == 0600);
      ++left;
    }
    CHECK(left == killed);
    auto next = scratch_file::create(place.path());
    next.reserve(0, 1_MiB);
    move_some(next);
  }
}

TEST_CASE("scratch_file: on tmpfs (VO-B02)") {
  const std::filesystem::path shared = "/dev/shm";
  struct ::statfs about {};
  if (::statfs(shared.c_str(), &about) != 0 || about.f_type != TMPFS_MAGIC) {
    WARN("skipped: no tmpfs at /dev/shm");
    return;
  }
  for (const bool direct : {true, false}) {
    scratch_file_options options;
    options.direct = direct;
    auto file = scratch_file::create(shared, options);
    CHECK(file.notes().size() == (direct ? 1U : 0U));  // refused by old kernels, its alignment unknown on new ones
    file.reserve(0, 1_MiB);
    CHECK(file.reserved_bytes() >= 1_MiB);
    move_some(file);
    file.release(0, 1_MiB);
    CHECK(file.reserved_bytes() == 0);
  }
}

TEST_CASE("scratch_file: reserving under a storm of signals") {
  const scratch_directory place;
  std::vector<std::filesystem::path> places{place.path()};
  if (std::filesystem::is_directory("/dev/shm")) places.emplace_back("/dev/shm");
  for (const auto& each : places) {
    CAPTURE(each.string());
    auto file = scratch_file::create(each);
    const vtier::test::signal_storm storm;
    file.reserve(0, 64_MiB);
    CHECK(file.reserved_bytes() >= 64_MiB);
  }
}
