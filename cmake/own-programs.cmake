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

# OpenBLAS with its C interface, for the trainer: the target vtier_blas where it is there.
function(vtier_find_blas)
  if(TARGET vtier_blas)
    return()
  endif()
  find_path(VTIER_CBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas-pthread openblas openblas-openmp openblas-serial)
  find_library(VTIER_OPENBLAS_LIBRARY openblas PATH_SUFFIXES openblas-pthread)
  mark_as_advanced(VTIER_CBLAS_INCLUDE_DIR VTIER_OPENBLAS_LIBRARY)
  if(VTIER_CBLAS_INCLUDE_DIR AND VTIER_OPENBLAS_LIBRARY)
    add_library(vtier_blas INTERFACE)
    target_include_directories(vtier_blas SYSTEM INTERFACE "${VTIER_CBLAS_INCLUDE_DIR}")
    target_link_libraries(vtier_blas INTERFACE "${VTIER_OPENBLAS_LIBRARY}")
  endif()
endfunction()
vtier_find_blas()
if(NOT TARGET vtier_blas)
  message(STATUS "vtier: OpenBLAS with cblas.h not found, train_gpt is left out (Debian: libopenblas-dev)")
endif()
