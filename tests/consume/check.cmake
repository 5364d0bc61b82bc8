# SPDX-License-Identifier: Apache-2.0
# What holds for each way to use vtier: no language is forced on the user, and the CUDA device links without nvcc.

get_property(languages GLOBAL PROPERTY ENABLED_LANGUAGES)
if(NOT languages STREQUAL "CXX")
  message(FATAL_ERROR "vtier switched on the languages ${languages}")
endif()
if(TARGET vtier::cuda)
  file(WRITE "${CMAKE_CURRENT_BINARY_DIR}/gpu.cpp"
       "#include <vtier/tier.hpp>\nint main() { return vtier::cuda::device::count() >= 0 ? 0 : 1; }\n")
  add_executable(gpu_user "${CMAKE_CURRENT_BINARY_DIR}/gpu.cpp")
  target_link_libraries(gpu_user PRIVATE vtier::cuda)
endif()
