// SPDX-License-Identifier: Apache-2.0
#pragma once

// A timeline as a file that Perfetto and chrome://tracing open: tracks of steps, stalls, leases by role and transfers
// by link, and a counter for each tier.
//
// Pure: it makes text of values. Slices of one track of the format must not overlap, so a track is as many rows as are
// needed at a time.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/observe/detail/json.hpp>
#include <vtier/observe/detail/trace_words.hpp>
#include <vtier/residency/role.hpp>
#include <vtier/runtime/timeline.hpp>

namespace vtier {

/// A timeline in the Chrome trace event format, printable.
///
/// Units   microseconds of the device's time with three decimals, as the format has them; counters in bytes
/// Threads as any value
/// Source  "Trace Event Format", the document that chrome://tracing names; https://ui.perfetto.dev opens it
class trace : public timeline {
 public:
  explicit trace(timeline recorded) : timeline{std::move(recorded)} {}

  /// All of it: one JSON object with a newline behind it.
  ///
  /// Cost    about 200 bytes for each event
  [[nodiscard]] std::string text() const {
    std::string all;
    write([&](std::string_view piece) { all += piece; });
    return all;
  }

  /// Gives the same to `to(std::string_view)` piece by piece, without ever having all of it in memory.
  template <class To>
  void write(To&& to) const {
    const layout rows = lay_out();
    std::string head = "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"lost_count\":\"" + std::to_string(lost_count) +
                       "\"},\"traceEvents\":[";
    const auto emit = [&](const std::string& event) {
      to(std::string_view{head});
      head = ",";
      to(std::string_view{"\n" + event});
    };
    for (const auto& [group, title] : groups) {
      emit(metadata("process_name", group, 0, "\"name\":" + detail::json_string(title)));
      emit(metadata("process_sort_index", group, 0, "\"sort_index\":" + std::to_string(group)));
    }
    for (std::size_t i = 0; i < rows.tracks.size(); ++i) {
      for (std::size_t row = 0; row < rows.tracks[i].rows; ++row) {
        const std::string title = row == 0 ? title_of(i) : title_of(i) + " (" + std::to_string(row + 1) + ")";
        const std::size_t thread = rows.tracks[i].first_thread + row;
        emit(metadata("thread_name", group_of(i), thread, "\"name\":" + detail::json_string(title)));
        emit(metadata("thread_sort_index", group_of(i), thread, "\"sort_index\":" + std::to_string(thread)));
      }
    }
    for (std::size_t i = 0; i < events.size(); ++i) {
      const timeline_event& e = events[i];
      if (e.kind == timeline_kind::occupancy) {
        emit(counter(e.tier, e.begin_ns, e.size_bytes));
      } else {
        const std::size_t track = track_of(e);
        emit(slice(e, group_of(track), rows.tracks[track].first_thread + rows.row[i]));
      }
    }
    for (std::size_t i = 0; i < tiers.size(); ++i) emit(counter(i, now_ns, tiers[i].used_bytes));
    to(std::string_view{"\n]}\n"});
  }

  /// Prints it. A template, so that whoever never prints need not include <ostream>.
  template <class Traits>
  friend std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& to, const trace& t) {
    t.write([&](std::string_view piece) { to.write(piece.data(), static_cast<std::ptrdiff_t>(piece.size())); });
    return to;
  }

 private:
  // Groups of tracks are processes to the format.
  static constexpr std::size_t host_group = 1;
  static constexpr std::size_t lease_group = 2;
  static constexpr std::size_t transfer_group = 3;
  static constexpr std::size_t tier_group = 4;
  static constexpr std::pair<std::size_t, std::string_view> groups[] = {{host_group, "vtier: steps and stalls"},
                                                                        {lease_group, "vtier: leases"},
                                                                        {transfer_group, "vtier: transfers"},
                                                                        {tier_group, "vtier: bytes in tiers"}};

  // Tracks by number: steps, stalls, leases by role, links by from * tiers + to.
  static constexpr std::size_t step_track = 0;
  static constexpr std::size_t stall_track = 1;
  static constexpr std::size_t lease_track = 2;
  static constexpr std::size_t transfer_track = lease_track + role_count;

  [[nodiscard]] std::size_t track_of(const timeline_event& e) const noexcept {
    switch (e.kind) {
      case timeline_kind::step: return step_track;
      case timeline_kind::stall: return stall_track;
      case timeline_kind::lease: return lease_track + static_cast<std::size_t>(e.what);
      default: return transfer_track + e.from * tiers.size() + e.tier;
    }
  }

  [[nodiscard]] static std::size_t group_of(std::size_t track) noexcept {
    if (track >= transfer_track) return transfer_group;
    return track >= lease_track ? lease_group : host_group;
  }

