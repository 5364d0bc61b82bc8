// SPDX-License-Identifier: Apache-2.0
#pragma once

// A comparison of policies as a picture: a line for each scenario, a mark for each policy, from the bound to the right.
//
// The axis is logarithmic, since ratios are drawn, and begins at the bound. A mark that would be far out stands at the
// edge with its number.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

#include "scenario/scenario_table.hpp"
#include "support/spread.hpp"
#include "support/svg_text.hpp"

namespace vtier::bench {

namespace detail {

/// How a policy looks.
struct dot_style {
  const char* policy;
  const char* colour;
  const char* path;  // around the origin
};

// Small marks first: the library's own policy lies on top.
inline constexpr std::array<dot_style, 6> dot_styles{{
    {"fifo", "#94a3b8", "M-4.5 4 L4.5 4 L0 -4.5 z"},
    {"lru", "#475569", "M-4 -4 H4 V4 H-4 z"},
    {"static_split", "#16a34a", "M0 -5.5 L5.5 0 L0 5.5 L-5.5 0 z"},
    {"look_ahead", "#ea580c", "M-4.5 -4 L4.5 -4 L0 4.5 z"},
    {"optimum", "#0f172a", "M-1 -6 H1 V6 H-1 z"},
    {"schedule_aware", "#2563eb", "M-5.5 0 a5.5 5.5 0 1 0 11 0 a5.5 5.5 0 1 0 -11 0 z"},
}};

}  // namespace detail

/// Draws time over bound by policy for each scenario.
///
/// Needs   rows of one scenario beside each other
/// Gives   an SVG file without outside parts
[[nodiscard]] inline std::string draw_dots(const std::string& title, const std::vector<scenario_row>& rows) {
  constexpr double margin = 24;
  constexpr double label_width = 220;
  constexpr double plot_width = 680;
  constexpr double line_step = 21;
  constexpr double axis_top = 100;
  constexpr double ratio_max = 4.0;
  std::vector<std::vector<const scenario_row*>> lines;
  double most = 1.5;
  for (const scenario_row& r : rows) {
    if (lines.empty() || lines.back().front()->scenario != r.scenario) lines.emplace_back();
    lines.back().push_back(&r);
    most = (std::max)(most, r.time_ratio * 1.02);
  }
  const double full = (std::min)(most, ratio_max);
  const double left = margin + label_width;
  const double bottom = axis_top + line_step * static_cast<double>(lines.size()) + 6;
  const double width = left + plot_width + 70;
  const double height = bottom + 46;
  const auto place = [&](double ratio) {
    return left + plot_width * std::log((std::clamp)(ratio, 1.0, full)) / std::log(full);
  };

  std::ostringstream out;
  const auto text = [&](double x, double y, const char* style, const std::string& what) {
    out << "<text x=\"" << fixed(x, 1) << "\" y=\"" << fixed(y, 1) << "\" " << style << ">" << svg_text(what)
        << "</text>\n";
  };
  const auto mark = [&](const detail::dot_style& style, double x, double y) {
    out << "<path transform=\"translate(" << fixed(x, 1) << ' ' << fixed(y, 1) << ")\" d=\"" << style.path
        << "\" fill=\"" << style.colour << "\" stroke=\"#ffffff\" stroke-width=\"0.8\"/>\n";
  };
  out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << fixed(width, 0) << ' ' << fixed(height, 0)
      << "\" width=\"" << fixed(width, 0) << "\" height=\"" << fixed(height, 0)
      << "\" font-family=\"system-ui, sans-serif\" font-size=\"12\" fill=\"#334155\">\n<rect width=\"100%\" "
         "height=\"100%\" fill=\"#ffffff\"/>\n";
  text(margin, margin + 14, "font-size=\"17\" font-weight=\"600\" fill=\"#0f172a\"", title);
  text(margin, margin + 34, "fill=\"#64748b\"",
       "time of a training step over its lower bound, less is better; 1 is what no schedule can beat");
  double key_at = margin + 6;
  for (auto style = detail::dot_styles.rbegin(); style != detail::dot_styles.rend(); ++style) {
    const auto drawn = [&](const scenario_row& r) { return r.policy == style->policy; };
    if (std::none_of(rows.begin(), rows.end(), drawn)) continue;
    mark(*style, key_at, margin + 54);
    text(key_at + 11, margin + 58, "", style->policy);
    key_at += 40 + 7.5 * static_cast<double>(std::string{style->policy}.size());
  }
  for (const double tick : {1.0, 1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0}) {
    if (tick > full) break;
    out << "<path d=\"M" << fixed(place(tick), 1) << ' ' << fixed(axis_top - 6, 1) << " V" << fixed(bottom, 1)
        << "\" stroke=\"" << (tick > 1.0 ? "#e2e8f0" : "#64748b") << "\"/>\n";
    text(place(tick), bottom + 16, "text-anchor=\"middle\"", fixed(tick, tick * 10 == std::floor(tick * 10) ? 1 : 2));
  }
  text(left + plot_width / 2, bottom + 34, "text-anchor=\"middle\" fill=\"#64748b\"", "time / lower bound");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const double y = axis_top + line_step * (static_cast<double>(i) + 0.5);
    text(left - 12, y + 4, "text-anchor=\"end\"", lines[i].front()->scenario);
    out << "<path d=\"M" << fixed(left, 1) << ' ' << fixed(y, 1) << " H" << fixed(left + plot_width, 1)
        << "\" stroke=\"#f1f5f9\"/>\n";
    std::string beyond;
    for (const detail::dot_style& style : detail::dot_styles) {
      for (const scenario_row* r : lines[i]) {
        if (r->policy != style.policy) continue;
        mark(style, place(r->time_ratio), y);
        if (r->time_ratio > full) beyond += (beyond.empty() ? "" : ", ") + fixed(r->time_ratio, 1);
      }
    }
    if (!beyond.empty()) text(left + plot_width + 10, y + 4, "font-size=\"10\" fill=\"#64748b\"", beyond);
  }
  out << "</svg>\n";
  return out.str();
}

}  // namespace vtier::bench
