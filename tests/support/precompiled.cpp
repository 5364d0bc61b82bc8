// SPDX-License-Identifier: Apache-2.0
// CMake precompiles a header for the sources of a target; this is the source of the one that all tests borrow it from.
