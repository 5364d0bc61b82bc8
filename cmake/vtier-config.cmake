# SPDX-License-Identifier: Apache-2.0
# find_package(vtier [COMPONENTS hwloc numa uring cuda]): the targets vtier::vtier and, where a CUDA toolkit is,
# vtier::cuda. Optional libraries are looked for here, on the machine that uses the package; vtier_FEATURES and
# vtier_FEATURES_MISSING say what was found. A component that is named must be there.

include(CMakeFindDependencyMacro)
find_dependency(Threads)
include("${CMAKE_CURRENT_LIST_DIR}/vtier-targets.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/vtier-features.cmake")
get_target_property(vtier_FEATURES vtier::vtier VTIER_FEATURES)
if(NOT vtier_FEATURES)
  vtier_add_features(vtier::vtier "")
else()
  get_target_property(vtier_FEATURES_MISSING vtier::vtier VTIER_FEATURES_MISSING)
endif()

foreach(component IN LISTS vtier_FIND_COMPONENTS)
  if(component IN_LIST vtier_FEATURES)
    set(vtier_${component}_FOUND TRUE)
  else()
    set(vtier_${component}_FOUND FALSE)
    if(vtier_FIND_REQUIRED_${component})
      set(vtier_FOUND FALSE)
      set(vtier_NOT_FOUND_MESSAGE "vtier is here, but without ${component}; missing: ${vtier_FEATURES_MISSING}")
    endif()
  endif()
endforeach()