  [[nodiscard]] std::string title_of(std::size_t track) const {
    if (track == step_track) return "steps";
    if (track == stall_track) return "stalls";
    if (track < transfer_track) return std::string{name(all_roles[track - lease_track])};
    const std::size_t link = track - transfer_track;
    return tiers[link / tiers.size()].name + " -> " + tiers[link % tiers.size()].name;
  }

  struct track_rows {
    std::size_t first_thread = 0;  // the rows of a track are threads to the format
    std::size_t rows = 0;
  };
  struct layout {
    std::vector<track_rows> tracks;
    std::vector<std::size_t> row;  // of each event
  };

  // Puts each event on the first row of its track that is free at its begin.
  [[nodiscard]] layout lay_out() const {
    layout result;
    result.tracks.resize(transfer_track + tiers.size() * tiers.size());
    result.row.resize(events.size());
    std::vector<std::vector<std::int64_t>> busy_until(result.tracks.size());
    for (std::size_t i = 0; i < events.size(); ++i) {
      const timeline_event& e = events[i];
      if (e.kind == timeline_kind::occupancy) continue;
      VTIER_ASSERT(e.kind != timeline_kind::transfer || (e.from < tiers.size() && e.tier < tiers.size()),
                   "a timeline has a transfer between tiers that it does not name");
      auto& rows = busy_until[track_of(e)];
      const auto free = std::find_if(rows.begin(), rows.end(), [&](std::int64_t end) { return end <= e.begin_ns; });
      result.row[i] = static_cast<std::size_t>(free - rows.begin());
      if (free == rows.end()) rows.push_back(e.end_ns);
      rows[result.row[i]] = e.end_ns;
    }
    std::size_t next = tier_group + 1;  // no thread has the number of a process: viewers take that for its main one
    for (std::size_t i = 0; i < result.tracks.size(); ++i) {
      result.tracks[i] = {next, busy_until[i].size()};
      next += busy_until[i].size();
    }
    return result;
  }

  [[nodiscard]] static std::string microseconds(std::int64_t ns) {
    const std::string digits = std::to_string(ns < 0 ? -(ns % 1000) : ns % 1000);
    return (ns < 0 && ns > -1000 ? "-" : "") + std::to_string(ns / 1000) + '.' + std::string(3 - digits.size(), '0') +
           digits;
  }

  [[nodiscard]] static std::string place(std::size_t group, std::size_t thread) {
    return "\"pid\":" + std::to_string(group) + ",\"tid\":" + std::to_string(thread);
  }

  [[nodiscard]] static std::string metadata(std::string_view what, std::size_t group, std::size_t thread,
                                            const std::string& args) {
    return "{\"ph\":\"M\",\"name\":\"" + std::string{what} + "\"," + place(group, thread) + ",\"args\":{" + args + "}}";
  }

  [[nodiscard]] std::string counter(std::size_t tier, std::int64_t at_ns, std::size_t used_bytes) const {
    // The number makes the name one of its own: counters with the same name are one.
    const std::string title = "tier " + std::to_string(tier) + (tier < tiers.size() ? ": " + tiers[tier].name : "");
    return "{\"ph\":\"C\",\"name\":" + detail::json_string(title) + "," + place(tier_group, 0) +
           ",\"ts\":" + microseconds(at_ns) + ",\"args\":{\"bytes\":" + std::to_string(used_bytes) + "}}";
  }

  [[nodiscard]] std::string slice(const timeline_event& e, std::size_t group, std::size_t thread) const {
    std::string to = "{\"ph\":\"";
    to += e.enqueued ? "i\",\"s\":\"t" : "X";  // what has a begin only is an instant
    to += "\",\"name\":\"" + detail::words(e) + "\",\"cat\":\"" + std::string{detail::category(e.kind)} + "\"," +
          place(group, thread) + ",\"ts\":" + microseconds(e.begin_ns);
    if (!e.enqueued) to += ",\"dur\":" + microseconds(e.end_ns - e.begin_ns);
    return to + ",\"args\":{" + details(e) + "}}";
  }

  // What stands beside a slice that is clicked at.
  [[nodiscard]] std::string details(const timeline_event& e) const {
    if (e.kind == timeline_kind::step) return {};
    std::string to = "\"bytes\":" + std::to_string(e.size_bytes);
    if (e.number != 0) {
      to += ",\"tensor\":" + std::to_string(e.number) + ",\"role\":\"" + std::string{name(e.what)} + '"';
    }
    if (e.tier < tiers.size()) to += ",\"tier\":" + detail::json_string(tiers[e.tier].name);
    if (e.kind == timeline_kind::transfer) {
      to += ",\"from\":" + detail::json_string(tiers[e.from].name) + ",\"priority\":\"" +
            std::string{detail::word(e.priority)} + '"';
      if (e.enqueued) to += ",\"enqueued\":true";
    }
    return to;
  }
};

}  // namespace vtier
