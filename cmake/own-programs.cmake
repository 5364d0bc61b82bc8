# SPDX-License-Identifier: Apache-2.0
# What vtier's own tests, examples and benchmarks are built with; users of the library never see it.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "The kind of build" FORCE)
endif()

find_program(ccache_program ccache)
if(ccache_program AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${ccache_program}")
endif()

# The warnings that user code may have on while it includes our headers, and some more.
add_library(vtier_warnings INTERFACE)
target_compile_options(vtier_warnings INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wshadow>")

# g++ spends a sixth of its time on collecting garbage, if it is not told that there is memory.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1048576>")
endif()

set(VTIER_SANITIZE "" CACHE STRING "Sanitizers for our own programs: address,undefined or thread")
if(VTIER_SANITIZE)
  add_compile_options(-fsanitize=${VTIER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${VTIER_SANITIZE})
endif()

# A program of ours.
function(vtier_program name)
  add_executable(${name} ${ARGN})
  set_target_properties(${name} PROPERTIES CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
  target_link_libraries(${name} PRIVATE vtier::vtier vtier_warnings)
endfunction()
