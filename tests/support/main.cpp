// SPDX-License-Identifier: Apache-2.0
// The program that runs a room's tests; a file of its own because Catch2's main takes long to compile.

#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

int main(int argc, char* argv[]) { return Catch::Session().run(argc, argv); }
