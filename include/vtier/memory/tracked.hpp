// SPDX-License-Identifier: Apache-2.0
#pragma once

// Who holds how much of a memory, and who never gave it back: an account of each allocation by a label of the user's.
//
// The label is plain text, so that this stands below tensors and their roles. It is a debugging aid for earnest runs:
// one lock and one node of a map for each allocation, nothing in the memory itself, so that it serves device memory.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/memory/detail/adaptor.hpp>
#include <vtier/memory/resource.hpp>

namespace vtier {

/// A line of a program.
///
/// Gives   by here(), as a default argument, the line of whoever calls
struct call_site {
  const char* file = "";
  int line = 0;
  [[nodiscard]] static constexpr call_site here(const char* file = __builtin_FILE(),
                                                int line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

/// What is held under one label, and was at most.
///
/// Units   bytes as asked
struct role_usage {
  std::size_t live_bytes = 0;
  std::size_t peak_bytes = 0;
  std::size_t live_count = 0;   // allocations that are held now
  std::size_t total_count = 0;  // and all that ever were
};

/// An allocation that has not been given back.
struct outstanding_allocation {
  const void* pointer = nullptr;
  std::size_t size_bytes = 0;
  std::string role;
  call_site where;

  /// One line for people: "48 KiB for activations from train.cpp:17 at 0x7f...".
  [[nodiscard]] std::string text() const;
};

/// How a `tracked` resource is labelled, and who is told of leaks.
struct tracked_options {
  std::string role = "any";
  // Called when the last handle goes while allocations are held; what it throws is dropped.
  std::function<void(const std::vector<outstanding_allocation>&)> on_leak = {};
};

namespace detail {

/// An address as text.
[[nodiscard]] inline std::string address_text(const void* pointer) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (auto value = reinterpret_cast<std::uintptr_t>(pointer); value != 0 || text.empty(); value /= 16) {
    text.insert(text.begin(), digits[value % 16]);
  }
  return "0x" + text;
}

/// The account behind the handles of a `tracked` resource.
class allocation_account {
 public:
  using role_entry = std::pair<const std::string, role_usage>;

  explicit allocation_account(std::function<void(const std::vector<outstanding_allocation>&)> on_leak)
      : on_leak_{std::move(on_leak)} {}
  allocation_account(const allocation_account&) = delete;
  allocation_account& operator=(const allocation_account&) = delete;
  ~allocation_account() {
    if (live_.empty() || !on_leak_) return;
    try {
      on_leak_(outstanding());
    } catch (...) {  // a destructor has nobody to tell
    }
  }

  /// The entry of a role, which stays where it is.
  [[nodiscard]] role_entry& entry(const std::string& role) {
    const std::scoped_lock hold{lock_};
    return *roles_.try_emplace(role).first;
  }

  void add(void* pointer, std::size_t size_bytes, role_entry& role, call_site where) {
    const std::scoped_lock hold{lock_};
    const bool is_new = live_.try_emplace(pointer, record{size_bytes, &role, where, ++last_number_}).second;
    VTIER_ASSERT(is_new, "a resource has given an address that it had given already");
    for (role_usage* const usage : {&role.second, &total_}) {
      usage->live_bytes += size_bytes;
      usage->peak_bytes = (std::max)(usage->peak_bytes, usage->live_bytes);
      ++usage->live_count;
      ++usage->total_count;
    }
  }

  void remove(void* pointer, std::size_t size_bytes) noexcept {
    const std::scoped_lock hold{lock_};
    const auto at = live_.find(pointer);
    VTIER_ASSERT(at != live_.end(), unknown(pointer).c_str());
    const record found = at->second;
    VTIER_ASSERT(found.size_bytes == size_bytes, wrong_size(pointer, found, size_bytes).c_str());
    live_.erase(at);
    freed_[freed_count_++ % freed_max] = {pointer, found};
    for (role_usage* const usage : {&found.role->second, &total_}) {
      usage->live_bytes -= size_bytes;
      --usage->live_count;
    }
  }

  [[nodiscard]] role_usage total() const {
    const std::scoped_lock hold{lock_};
    return total_;
  }
  [[nodiscard]] role_usage usage(const std::string& role) const {
    const std::scoped_lock hold{lock_};
    const auto at = roles_.find(role);
    return at == roles_.end() ? role_usage{} : at->second;
  }
  [[nodiscard]] std::vector<std::string> roles() const {
    const std::scoped_lock hold{lock_};
    std::vector<std::string> names;
    for (const auto& [role, usage] : roles_) names.push_back(role);
    return names;
  }

  [[nodiscard]] std::vector<outstanding_allocation> outstanding() const {
    const std::scoped_lock hold{lock_};
    std::vector<std::pair<const void*, record>> all(live_.begin(), live_.end());
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second.number < b.second.number; });
    std::vector<outstanding_allocation> list;
    for (const auto& [pointer, r] : all) list.push_back({pointer, r.size_bytes, r.role->first, r.where});
    return list;
  }

 private:
  struct record {
    std::size_t size_bytes = 0;
    role_entry* role = nullptr;
    call_site where;
    std::size_t number = 0;  // in order of allocation
  };
  static constexpr std::size_t freed_max = 256;  // how far back a second free is told from a foreign pointer

