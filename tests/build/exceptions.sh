#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An exception thrown in a shared library built with hidden visibility is caught by its type in the program (VO-I03).
# exceptions.sh ROOT COMPILER
set -eu
root=$1
compiler=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/lib.cpp" <<'CPP'
#include <vtier/core/error.hpp>
__attribute__((visibility("default"))) void fail(int how) {
  if (how == 0) throw vtier::out_of_memory("hbm", 1, 0, "full");
  if (how == 1) throw vtier::io_error(5, "broken");
  if (how == 2) throw vtier::usage_error("wrong");
  throw vtier::device_error(35, "gone");
}
CPP
cat >"$scratch/main.cpp" <<'CPP'
#include <vtier/core/error.hpp>
void fail(int how);
template <class E>
int caught(int how) {
  try {
    fail(how);
  } catch (const E&) {
    return 1;
  } catch (...) {
  }
  return 0;
}
int main() {
  const int right = caught<vtier::out_of_memory>(0) + caught<vtier::error>(0) + caught<std::bad_alloc>(0) +
                    caught<std::exception>(0) + caught<vtier::io_error>(1) + caught<std::system_error>(1) +
                    caught<vtier::error>(1) + caught<vtier::usage_error>(2) + caught<std::logic_error>(2) +
                    caught<vtier::error>(2) + caught<vtier::device_error>(3) + caught<std::exception>(3);
  return right == 12 && caught<vtier::io_error>(0) == 0 ? 0 : 1;
}
CPP
common=(-std=c++20 -I"$root/include" -fvisibility=hidden)
"$compiler" "${common[@]}" -fPIC -shared "$scratch/lib.cpp" -o "$scratch/libfail.so"
"$compiler" "${common[@]}" "$scratch/main.cpp" -L"$scratch" -lfail -Wl,-rpath,"$scratch" -o "$scratch/main"
"$scratch/main"
# libstdc++ compares types by name and would forgive a hidden one; libc++ would not: look at the symbols too.
symbols=$(nm -DC "$scratch/libfail.so")
for type in error usage_error out_of_memory io_error device_error; do
  grep -qE "typeinfo for vtier::$type\$" <<<"$symbols" || { echo "vtier::$type is hidden in a shared library"; exit 1; }
done
echo "exceptions keep their types across libraries with $compiler"
