// SPDX-License-Identifier: Apache-2.0
// The stand-in's errors: names, words, and the last one of each thread. None of these calls is counted, and none fails.

#include "runtime.hpp"

namespace standin {
namespace {

struct named_error {
  cudaError_t code;
  const char* name;
  const char* text;
};

constexpr named_error errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorCudartUnloading, "cudaErrorCudartUnloading", "the runtime is being unloaded"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction"},
    {cudaErrorStubLibrary, "cudaErrorStubLibrary", "the driver is the toolkit's stub"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "the driver is older than the runtime"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no device"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "illegal memory access"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources", "too many resources asked by a launch"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is enabled already"},
    {cudaErrorPeerAccessNotEnabled, "cudaErrorPeerAccessNotEnabled", "peer access is not enabled"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered", "already registered"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered", "not registered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const named_error& words(cudaError_t code) {
  for (const auto& e : errors) {
    if (e.code == code) return e;
  }
  static constexpr named_error none{cudaErrorUnknown, "unrecognized error code", "unrecognized error code"};
  return none;
}

}  // namespace
}  // namespace standin

using namespace standin;

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(mine().last, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return mine().last; }
const char* cudaGetErrorName(cudaError_t code) { return words(code).name; }
const char* cudaGetErrorString(cudaError_t code) { return words(code).text; }

}  // extern "C"
