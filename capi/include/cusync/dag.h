// SPDX-License-Identifier: MIT OR Apache-2.0
// Programs of kernels over your own memory, kernels and streams. Link with libcusync_c (capi/README.md); dag.hpp is the same
// for C++.
//
// Record the nodes in serial order, with the bytes that each reads and writes. cusync_dag_build() finds the dependences,
// schedules the nodes as streams or as a graph, proves that the schedule keeps every dependence, and only then builds it.
// Opaque nodes are callbacks that queue any work on a stream, such as calls of cuBLAS. Functions return
// CUSYNC_PIPELINE_OK or another cusync_pipeline_status; cusync_pipeline_error() then says what is wrong and what to do. A
// program and its runs are used by one thread at a time.
#pragma once
#include "cusync/pipeline.h"

#ifdef __cplusplus
extern "C" {
#endif

enum cusync_dag_mode {
  CUSYNC_DAG_READ = 0,
  CUSYNC_DAG_WRITE = 1,   ///< without reading the old contents
  CUSYNC_DAG_UPDATE = 2,  ///< reads and writes
};

/// Bytes that a node accesses. Anything with an address counts: nodes that must not share a library handle with a state
/// update one byte at the handle's address.
typedef struct cusync_dag_access {
  const void* memory;
  size_t bytes;
  uint32_t mode;  ///< enum cusync_dag_mode
} cusync_dag_access;

/// A parameter of a kernel, by its bytes: a pointer, a number or a struct. They are copied.
typedef struct cusync_dag_argument {
  const void* value;
  size_t bytes;
} cusync_dag_argument;

/// A node. Everything but `name`, `accesses` and a kernel's `grid` and `block` may be 0.
typedef struct cusync_dag_node {
  const char* name;
  const cusync_dag_access* accesses;
  size_t access_count;
  double us;              ///< time alone on the GPU, microseconds; 0: estimated from `traffic` and `flops`
  uint64_t traffic;       ///< bytes moved to and from device memory; 0: those of all accesses
  uint64_t flops;         ///< floating-point operations of matrix products
  uint32_t grid[3];       ///< of an opaque node an estimate; 0: it fills the GPU
  uint32_t block[3];      ///< threads of a CTA
  uint32_t shared_bytes;  ///< dynamic shared memory of a CTA
  uint32_t ctas_per_sm;   ///< CTAs that an SM holds at once; 0: as threads allow
  uint32_t programmatic;  ///< not 0: the kernel waits for earlier grids itself (griddepcontrol.wait) before it touches
                          ///< memory; verified if its image is at hand (cusync_dag_image), else believed
} cusync_dag_node;

/// Scratch memory of an opaque node. Nodes with one index never run at the same time, so anything else that callbacks keep
/// for each index is safe, too.
typedef struct cusync_dag_workspace {
  size_t index;
  void* memory;  ///< device memory, aligned to 256 bytes if cusync allocated it; NULL if no node needs bytes
  size_t bytes;  ///< at least the size that the node requested
} cusync_dag_workspace;

/// Queues all work of an opaque node on `stream`, a cudaStream_t that is being captured, and returns 0. The work is captured
/// once for each run that is built, and repeated by every launch: nothing on the host happens again.
typedef int32_t (*cusync_dag_enqueue)(void* data, void* stream, const cusync_dag_workspace* workspace);

/// How a program is built; NULL in place of it, and 0 for each field, are the defaults.
typedef struct cusync_dag_options {
  void* context;            ///< a CUcontext; NULL: the one that is current on this thread
  const char* form;         ///< such as "streams" or "lane-mixed" (docs/dag.md); NULL: that of least measured risk
  size_t most_streams;      ///< kernels at a time; 0: as many as help
  void* const* streams;     ///< streams of yours for lanes beside the stream of a launch; cusync makes the others
  size_t stream_count;
  void* const* workspaces;  ///< device memory of yours for workspaces, aligned to 16 bytes; NULL: cusync allocates it
  size_t workspace_count;
  size_t workspace_bytes;   ///< of each
} cusync_dag_options;

typedef struct cusync_dag cusync_dag;
typedef struct cusync_dag_run cusync_dag_run;

/// An empty program.
int32_t cusync_dag_open(const char* name, cusync_dag** out);
/// States a piece of memory as a whole, before parts of it are accessed: parts then depend on each other as their bytes do.
int32_t cusync_dag_memory(cusync_dag* dag, const void* memory, size_t bytes);
/// Puts later nodes into a new task; larger priorities run sooner.
int32_t cusync_dag_zone(cusync_dag* dag, const char* name, int32_t priority);
/// States the image of later kernels, from which the caller loaded their module: a cubin, a fatbin or PTX, which is copied.
/// A build then refuses kernels that are declared programmatic and have no griddepcontrol.wait. NULL: not at hand.
int32_t cusync_dag_image(cusync_dag* dag, const void* image, size_t bytes);
/// Appends a kernel. `function` is a CUfunction, or a cudaFunction_t of cudaGetFuncBySymbol(). `id` counts nodes from 0.
int32_t cusync_dag_kernel(cusync_dag* dag, const cusync_dag_node* node, void* function,
                          const cusync_dag_argument* arguments, size_t argument_count, uint32_t* id);
/// Appends an opaque node, whose work needs so many bytes of scratch memory. `enqueue` gets `data`; both must be valid until
/// the last build. Accesses cover all memory of the work but its workspace. A build refuses captured kernels, copies and
/// fills that get an address in another workspace, or in memory of the program that the node has not declared.
int32_t cusync_dag_opaque(cusync_dag* dag, const cusync_dag_node* node, cusync_dag_enqueue enqueue, void* data,
                          size_t workspace_bytes, uint32_t* id);
/// Whether a node has to wait for another one, directly or not. It never has to for a later one.
int32_t cusync_dag_depends(cusync_dag* dag, uint32_t node, uint32_t before, int32_t* depends);
/// Schedules, proves and builds the program as it is now. Memory, kernels, streams and workspaces must outlive the run.
int32_t cusync_dag_build(cusync_dag* dag, const cusync_dag_options* options, cusync_dag_run** out);
/// States what a node of a captured graph accesses. `index` counts nodes in the order of the graph, from 0; `kernel` is the
/// name of a kernel in its image, NULL for other nodes; `node` is all 0. Returns 1 if `accesses` and `programmatic` of
/// `node` are stated, which stay valid until the next call, and 0 to have them derived; other values fail. `us` counts in
/// both cases.
typedef int32_t (*cusync_dag_declare)(void* data, size_t index, const char* kernel, cusync_dag_node* node);
/// Schedules, proves and builds a captured graph, a cudaGraph_t or CUgraph, whose nodes run as they were captured. It may
/// have kernels, memsets, copies, functions on the host and graphs, but no events, semaphores, allocations or conditions.
/// `graph` is copied; its memory, kernels and host functions must outlive the run. Without `declare` (NULL), or where it
/// returns 0, accesses are derived: copies and memsets have exact ones. A kernel accesses each piece of `memory` into which
/// a word of its arguments points: CUSYNC_DAG_READ is of constants, which no node of the graph writes, and others are read
/// and written. Addresses elsewhere stand for their whole allocation. A kernel without a known address and a function on
/// the host are ordered with all nodes. Kernels that reach memory through pointers in device memory, or by symbols, have to
/// be declared; so do those that wait for a kernel that runs at the same time.
int32_t cusync_dag_adopt(void* graph, const cusync_dag_access* memory, size_t memory_count, cusync_dag_declare declare,
                         void* data, const cusync_dag_options* options, cusync_dag_run** out);
/// The form of a run, such as "lane-mixed"; valid until its end.
const char* cusync_dag_form(const cusync_dag_run* run);
/// The kernels that may start before earlier ones end only because they are declared programmatic, which was not verified: a
/// line for each, with its name and the reason; valid until the end of the run.
const char* cusync_dag_unverified(const cusync_dag_run* run);
/// The number of workspaces of a run: at most as many as opaque nodes run at a time.
size_t cusync_dag_workspaces(const cusync_dag_run* run);
/// Queues the run in the order of `stream`, a cudaStream_t, and returns. Launches of a run have to follow each other.
int32_t cusync_dag_launch(const cusync_dag_run* run, void* stream);
/// Frees a run; NULL is ignored. It may not be running.
void cusync_dag_end(cusync_dag_run* run);
/// Frees a program; NULL is ignored. Its runs stay.
void cusync_dag_close(cusync_dag* dag);

#ifdef __cplusplus
}
#endif
