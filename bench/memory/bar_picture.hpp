// SPDX-License-Identifier: Apache-2.0
#pragma once

// A comparison of allocators as a picture: one panel for each workload, one bar for each allocator.
//
// Bars of a panel have one linear scale that begins at zero. One that would dwarf the others is cut, and marked so; its
// number stands beside it.

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

#include "memory/allocator_table.hpp"
#include "support/spread.hpp"
#include "support/svg_text.hpp"

namespace vtier::bench {

/// Draws ns per pair by allocator for each workload.
///
/// Needs   rows of one workload beside each other
/// Gives   an SVG file without outside parts
[[nodiscard]] inline std::string draw_bars(const std::string& title, const std::vector<allocator_row>& rows) {
  std::vector<std::vector<const allocator_row*>> panels;
  for (const auto& r : rows) {
    if (panels.empty() || !same_workload(*panels.back().front(), r)) panels.emplace_back();
    panels.back().push_back(&r);
  }
  constexpr double columns = 2;
  constexpr double panel_width = 500;
  constexpr double bar_step = 19;
  constexpr double bar_left = 165;
  constexpr double bar_most = 245;
  constexpr double margin = 24;
  std::size_t most_bars = 1;
  for (const auto& p : panels) most_bars = (std::max)(most_bars, p.size());
  const double panel_height = 44 + bar_step * static_cast<double>(most_bars);
  const double line_count = static_cast<double>((panels.size() + 1) / 2);
  const double width = 2 * margin + columns * panel_width;
  const double height = 2 * margin + 50 + line_count * panel_height;

  std::ostringstream out;
  const auto text = [&](double x, double y, const char* style, const std::string& what) {
    out << "<text x=\"" << fixed(x, 1) << "\" y=\"" << fixed(y, 1) << "\" " << style << ">" << svg_text(what)
        << "</text>\n";
  };
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << fixed(width, 0) << ' ' << fixed(height, 0)
      << "\" width=\"" << fixed(width, 0) << "\" height=\"" << fixed(height, 0)
      << "\" font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#334155\">\n<rect width=\"100%\" "
         "height=\"100%\" fill=\"#ffffff\"/>\n";
  text(margin, margin + 14, "font-size=\"17\" font-weight=\"600\" fill=\"#0f172a\"", title);
  text(margin, margin + 34, "fill=\"#64748b\"",
       "ns for one allocation and one free, less is better; median, thin line: 95 % interval or range of the runs");
  for (std::size_t i = 0; i < panels.size(); ++i) {
    const auto& panel = panels[i];
    const double left = margin + static_cast<double>(i % 2) * panel_width;
    const double top = margin + 56 + static_cast<double>(i / 2) * panel_height;
    std::vector<double> medians;
    for (const auto* r : panel) medians.push_back(r->ns_per_pair.median);
    std::sort(medians.begin(), medians.end());
    const double full = (std::min)(medians.back(), 6.0 * medians[(medians.size() - 1) / 2]);
    const auto scaled = [&](double ns) { return bar_most * (std::min)(ns / (full > 0.0 ? full : 1.0), 1.0); };
    text(left, top + 12, "font-weight=\"600\"", title_of(*panel.front()));
    for (std::size_t j = 0; j < panel.size(); ++j) {
      const allocator_row& r = *panel[j];
      const double y = top + 20 + bar_step * static_cast<double>(j);
      const bool own = r.allocator.rfind("vtier", 0) == 0;
      const bool cut = r.ns_per_pair.median > full;
      text(left + bar_left - 8, y + 12, own ? "text-anchor=\"end\" font-weight=\"600\"" : "text-anchor=\"end\"",
           r.allocator);
      out << "<rect x=\"" << fixed(left + bar_left, 1) << "\" y=\"" << fixed(y + 2, 1) << "\" width=\""
          << fixed((std::max)(scaled(r.ns_per_pair.median), 1.0), 1) << "\" height=\"13\" fill=\""
          << (own ? "#2563eb" : "#cbd5e1") << "\"/>\n";
      if (cut) {
        const double x = left + bar_left + bar_most - 14;
        out << "<path d=\"M" << fixed(x, 1) << ' ' << fixed(y + 16, 1) << " l5 -15 h4 l-5 15 z\" fill=\"#ffffff\"/>\n";
      } else {
        out << "<path d=\"M" << fixed(left + bar_left + scaled(r.ns_per_pair.low), 1) << ' ' << fixed(y + 8.5, 1)
            << " H" << fixed(left + bar_left + scaled(r.ns_per_pair.high), 1)
            << "\" stroke=\"#475569\" stroke-width=\"1\"/>\n";
      }
      const double value_at = left + bar_left + scaled((std::max)(r.ns_per_pair.median, r.ns_per_pair.high)) + 6;
      text(value_at, y + 12, "", fixed(r.ns_per_pair.median, r.ns_per_pair.median < 100 ? 1 : 0));
    }
  }
  out << "</svg>\n";
  return out.str();
}

}  // namespace vtier::bench
