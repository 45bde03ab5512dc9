// SPDX-License-Identifier: MIT OR Apache-2.0
// The ABI's name inside the kernel library, for tools that have only the library (build/prebuilt.rs).
#ifndef CUSYNC_ABI
#error "build.rs defines CUSYNC_ABI"
#endif
char const cusync_kernels_abi[] = "cusync-kernels-abi=" CUSYNC_ABI;
