// SPDX-License-Identifier: Apache-2.0
#pragma once

// What nearly all tests include, compiled once for all of them. None of vtier's own headers is here: each of them must
// find by itself what it needs (build/headers.sh compiles them alone), and one that changes must not cost a new build
// of every test.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"
