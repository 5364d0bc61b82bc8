// SPDX-License-Identifier: Apache-2.0
// The functions under the names that a program compiled with --default-stream per-thread calls: null is the per-thread
// default stream there. The toolkit's own header renames them, so the compiler checks these too.

#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1  // NOLINT(cppcoreguidelines-macro-usage): the toolkit's switch

#include <cuda_runtime_api.h>

// The functions under their plain names. A macro, because the header has renamed those.
#define VTIER_PLAIN(name) extern "C" decltype(name) plain_##name __asm__(VTIER_TEXT(name))
