// SPDX-License-Identifier: MIT OR Apache-2.0
// dag.h for C++17: errors are exceptions, arguments have the types of the kernel's parameters, and callbacks are functions.
// Include <cublas_v2.h> first for Dag::cublas.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cusync/dag.h"

namespace cusync {

inline void check_dag(int32_t status) {
  if (status != CUSYNC_PIPELINE_OK) throw std::runtime_error(cusync_pipeline_error());
}

inline void check_cuda(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

/// `count` values that a node accesses.
template <class T>
cusync_dag_access reads(T const* memory, size_t count) { return {memory, count * sizeof(T), CUSYNC_DAG_READ}; }
template <class T>
cusync_dag_access writes(T* memory, size_t count) { return {memory, count * sizeof(T), CUSYNC_DAG_WRITE}; }
template <class T>
cusync_dag_access updates(T* memory, size_t count) { return {memory, count * sizeof(T), CUSYNC_DAG_UPDATE}; }
/// Nodes with this access never run at the same time, such as those that share a handle with a state.
inline cusync_dag_access exclusive(void const* handle) { return {handle, 1, CUSYNC_DAG_UPDATE}; }

using Accesses = std::vector<cusync_dag_access>;

/// Estimates of a node; see cusync_dag_node.
struct Cost {
  double us = 0;
  uint64_t traffic = 0, flops = 0;
};

/// A proved schedule that can be launched repeatedly.
class Run {
 public:
  void launch(cudaStream_t stream) const { check_dag(cusync_dag_launch(run_.get(), stream)); }
  char const* form() const { return cusync_dag_form(run_.get()); }
  size_t workspaces() const { return cusync_dag_workspaces(run_.get()); }

  /// The schedule of a captured graph; see cusync_dag_adopt.
  static Run adopt(cudaGraph_t graph, std::vector<cusync_dag_access> const& memory = {},
                   cusync_dag_options const& options = {}) {
    cusync_dag_run* made = nullptr;
    check_dag(cusync_dag_adopt(graph, memory.data(), memory.size(), nullptr, nullptr, &options, &made));
    return Run(made);
  }

 private:
  friend class Dag;
  explicit Run(cusync_dag_run* run) : run_(run, cusync_dag_end) {}
  std::unique_ptr<cusync_dag_run, void (*)(cusync_dag_run*)> run_;
};

/// A program, recorded in serial order.
class Dag {
 public:
  using Enqueue = std::function<void(cudaStream_t, cusync_dag_workspace const&)>;

  explicit Dag(char const* name) {
    cusync_dag* made = nullptr;
    check_dag(cusync_dag_open(name, &made));
    dag_.reset(made);
  }

  /// Memory as a whole, before parts of it are accessed.
  void memory(void const* memory, size_t bytes) { check_dag(cusync_dag_memory(dag_.get(), memory, bytes)); }

  /// A `__global__` function with its arguments, which are converted to its parameters.
  template <class... Parameters, class... Arguments>
  uint32_t kernel(char const* name, void (*function)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
                  Accesses const& accesses, Cost cost, Arguments&&... arguments) {
    cudaFunction_t handle = nullptr;
    auto const symbol = reinterpret_cast<void const*>(function);
    check_cuda(cudaGetFuncBySymbol(&handle, symbol));
    int resident = 0;
    int const threads = static_cast<int>(block.x * block.y * block.z);
    check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, symbol, threads, shared_bytes));
    std::tuple<std::decay_t<Parameters>...> const values(std::forward<Arguments>(arguments)...);
    auto const bytes = std::apply(
        [](auto const&... value) { return std::vector<cusync_dag_argument>{{&value, sizeof(value)}...}; }, values);
    cusync_dag_node node = described(name, accesses, cost);
    node.grid[0] = grid.x, node.grid[1] = grid.y, node.grid[2] = grid.z;
    node.block[0] = block.x, node.block[1] = block.y, node.block[2] = block.z;
    node.shared_bytes = static_cast<uint32_t>(shared_bytes);
    node.ctas_per_sm = static_cast<uint32_t>(resident);
    uint32_t id = 0;
    check_dag(cusync_dag_kernel(dag_.get(), &node, handle, bytes.data(), bytes.size(), &id));
    return id;
  }

  /// Any work that `enqueue` queues on the stream that it gets, with so much scratch memory.
  uint32_t opaque(char const* name, Accesses const& accesses, Cost cost, size_t workspace_bytes, Enqueue enqueue) {
    auto callback = std::make_unique<Enqueue>(std::move(enqueue));
    cusync_dag_node const node = described(name, accesses, cost);
    uint32_t id = 0;
    check_dag(cusync_dag_opaque(dag_.get(), &node, call, callback.get(), workspace_bytes, &id));
    callbacks_.push_back(std::move(callback));
    return id;
  }

#ifdef CUBLAS_VER_MAJOR
  /// Calls of cuBLAS on a handle, which gets the node's stream and workspace first. 32 MiB is what cuBLAS recommends on
  /// Hopper. Nodes may share the handle: each has the workspace of its lane.
  template <class Calls>
  uint32_t cublas(char const* name, cublasHandle_t handle, Accesses const& accesses, Cost cost, Calls calls,
                  size_t workspace_bytes = size_t{32} << 20) {
    auto check = [](cublasStatus_t status) {
      if (status != CUBLAS_STATUS_SUCCESS) throw std::runtime_error(cublasGetStatusString(status));
    };
    return opaque(name, accesses, cost, workspace_bytes, [=](cudaStream_t stream, cusync_dag_workspace const& workspace) {
      // A new stream resets the workspace, so the workspace comes second.
      check(cublasSetStream(handle, stream));
      check(cublasSetWorkspace(handle, workspace.memory, workspace.bytes));
      check(calls(handle));
    });
  }
#endif

  /// Whether `node` has to wait for `before`.
  bool depends(uint32_t node, uint32_t before) const {
    int32_t found = 0;
    check_dag(cusync_dag_depends(dag_.get(), node, before, &found));
    return found != 0;
  }

  Run build(cusync_dag_options const& options = {}) {
    failure_.clear();
    cusync_dag_run* made = nullptr;
    int32_t const status = cusync_dag_build(dag_.get(), &options, &made);
    if (status != CUSYNC_PIPELINE_OK) {
      throw std::runtime_error(std::string(cusync_pipeline_error()) + (failure_.empty() ? "" : ": " + failure_));
    }
    return Run(made);
  }

 private:
  static cusync_dag_node described(char const* name, Accesses const& accesses, Cost cost) {
    cusync_dag_node node{};
    node.name = name;
    node.accesses = accesses.data(), node.access_count = accesses.size();
    node.us = cost.us, node.traffic = cost.traffic, node.flops = cost.flops;
    return node;
  }

  static int32_t call(void* data, void* stream, cusync_dag_workspace const* workspace) {
    try {
      (*static_cast<Enqueue*>(data))(static_cast<cudaStream_t>(stream), *workspace);
      return 0;
    } catch (std::exception const& error) {
      failure_ = error.what();
    } catch (...) {
      failure_ = "an exception of another type";
    }
    return 1;
  }

  // What the last failed callback of this thread threw.
  inline static thread_local std::string failure_;
  std::unique_ptr<cusync_dag, void (*)(cusync_dag*)> dag_{nullptr, cusync_dag_close};
  std::vector<std::unique_ptr<Enqueue>> callbacks_;
};

}  // namespace cusync
