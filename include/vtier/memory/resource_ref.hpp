// SPDX-License-Identifier: Apache-2.0
#pragma once

// Any resource of one kind of memory behind one type: for the edge of a program, where a plug-in or a configuration
// says which it is.
//
// Inside of the library resources are template parameters; this is for code that cannot be a template. Kinds stay
// apart: whoever takes host memory does not get a device's by accident.

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/memory/resource.hpp>
#include <vtier/memory/slab.hpp>

namespace vtier {

namespace detail {

/// Marks a type by its own address, where there is no run-time type information.
template <class T>
inline constexpr char type_mark = 0;

/// The members of a resource as virtual functions.
class any_resource {
 public:
  any_resource() = default;
  any_resource(const any_resource&) = delete;
  any_resource& operator=(const any_resource&) = delete;
  virtual ~any_resource() = default;
  [[nodiscard]] virtual void* allocate(std::size_t size_bytes, std::size_t alignment_bytes) const = 0;
  virtual void deallocate(void* pointer, std::size_t size_bytes, std::size_t alignment_bytes) const noexcept = 0;
  [[nodiscard]] virtual slab make_slab() const = 0;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual std::size_t free_bytes() const = 0;
  [[nodiscard]] virtual std::vector<std::string> notes() const = 0;
  [[nodiscard]] virtual bool equals(const any_resource& other) const noexcept = 0;
  [[nodiscard]] virtual const void* type() const noexcept = 0;
};

template <resource R>
class some_resource final : public any_resource {
 public:
  explicit some_resource(R from) : from_{std::move(from)} {}
  [[nodiscard]] void* allocate(std::size_t size_bytes, std::size_t alignment_bytes) const override {
    return from_.allocate(size_bytes, alignment_bytes);
  }
  void deallocate(void* pointer, std::size_t size_bytes, std::size_t alignment_bytes) const noexcept override {
    from_.deallocate(pointer, size_bytes, alignment_bytes);
  }
  [[nodiscard]] slab make_slab() const override { return from_.make_slab(); }
  [[nodiscard]] std::string name() const override { return from_.name(); }
  [[nodiscard]] std::size_t free_bytes() const override { return from_.free_bytes(); }
  [[nodiscard]] std::vector<std::string> notes() const override { return from_.notes(); }
  [[nodiscard]] bool equals(const any_resource& other) const noexcept override {
    return type() == other.type() && from_ == static_cast<const some_resource&>(other).from_;
  }
  [[nodiscard]] const void* type() const noexcept override { return &type_mark<R>; }

 private:
  R from_;
};

}  // namespace detail

/// A handle to a resource of one kind whose type is forgotten.
///
/// Gives   a resource that keeps the one behind it alive. Equal to another one over an equal resource of the same type;
///         over the same resource by way of two shared libraries that hide their symbols it may be unequal, never the
///         other way round. It is not stream-ordered: the type of the stream is forgotten too
/// Errors  whatever the resource behind it says
/// Threads as the resource behind it
/// Cost    one allocation when it is made, none for copies; one indirect call for each call
template <memory_kind Kind>
class resource_ref {
 public:
  static constexpr memory_kind kind = Kind;

  // Explicit: a conversion that is looked for in every copy of an adaptor of a resource_ref would ask whether that
  // adaptor is a resource, which asks whether it can be copied.
  template <class R>
  requires(!std::is_same_v<R, resource_ref> && R::kind == Kind && resource<R>) explicit resource_ref(R from)
      : from_{std::make_shared<const detail::some_resource<R>>(std::move(from))} {}
  // No moves: what was moved from would be no resource any more.
  resource_ref(const resource_ref&) noexcept = default;
  resource_ref& operator=(const resource_ref&) noexcept = default;
  ~resource_ref() = default;

  [[nodiscard]] void* allocate(std::size_t size_bytes, std::size_t alignment_bytes) const {
    return from_->allocate(size_bytes, alignment_bytes);
  }
  void deallocate(void* pointer, std::size_t size_bytes, std::size_t alignment_bytes) const noexcept {
    from_->deallocate(pointer, size_bytes, alignment_bytes);
  }
  [[nodiscard]] slab make_slab() const { return from_->make_slab(); }
  [[nodiscard]] std::string name() const { return from_->name(); }
  [[nodiscard]] std::size_t free_bytes() const { return from_->free_bytes(); }
  [[nodiscard]] std::vector<std::string> notes() const { return from_->notes(); }

  friend bool operator==(const resource_ref& a, const resource_ref& b) noexcept { return a.from_->equals(*b.from_); }

 private:
  std::shared_ptr<const detail::any_resource> from_;
};

template <resource R>
resource_ref(R) -> resource_ref<R::kind>;

/// Any device memory.
using device_resource_ref = resource_ref<memory_kind::device>;
/// Any memory of the host.
using host_resource_ref = resource_ref<memory_kind::host>;
/// Any memory in files.
using file_resource_ref = resource_ref<memory_kind::file>;

static_assert(resource<device_resource_ref> && !host_resource<device_resource_ref>);
static_assert(host_resource<host_resource_ref> && host_resource<file_resource_ref>);

}  // namespace vtier
