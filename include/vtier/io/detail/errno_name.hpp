// SPDX-License-Identifier: Apache-2.0
#pragma once

// An errno by its name, and a path cut to a length that a message can carry.
//
// A file of its own because every message of this room names its errno: "EPERM" can be searched for, "Operation not
// permitted" is translated. The C library's own function for it is not in every C library.

#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>

#include <vtier/core/config.hpp>

namespace vtier::io::detail {

/// The name of an errno: "ENOENT"; "errno 4711" for one that files and rings do not give.
///
/// Threads any
/// Cost    one string
[[nodiscard]] inline std::string errno_name(int error_number) {
  switch (error_number) {
    case 0: return "no error";
    case E2BIG: return "E2BIG";
    case EACCES: return "EACCES";
    case EAGAIN: return "EAGAIN";
    case EBADF: return "EBADF";
    case EBUSY: return "EBUSY";
    case ECANCELED: return "ECANCELED";
    case EDQUOT: return "EDQUOT";
    case EEXIST: return "EEXIST";
    case EFAULT: return "EFAULT";
    case EFBIG: return "EFBIG";
    case EINTR: return "EINTR";
    case EINVAL: return "EINVAL";
    case EIO: return "EIO";
    case EISDIR: return "EISDIR";
    case ELOOP: return "ELOOP";
    case EMFILE: return "EMFILE";
    case ENAMETOOLONG: return "ENAMETOOLONG";
    case ENFILE: return "ENFILE";
    case ENODATA: return "ENODATA";
    case ENODEV: return "ENODEV";
    case ENOENT: return "ENOENT";
    case ENOLCK: return "ENOLCK";
    case ENOMEM: return "ENOMEM";
    case ENOSPC: return "ENOSPC";
    case ENOSYS: return "ENOSYS";
    case ENOTDIR: return "ENOTDIR";
    case ENXIO: return "ENXIO";
    case EOPNOTSUPP: return "EOPNOTSUPP";
    case EOVERFLOW: return "EOVERFLOW";
    case EPERM: return "EPERM";
    case EROFS: return "EROFS";
    case ESPIPE: return "ESPIPE";
    case ESTALE: return "ESTALE";
    case ETIME: return "ETIME";
    case ETIMEDOUT: return "ETIMEDOUT";
    case ETXTBSY: return "ETXTBSY";
    default: return "errno " + std::to_string(error_number);
  }
}

/// A path in quotes, its middle left out where it is too long for a message, control characters as '?'.
///
/// Threads any
/// Cost    one string
[[nodiscard]] inline std::string path_text(std::string_view path) {
  constexpr std::size_t characters_max = 256;
  std::string text = "'";
  if (path.size() <= characters_max) {
    text += path;
  } else {
    text += path.substr(0, characters_max / 2);
    text += "...";
    text += path.substr(path.size() - characters_max / 2);
  }
  text += '\'';
  for (char& c : text) c = static_cast<unsigned char>(c) < 0x20U || c == 0x7F ? '?' : c;
  return text;
}

}  // namespace vtier::io::detail
