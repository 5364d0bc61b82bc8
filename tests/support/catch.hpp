// SPDX-License-Identifier: Apache-2.0
#pragma once

// Catch2 in the version that the machine has: 3 where its split headers exist, else the single header of 2.

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif
