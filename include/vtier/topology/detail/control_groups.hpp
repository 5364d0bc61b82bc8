// SPDX-License-Identifier: Apache-2.0
#pragma once

// The control groups of this process, from its own up to the root: where limits stand.
//
// A file of its own because each limit is the smallest on that way, in both generations of groups, and two of them need
// the same walk.

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/topology/detail/text_files.hpp>

namespace vtier::detail {

/// Shows the directory of each group on the way up: `visit(directory, unified)`, where `unified` says that the files in
/// it are those of version 2. In version 1 only the tree of the controller is walked.
///
/// Source  cgroups(7)
template <class Visit>
void for_each_group(const system_roots& roots, std::string_view controller, Visit&& visit) {
  const auto groups = read_text(roots.proc + "/self/cgroup");
  if (!groups) return;
  std::string_view rest = *groups;
  while (!rest.empty()) {
    const std::size_t end = (std::min)(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);  // "4:cpu,cpuacct:/job" or "0::/job"
    rest.remove_prefix((std::min)(end + 1, rest.size()));
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string controllers{line.substr(first + 1, second - first - 1)};
    const bool unified = controllers.empty();
    const std::string wanted = ',' + std::string{controller} + ',';
    if (!unified && (',' + controllers + ',').find(wanted) == std::string::npos) continue;
    const std::string mount = roots.sys + "/fs/cgroup";
    std::vector<std::string> bases{unified ? mount : mount + '/' + std::string{controller}};
    if (unified) bases.push_back(mount + "/unified");  // where both versions are mounted
    // A container may show the host's path here and only its own tree there: what is missing on the way says nothing.
    for (std::string group{line.substr(second + 1)};; group = parent_path(group)) {
      for (const std::string& base : bases) visit(base + (group == "/" ? std::string{} : group), unified);
      if (group.empty() || group == "/") break;
    }
  }
}

}  // namespace vtier::detail
