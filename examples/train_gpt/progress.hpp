// SPDX-License-Identifier: Apache-2.0
#pragma once

// How a run is shown while it runs: one line that redraws itself on a terminal, a plain line for each step elsewhere.

#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>

namespace train_gpt {

/// What is known after a step.
struct step_facts {
  std::size_t index = 0;   // counted from 0
  double loss = 0;         // nats a byte
  double seconds = 0;      // of this step
  double stall_share = 0;  // of these, nothing was computed
};

/// Shows a run on standard output, or on a stream that the caller names.
///
/// Threads one at a time
class progress_line {
 public:
  progress_line(std::string name, std::size_t steps, std::ostream& to = std::cout,
                bool terminal = ::isatty(STDOUT_FILENO) == 1)
      : name_{std::move(name)}, steps_{steps}, to_{&to}, terminal_{terminal} {}
  progress_line(const progress_line&) = delete;
  progress_line& operator=(const progress_line&) = delete;
  ~progress_line() {
    if (drawn_) *to_ << std::endl;
  }

  void show(const step_facts& facts) {
    const std::size_t done = facts.index + 1;
    std::ostringstream line;
    line << std::left << std::setw(9) << name_;
    if (terminal_) {
      constexpr std::size_t width = 24;
      const std::size_t full = done * width / steps_;
      line << '[' << std::string(full, '#') << std::string(width - full, '.') << "] ";
    }
    line << "step " << std::right << std::setw(digits(steps_)) << done << '/' << steps_ << std::fixed << "  loss "
         << std::setprecision(4) << facts.loss << "  " << std::setprecision(2) << facts.seconds << " s  stall "
         << std::setw(3) << static_cast<int>(facts.stall_share * 100.0 + 0.5) << " %";
    if (terminal_) {
      *to_ << '\r' << line.str() << "\x1b[K" << std::flush;
      drawn_ = true;
    } else {
      *to_ << line.str() << std::endl;
    }
  }

 private:
  static int digits(std::size_t n) { return static_cast<int>(std::to_string(n).size()); }

  std::string name_;
  std::size_t steps_;
  std::ostream* to_;
  bool terminal_;
  bool drawn_ = false;
};

}  // namespace train_gpt
