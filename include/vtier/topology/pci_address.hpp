// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where a device sits on the PCI bus, as a value that can be compared.
//
// A file of its own because the text forms differ (the kernel, CUDA and lspci write the same address in three ways) and
// because four digits are not enough for a domain: drives behind a volume-management device sit at 0x10000 and up.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <vtier/core/config.hpp>

namespace vtier {

/// A PCI address: domain, bus, device, function.
///
/// Units   device 0 to 31, function 0 to 7; the domain has 32 bits
/// Threads as any value
struct pci_address {
  std::uint32_t domain = 0;
  std::uint8_t bus = 0;
  std::uint8_t device = 0;
  std::uint8_t function = 0;

  /// Reads "0000:3b:00.0", "10001:8a:00.0", "00000000:3B:00.0" or, in domain 0, "3b:00.0".
  ///
  /// Gives   empty where the text is not a PCI address; never throws
  [[nodiscard]] static constexpr std::optional<pci_address> parse(std::string_view text) noexcept {
    // From the right, because only the domain varies in length.
    if (text.size() < 7) return std::nullopt;
    const std::string_view tail = text.substr(text.size() - 7);
    std::string_view domain_text = text.substr(0, text.size() - 7);
    std::uint32_t domain = 0;
    if (!domain_text.empty()) {
      if (domain_text.back() != ':') return std::nullopt;
      domain_text.remove_suffix(1);
      const auto value = parse_hex(domain_text, 8);
      if (!value) return std::nullopt;
      domain = *value;
    }
    const auto bus = parse_hex(tail.substr(0, 2), 2);
    const auto device = parse_hex(tail.substr(3, 2), 2);
    const auto function = parse_hex(tail.substr(6, 1), 1);
    if (tail[2] != ':' || tail[5] != '.' || !bus || !device || !function) return std::nullopt;
    if (*device > 31 || *function > 7) return std::nullopt;
    return pci_address{domain, static_cast<std::uint8_t>(*bus), static_cast<std::uint8_t>(*device),
                       static_cast<std::uint8_t>(*function)};
  }

  /// Writes the address as the kernel does: lower case, the domain with four digits or as many as it needs.
  [[nodiscard]] std::string to_string() const {
    return hex(domain, 4) + ':' + hex(bus, 2) + ':' + hex(device, 2) + '.' + hex(function, 1);
  }

  friend constexpr bool operator==(const pci_address&, const pci_address&) noexcept = default;

 private:
  [[nodiscard]] static constexpr std::optional<std::uint32_t> parse_hex(std::string_view text,
                                                                        std::size_t digits_max) noexcept {
    if (text.empty() || text.size() > digits_max) return std::nullopt;
    std::uint32_t value = 0;
    for (const char c : text) {
      std::uint32_t digit = 0;
      if (c >= '0' && c <= '9') {
        digit = static_cast<std::uint32_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        digit = static_cast<std::uint32_t>(c - 'a') + 10U;
      } else if (c >= 'A' && c <= 'F') {
        digit = static_cast<std::uint32_t>(c - 'A') + 10U;
      } else {
        return std::nullopt;
      }
      value = (value << 4U) | digit;
    }
    return value;
  }

  [[nodiscard]] static std::string hex(std::uint32_t value, std::size_t digits_min) {
    std::string text;
    for (; value != 0 || text.size() < digits_min; value >>= 4U) {
      text.insert(text.begin(), "0123456789abcdef"[value & 15U]);
    }
    return text;
  }
};

}  // namespace vtier