  [[nodiscard]] static std::string text(const void* pointer, const record& r) {
    return outstanding_allocation{pointer, r.size_bytes, r.role->first, r.where}.text();
  }
  [[nodiscard]] static std::string wrong_size(const void* pointer, const record& r, std::size_t size_bytes) {
    return "a tracked allocation came back as " + std::to_string(size_bytes) + " bytes, asked were " +
           std::to_string(r.size_bytes) + ": " + text(pointer, r);
  }
  [[nodiscard]] std::string unknown(const void* pointer) const {
    const std::size_t kept = (std::min)(freed_count_, freed_max);
    for (std::size_t back = 1; back <= kept; ++back) {
      const auto& [freed, r] = freed_[(freed_count_ - back) % freed_max];
      if (freed == pointer) return "a tracked allocation was given back twice: " + text(pointer, r);
    }
    return "a foreign pointer was given back to a tracked resource, which never gave it: " + address_text(pointer);
  }

  mutable std::mutex lock_;
  std::map<std::string, role_usage> roles_;
  role_usage total_;
  std::map<void*, record> live_;
  std::vector<std::pair<void*, record>> freed_ = std::vector<std::pair<void*, record>>(freed_max);  // a ring
  std::size_t freed_count_ = 0;
  std::size_t last_number_ = 0;
  std::function<void(const std::vector<outstanding_allocation>&)> on_leak_;
};

template <resource Upstream>
struct tracked_state {
  tracked_state(Upstream from, std::function<void(const std::vector<outstanding_allocation>&)> on_leak)
      : upstream{std::move(from)}, account{std::move(on_leak)} {}
  Upstream upstream;
  allocation_account account;
};

}  // namespace detail

inline std::string outstanding_allocation::text() const {
  return format_bytes(size_bytes) + " for " + role + " from " + where.file + ":" + std::to_string(where.line) + " at " +
         detail::address_text(pointer);
}

/// A resource that keeps an account of what it gave, by label.
///
/// Gives   a resource; handles with other labels by with_role(), over the same account: they compare equal, and what
///         one gave another may take back. The call site is that of the outermost call: put this outside of other
///         adaptors. A slab belongs to its owner and is not in the account
/// Errors  whatever the resource below says; a second free, a foreign pointer and a size that is not the one that was
///         asked are asserted against, in words that name which
/// Threads any, where the resource below allows it
/// Cost    one lock and one node of a map for each allocation
template <resource Upstream>
class tracked : public detail::adaptor<tracked<Upstream>, Upstream, detail::tracked_state<Upstream>> {
  using state_type = detail::tracked_state<Upstream>;
  using base = detail::adaptor<tracked<Upstream>, Upstream, state_type>;
  using stream_or_none = typename detail::stream_names<Upstream>::or_none;

 public:
  explicit tracked(Upstream upstream, tracked_options options = {})
      : base{std::make_shared<state_type>(std::move(upstream), std::move(options.on_leak))},
        role_{&this->state().account.entry(options.role)} {}

  [[nodiscard]] void* allocate(std::size_t size_bytes, std::size_t alignment_bytes,
                               call_site where = call_site::here()) const {
    if (this->is_nothing(size_bytes, alignment_bytes)) return nullptr;
    return keep(size_bytes, alignment_bytes, this->in_host_order(), where);
  }
  [[nodiscard]] void* allocate(stream_or_none stream, std::size_t size_bytes, std::size_t alignment_bytes,
                               call_site where = call_site::here()) const requires stream_ordered_resource<Upstream> {
    if (this->is_nothing(size_bytes, alignment_bytes)) return nullptr;
    return keep(size_bytes, alignment_bytes, this->in_stream_order(stream), where);
  }

  /// The same memory and account under another label.
  [[nodiscard]] tracked with_role(const std::string& role) const {
    tracked other = *this;
    other.role_ = &this->state().account.entry(role);
    return other;
  }

  [[nodiscard]] const std::string& role() const noexcept { return role_->first; }
  /// What is held under all labels.
  [[nodiscard]] role_usage usage() const { return this->state().account.total(); }
  /// What is held under one label; zeros where nobody used it.
  [[nodiscard]] role_usage usage(const std::string& role) const { return this->state().account.usage(role); }
  /// All labels that there are handles for, in the order of the alphabet.
  [[nodiscard]] std::vector<std::string> roles() const { return this->state().account.roles(); }
  /// What has not been given back, in the order of allocation.
  [[nodiscard]] std::vector<outstanding_allocation> outstanding() const { return this->state().account.outstanding(); }

 private:
  friend base;

  template <class Order>
  [[nodiscard]] void* keep(std::size_t size_bytes, std::size_t alignment_bytes, const Order& order,
                           call_site where) const {
    void* const pointer = order.allocate(size_bytes, alignment_bytes);
    try {
      this->state().account.add(pointer, size_bytes, *role_, where);
    } catch (...) {
      order.deallocate(pointer, size_bytes, alignment_bytes);
      throw;
    }
    return pointer;
  }

  template <class Order>
  void take_back(void* pointer, std::size_t size_bytes, std::size_t alignment_bytes,
                 const Order& order) const noexcept {
    // The account first: the resource below may give the address to somebody else at once.
    this->state().account.remove(pointer, size_bytes);
    order.deallocate(pointer, size_bytes, alignment_bytes);
  }

  detail::allocation_account::role_entry* role_;
};

}  // namespace vtier
