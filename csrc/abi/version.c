// SPDX-License-Identifier: MIT OR Apache-2.0
// The name of the ABI inside the library of kernels, for whoever is given the library alone (build/prebuilt.rs).
#ifndef CUSYNC_ABI
#error "build.rs defines CUSYNC_ABI"
#endif
char const cusync_kernels_abi[] = "cusync-kernels-abi=" CUSYNC_ABI;
