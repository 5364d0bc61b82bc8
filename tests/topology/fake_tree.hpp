// SPDX-License-Identifier: Apache-2.0
#pragma once

// A directory tree in the form of /sys and /proc, for machines that nobody here owns. Gone at the end of the test.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include <vtier/topology/sysfs.hpp>

namespace vtier::test {

class fake_tree {
 public:
  fake_tree() {
    const char* const base = std::getenv("TMPDIR");
    std::string name = std::string{base != nullptr ? base : "/tmp"} + "/vtier-tree-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no scratch folder: is TMPDIR writable?");
    root_ = name;
    std::filesystem::create_directories(root_ / "sys");
    std::filesystem::create_directories(root_ / "proc");
  }
  fake_tree(const fake_tree&) = delete;
  fake_tree& operator=(const fake_tree&) = delete;
  ~fake_tree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  [[nodiscard]] system_roots roots() const { return {(root_ / "sys").string(), (root_ / "proc").string()}; }

  // Paths begin with "sys/" or "proc/".
  void file(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream{root_ / path} << text << '\n';
  }
  void link(const std::string& path, const std::string& target) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::filesystem::create_directories(root_ / target);
    std::filesystem::create_directory_symlink(root_ / target, root_ / path);
  }

  void node(unsigned number, const std::string& cpus, std::size_t memory_bytes, const std::string& distances) const {
    const std::string base = "sys/devices/system/node/node" + std::to_string(number) + "/";
    file(base + "cpulist", cpus);
    file(base + "meminfo", "Node " + std::to_string(number) +
                               " MemTotal:       " + std::to_string(memory_bytes / 1024) + " kB\nNode " +
                               std::to_string(number) + " MemFree:        1 kB");
    if (!distances.empty()) file(base + "distance", distances);
  }

  // A PCI function below a root; `numa_node` is the text of that file, none where it is empty.
  void pci(const std::string& directory, const std::string& address, const std::string& vendor,
           const std::string& device_class, const std::string& numa_node) const {
    const std::string base = "sys/devices/" + directory + "/" + address;
    file(base + "/vendor", vendor);
    file(base + "/class", device_class);
    if (!numa_node.empty()) file(base + "/numa_node", numa_node == "empty" ? "" : numa_node);
    link("sys/bus/pci/devices/" + address, base);
  }

 private:
  std::filesystem::path root_;
};

}  // namespace vtier::test
