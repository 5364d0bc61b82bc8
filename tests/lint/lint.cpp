// SPDX-License-Identifier: Apache-2.0
// lint ROOT: holds a tree against the house rules. lint --self-test: shows on small bad trees that each rule can fail.

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "rules.hpp"

namespace {

namespace fs = std::filesystem;
using tree = std::map<std::string, std::string>;

const std::string licence = "// SPDX-License-Identifier: Apache-2.0\n";

std::string header(const std::string& body) { return licence + "#pragma once\n" + body; }

// A tree that breaks no rule; each case changes one thing.
tree good() {
  return {
      {"include/vtier/core/a.hpp", header("")},
      {"include/vtier/memory/b.hpp", header("#include <vtier/core/a.hpp>\n#include <vtier/memory/detail/c.hpp>\n")},
      {"include/vtier/memory/detail/c.hpp", header("")},
      {"include/vtier/device/d.hpp", header("")},
      {"include/vtier/device/detail/cuda_e.hpp", header("#include <cuda.h>\n")},
      {"include/vtier/tier.hpp",
       header("#include <vtier/core/a.hpp>\n#include <vtier/device/d.hpp>\n#include <vtier/memory/b.hpp>\n")},
      {"tests/core/a.test.cpp", licence},
      {"tests/memory/b.test.cpp", licence},
      {"tests/device/d.test.cpp", licence},
  };
}

lint::findings look(const tree& files) {
  std::string name = (fs::temp_directory_path() / "vtier-lint-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) std::abort();
  for (const auto& [path, text] : files) {
    fs::create_directories((fs::path{name} / path).parent_path());
    std::ofstream{fs::path{name} / path} << text;
  }
  auto found = lint::check(name);
  fs::remove_all(name);
  return found;
}

int self_test() {
  struct bad {
    const char* word;  // of the breach that must be found
    const char* path;
    std::string text;
  };
  std::string lines;
  for (int i = 0; i < 500; ++i) lines += "//\n";
  const std::vector<bad> cases{
      {"not a room above", "include/vtier/core/a.hpp", header("#include <vtier/memory/b.hpp>\n")},
      {"not a room above", "include/vtier/device/d.hpp", header("#include <vtier/io/e.hpp>\n")},
      {"detail of memory", "include/vtier/memory/../transfer/f.hpp", header("#include <vtier/memory/detail/c.hpp>\n")},
      {"no room below it", "include/vtier/memory/b.hpp", header("#include <vtier/tier.hpp>\n")},
      {"not there", "include/vtier/memory/b.hpp", header("#include <vtier/core/nothing.hpp>\n")},
      {"full name", "include/vtier/memory/b.hpp", header("#include \"a.hpp\"\n")},
      {"in no room", "include/vtier/shelf/g.hpp", header("")},
      {"only topology/hwloc.hpp", "include/vtier/memory/b.hpp", header("#include <hwloc.h>\n")},
      {"only topology/numa.hpp", "include/vtier/memory/b.hpp", header("#include <numaif.h>\n")},
      {"only device/cuda.hpp", "include/vtier/memory/b.hpp", header("#include <cuda_runtime_api.h>\n")},
      {"only device/cuda.hpp", "include/vtier/memory/b.hpp", header("#include <cuda.h>\n")},
      {"only memory/cuda_mr.hpp", "include/vtier/memory/b.hpp", header("#include <cuda/memory_resource>\n")},
      {"only device/cuda.hpp", "include/vtier/device/detail/other.hpp", header("#include <cuda.h>\n")},
      {"only device/cuda.hpp", "include/vtier/io/detail/cuda_x.hpp", header("#include <cuda.h>\n")},
      {"only io/uring.hpp", "include/vtier/memory/b.hpp", header("#include <liburing.h>\n")},
      {"only train/adam.hpp", "include/vtier/memory/b.hpp", header("#include <omp.h>\n")},
      {"has no test", "include/vtier/core/h.hpp", header("")},
      {"tests no header", "tests/core/nothing.test.cpp", licence},
      {"licence line", "include/vtier/core/a.hpp", "#pragma once\n"},
      {"licence line", "tests/support/x.hpp", "#pragma once\n"},
      {"no #pragma once", "include/vtier/core/a.hpp", licence},
      {"400 are the most", "include/vtier/core/a.hpp", header(lines)},
      {"120 columns", "include/vtier/core/a.hpp", header("// " + std::string(130, 'x') + "\n")},
      {"has a tab", "bench/x/x.cpp", licence + "\tint x;\n"},
      {"macros begin with", "include/vtier/core/a.hpp", header("#define THING 1\n")},
      {"stand in core/config", "include/vtier/core/a.hpp", header("#define VTIER_THING 1\n")},
      {"without parentheses", "include/vtier/core/a.hpp", header("int x = std::max(1, 2);\n")},
      {"without parentheses", "include/vtier/core/a.hpp", header("int x = std::numeric_limits<int>::max();\n")},
      {"prints", "include/vtier/core/a.hpp", header("void f() { std::cerr << 1; }\n")},
      {"run-time type", "include/vtier/core/a.hpp", header("void* f(void* x) { return dynamic_cast<void*>(x); }\n")},
      {"does not include core/a.hpp", "include/vtier/tier.hpp", header("")},
      {"included on purpose", "include/vtier/tier.hpp",
       good().at("include/vtier/tier.hpp") + "#include <vtier/interop/i.hpp>\n"},
      {"top level", "notes.txt", ""},
  };
  int failures = 0;
  if (const auto found = look(good()); !found.breaches.empty()) {
    std::cerr << "the good tree has a breach: " << found.breaches.front() << '\n';
    ++failures;
  }
  for (const bad& one : cases) {
    tree files = good();
    files[fs::path{one.path}.lexically_normal().generic_string()] = one.text;
    files.emplace("include/vtier/io/e.hpp", header(""));
    files.emplace("include/vtier/interop/i.hpp", header(""));
    const auto found = look(files);
    bool seen = false;
    for (const std::string& breach : found.breaches) seen = seen || breach.find(one.word) != std::string::npos;
    if (!seen) {
      std::cerr << "not found: \"" << one.word << "\" in " << one.path << '\n';
      ++failures;
    }
  }
  std::cout << cases.size() << " bad trees, " << failures << " not noticed\n";
  return failures == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char* argv[]) {
  if (argc != 2) {
    std::cerr << "lint ROOT | lint --self-test\n";
    return 2;
  }
  if (std::string{argv[1]} == "--self-test") return self_test();
  const auto found = lint::check(argv[1]);
  for (const std::string& remark : found.remarks) std::cout << "long: " << remark << '\n';
  for (const std::string& breach : found.breaches) std::cerr << breach << '\n';
  std::cout << found.breaches.size() << " breaches\n";
  return found.breaches.empty() ? 0 : 1;
}
