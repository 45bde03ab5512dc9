// Made by bindgen from csrc/abi/cusync.h; `cargo xtask render` makes it anew.

#[doc = " Maps the tiles of a producer's grid to semaphore slots.\n\n slot(m, n) = slot_base + (m / block_m) * slots_n + column(n), where\n column(n)  = stride_n == 0 ? n / block_n : n % stride_n.\n\n Tile: block 1 x 1. Row: block 1 x grid_n. Batched: block r x c. Strided: stride_n > 0, block_n unused (1).\n With `table` set (a user's own policy), slot(m, n) = slot_base + table[m * grid_n + n] and the number of\n posts to slot i is table_posts[i - slot_base]."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_policy {
    #[doc = "< producer grid, in tiles"]
    pub grid_m: u32,
    #[doc = "< producer grid, in tiles"]
    pub grid_n: u32,
    #[doc = "< tiles that share a slot"]
    pub block_m: u32,
    #[doc = "< tiles that share a slot"]
    pub block_n: u32,
    #[doc = "< 0, or the number of slot columns of a strided policy"]
    pub stride_n: u32,
    #[doc = "< slot columns"]
    pub slots_n: u32,
    #[doc = "< first slot of this edge in the pipeline's array"]
    pub slot_base: u32,
    #[doc = "< slots of this edge"]
    pub slot_count: u32,
    #[doc = "< NULL, or grid_m * grid_n slot numbers"]
    pub table: *const u32,
    #[doc = "< NULL, or slot_count post counts"]
    pub table_posts: *const u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_policy"][::std::mem::size_of::<cusync_policy>() - 48usize];
    ["Alignment of cusync_policy"][::std::mem::align_of::<cusync_policy>() - 8usize];
    ["Offset of field: cusync_policy::grid_m"][::std::mem::offset_of!(cusync_policy, grid_m) - 0usize];
    ["Offset of field: cusync_policy::grid_n"][::std::mem::offset_of!(cusync_policy, grid_n) - 4usize];
    ["Offset of field: cusync_policy::block_m"][::std::mem::offset_of!(cusync_policy, block_m) - 8usize];
    ["Offset of field: cusync_policy::block_n"][::std::mem::offset_of!(cusync_policy, block_n) - 12usize];
    ["Offset of field: cusync_policy::stride_n"][::std::mem::offset_of!(cusync_policy, stride_n) - 16usize];
    ["Offset of field: cusync_policy::slots_n"][::std::mem::offset_of!(cusync_policy, slots_n) - 20usize];
    ["Offset of field: cusync_policy::slot_base"][::std::mem::offset_of!(cusync_policy, slot_base) - 24usize];
    ["Offset of field: cusync_policy::slot_count"]
        [::std::mem::offset_of!(cusync_policy, slot_count) - 28usize];
    ["Offset of field: cusync_policy::table"][::std::mem::offset_of!(cusync_policy, table) - 32usize];
    ["Offset of field: cusync_policy::table_posts"]
        [::std::mem::offset_of!(cusync_policy, table_posts) - 40usize];
};
impl Default for cusync_policy {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[doc = " One axis of an affine footprint, in elements of the tensor that is read:\n first = m * tile_m + n * tile_n + k * k_block + offset, last = first + extent - 1, clipped to the tensor."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_axis {
    pub m: i32,
    pub n: i32,
    pub k: i32,
    pub offset: i32,
    pub extent: i32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_axis"][::std::mem::size_of::<cusync_axis>() - 20usize];
    ["Alignment of cusync_axis"][::std::mem::align_of::<cusync_axis>() - 4usize];
    ["Offset of field: cusync_axis::m"][::std::mem::offset_of!(cusync_axis, m) - 0usize];
    ["Offset of field: cusync_axis::n"][::std::mem::offset_of!(cusync_axis, n) - 4usize];
    ["Offset of field: cusync_axis::k"][::std::mem::offset_of!(cusync_axis, k) - 8usize];
    ["Offset of field: cusync_axis::offset"][::std::mem::offset_of!(cusync_axis, offset) - 12usize];
    ["Offset of field: cusync_axis::extent"][::std::mem::offset_of!(cusync_axis, extent) - 16usize];
};
pub const CUSYNC_OPERAND_A: cusync_operand = 0;
pub const CUSYNC_OPERAND_B: cusync_operand = 1;
pub const CUSYNC_OPERAND_BIAS: cusync_operand = 2;
pub const CUSYNC_OPERAND_RESIDUAL: cusync_operand = 3;
pub const CUSYNC_OPERAND_CUSTOM: cusync_operand = 4;
#[doc = " Which operand of the consumer an edge feeds."]
pub type cusync_operand = ::std::os::raw::c_uint;
#[doc = "< before the first k-block whose footprint enters new slots"]
pub const CUSYNC_WAIT_PER_K_BLOCK: cusync_wait_at = 0;
#[doc = "< everything that the tile will read, before its first dependent load"]
pub const CUSYNC_WAIT_AT_START: cusync_wait_at = 1;
#[doc = " Where in the consumer's k-loop an edge is waited for."]
pub type cusync_wait_at = ::std::os::raw::c_uint;
#[doc = " One dependence as a kernel sees it: the producer's policy, the producer's tile size, the consumer's footprint."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_edge {
    pub policy: cusync_policy,
    #[doc = "< index of the edge in the plan, for reports"]
    pub id: u32,
    #[doc = "< enum cusync_operand"]
    pub operand: u32,
    #[doc = "< enum cusync_wait_at"]
    pub wait_at: u32,
    #[doc = "< elements of the tensor that one producer tile writes"]
    pub tile_rows: u32,
    #[doc = "< elements of the tensor that one producer tile writes"]
    pub tile_cols: u32,
    #[doc = "< the tensor, for clipping"]
    pub tensor_rows: u32,
    #[doc = "< the tensor, for clipping"]
    pub tensor_cols: u32,
    #[doc = "< k-blocks of one consumer tile"]
    pub k_blocks: u32,
    #[doc = "< what the consumer tile (m, n) reads at k-block k"]
    pub rows: cusync_axis,
    #[doc = "< what the consumer tile (m, n) reads at k-block k"]
    pub cols: cusync_axis,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_edge"][::std::mem::size_of::<cusync_edge>() - 120usize];
    ["Alignment of cusync_edge"][::std::mem::align_of::<cusync_edge>() - 8usize];
    ["Offset of field: cusync_edge::policy"][::std::mem::offset_of!(cusync_edge, policy) - 0usize];
    ["Offset of field: cusync_edge::id"][::std::mem::offset_of!(cusync_edge, id) - 48usize];
    ["Offset of field: cusync_edge::operand"][::std::mem::offset_of!(cusync_edge, operand) - 52usize];
    ["Offset of field: cusync_edge::wait_at"][::std::mem::offset_of!(cusync_edge, wait_at) - 56usize];
    ["Offset of field: cusync_edge::tile_rows"][::std::mem::offset_of!(cusync_edge, tile_rows) - 60usize];
    ["Offset of field: cusync_edge::tile_cols"][::std::mem::offset_of!(cusync_edge, tile_cols) - 64usize];
    ["Offset of field: cusync_edge::tensor_rows"][::std::mem::offset_of!(cusync_edge, tensor_rows) - 68usize];
    ["Offset of field: cusync_edge::tensor_cols"][::std::mem::offset_of!(cusync_edge, tensor_cols) - 72usize];
    ["Offset of field: cusync_edge::k_blocks"][::std::mem::offset_of!(cusync_edge, k_blocks) - 76usize];
    ["Offset of field: cusync_edge::rows"][::std::mem::offset_of!(cusync_edge, rows) - 80usize];
    ["Offset of field: cusync_edge::cols"][::std::mem::offset_of!(cusync_edge, cols) - 100usize];
};
impl Default for cusync_edge {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const CUSYNC_ORDER_ROW_MAJOR: cusync_order_kind = 0;
pub const CUSYNC_ORDER_COLUMN_MAJOR: cusync_order_kind = 1;
#[doc = "< `group` rows at a time, column by column inside a group"]
pub const CUSYNC_ORDER_GROUPED_ROWS: cusync_order_kind = 2;
#[doc = "< `group` columns at a time, row by row inside a group"]
pub const CUSYNC_ORDER_GROUPED_COLUMNS: cusync_order_kind = 3;
#[doc = "< table[i] = m * grid_n + n"]
pub const CUSYNC_ORDER_TABLE: cusync_order_kind = 4;
pub type cusync_order_kind = ::std::os::raw::c_uint;
#[doc = " The order in which a stage's tiles are started: a bijection from 0 .. grid_m * grid_n - 1 onto the grid."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_order {
    #[doc = "< enum cusync_order_kind"]
    pub kind: u32,
    pub grid_m: u32,
    pub grid_n: u32,
    #[doc = "< rows (or columns) of a group, at least 1"]
    pub group: u32,
    pub table: *const u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_order"][::std::mem::size_of::<cusync_order>() - 24usize];
    ["Alignment of cusync_order"][::std::mem::align_of::<cusync_order>() - 8usize];
    ["Offset of field: cusync_order::kind"][::std::mem::offset_of!(cusync_order, kind) - 0usize];
    ["Offset of field: cusync_order::grid_m"][::std::mem::offset_of!(cusync_order, grid_m) - 4usize];
    ["Offset of field: cusync_order::grid_n"][::std::mem::offset_of!(cusync_order, grid_n) - 8usize];
    ["Offset of field: cusync_order::group"][::std::mem::offset_of!(cusync_order, group) - 12usize];
    ["Offset of field: cusync_order::table"][::std::mem::offset_of!(cusync_order, table) - 16usize];
};
impl Default for cusync_order {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[doc = " What a wait that timed out saw. Lives in pinned host memory, so it survives the trap that follows."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_report {
    #[doc = "< 0 until the first reporter takes the record, 1 while it writes, 2 when complete"]
    pub claimed: u32,
    pub edge: u32,
    pub stage: u32,
    pub tile_m: u32,
    pub tile_n: u32,
    pub k_block: u32,
    pub slot: u32,
    pub have: u32,
    pub want: u32,
    pub sm: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_report"][::std::mem::size_of::<cusync_report>() - 40usize];
    ["Alignment of cusync_report"][::std::mem::align_of::<cusync_report>() - 4usize];
    ["Offset of field: cusync_report::claimed"][::std::mem::offset_of!(cusync_report, claimed) - 0usize];
    ["Offset of field: cusync_report::edge"][::std::mem::offset_of!(cusync_report, edge) - 4usize];
    ["Offset of field: cusync_report::stage"][::std::mem::offset_of!(cusync_report, stage) - 8usize];
    ["Offset of field: cusync_report::tile_m"][::std::mem::offset_of!(cusync_report, tile_m) - 12usize];
    ["Offset of field: cusync_report::tile_n"][::std::mem::offset_of!(cusync_report, tile_n) - 16usize];
    ["Offset of field: cusync_report::k_block"][::std::mem::offset_of!(cusync_report, k_block) - 20usize];
    ["Offset of field: cusync_report::slot"][::std::mem::offset_of!(cusync_report, slot) - 24usize];
    ["Offset of field: cusync_report::have"][::std::mem::offset_of!(cusync_report, have) - 28usize];
    ["Offset of field: cusync_report::want"][::std::mem::offset_of!(cusync_report, want) - 32usize];
    ["Offset of field: cusync_report::sm"][::std::mem::offset_of!(cusync_report, sm) - 36usize];
};
pub const CUSYNC_OK: cusync_status = 0;
#[doc = "< this binary has no kernels for the request (architecture, tile or type)"]
pub const CUSYNC_ERROR_NOT_BUILT: cusync_status = 1;
#[doc = "< a pointer, size or alignment breaks the contract"]
pub const CUSYNC_ERROR_BAD_ARGUMENT: cusync_status = 2;
#[doc = "< host allocation failed"]
pub const CUSYNC_ERROR_NO_MEMORY: cusync_status = 3;
#[doc = "< plus the cudaError_t"]
pub const CUSYNC_ERROR_CUDA: cusync_status = 1000;
pub type cusync_status = ::std::os::raw::c_uint;
pub const CUSYNC_F16: cusync_element = 0;
pub const CUSYNC_BF16: cusync_element = 1;
pub type cusync_element = ::std::os::raw::c_uint;
pub const CUSYNC_SM80: cusync_arch = 80;
pub const CUSYNC_SM90A: cusync_arch = 90;
pub type cusync_arch = ::std::os::raw::c_uint;
pub const CUSYNC_GEMM: cusync_operation = 0;
pub const CUSYNC_GATED_GEMM: cusync_operation = 1;
pub type cusync_operation = ::std::os::raw::c_uint;
pub const CUSYNC_IDENTITY: cusync_activation = 0;
pub const CUSYNC_GELU_TANH: cusync_activation = 1;
pub const CUSYNC_RELU: cusync_activation = 2;
pub type cusync_activation = ::std::os::raw::c_uint;
#[doc = "< incoming edges of a stage"]
pub const CUSYNC_MAX_WAITS: _bindgen_ty_1 = 4;
#[doc = "< outgoing edges of a stage"]
pub const CUSYNC_MAX_POSTS: _bindgen_ty_1 = 4;
pub const CUSYNC_MAX_DELAY_NS: _bindgen_ty_1 = 500000;
pub type _bindgen_ty_1 = ::std::os::raw::c_uint;
#[doc = " Where the time of one work item of a chain kernel went, as the first thread of its CTA's arithmetic saw it:\n nanoseconds of the device's global clock. Written per CTA and item."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_trace {
    #[doc = "< the item is known"]
    pub begin: ::std::os::raw::c_ulonglong,
    #[doc = "< every operand of the first k-block may be loaded (its waits are satisfied)"]
    pub ready: ::std::os::raw::c_ulonglong,
    #[doc = "< the first k-block has arrived"]
    pub loaded: ::std::os::raw::c_ulonglong,
    #[doc = "< the last k-block is multiplied"]
    pub math_end: ::std::os::raw::c_ulonglong,
    #[doc = "< the epilogue has left the registers"]
    pub end: ::std::os::raw::c_ulonglong,
    #[doc = "< item: index in the list"]
    pub sm: u32,
    #[doc = "< item: index in the list"]
    pub item: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_trace"][::std::mem::size_of::<cusync_trace>() - 48usize];
    ["Alignment of cusync_trace"][::std::mem::align_of::<cusync_trace>() - 8usize];
    ["Offset of field: cusync_trace::begin"][::std::mem::offset_of!(cusync_trace, begin) - 0usize];
    ["Offset of field: cusync_trace::ready"][::std::mem::offset_of!(cusync_trace, ready) - 8usize];
    ["Offset of field: cusync_trace::loaded"][::std::mem::offset_of!(cusync_trace, loaded) - 16usize];
    ["Offset of field: cusync_trace::math_end"][::std::mem::offset_of!(cusync_trace, math_end) - 24usize];
    ["Offset of field: cusync_trace::end"][::std::mem::offset_of!(cusync_trace, end) - 32usize];
    ["Offset of field: cusync_trace::sm"][::std::mem::offset_of!(cusync_trace, sm) - 40usize];
    ["Offset of field: cusync_trace::item"][::std::mem::offset_of!(cusync_trace, item) - 44usize];
};
#[doc = " Delays of pseudo-random length before items, loads behind waits, stores and posts, for tests. A length is a hash of\n the seed, the run, the SM, the tile and the kind of place. Only a build with CUSYNC_DELAYS has them, and of it only the\n kernels for sm_90a; others answer CUSYNC_ERROR_NOT_BUILT."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_delays {
    pub seed: u32,
    #[doc = "< of one delay, at most CUSYNC_MAX_DELAY_NS; a sleep may take twice as long. 0: no delays"]
    pub limit_ns: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_delays"][::std::mem::size_of::<cusync_delays>() - 8usize];
    ["Alignment of cusync_delays"][::std::mem::align_of::<cusync_delays>() - 4usize];
    ["Offset of field: cusync_delays::seed"][::std::mem::offset_of!(cusync_delays, seed) - 0usize];
    ["Offset of field: cusync_delays::limit_ns"][::std::mem::offset_of!(cusync_delays, limit_ns) - 4usize];
};
#[doc = " One compiled kernel."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_kernel_info {
    #[doc = "< enum cusync_arch"]
    pub arch: u32,
    #[doc = "< enum cusync_operation"]
    pub operation: u32,
    #[doc = "< enum cusync_element"]
    pub element: u32,
    #[doc = "< MMA tile; a gated kernel's output tile is tile_m x tile_n / 2"]
    pub tile_m: u32,
    #[doc = "< MMA tile; a gated kernel's output tile is tile_m x tile_n / 2"]
    pub tile_n: u32,
    #[doc = "< MMA tile; a gated kernel's output tile is tile_m x tile_n / 2"]
    pub tile_k: u32,
    #[doc = "< depth of the shared-memory ring"]
    pub stages: u32,
    pub threads: u32,
    pub shared_bytes: u32,
    #[doc = "< of the compiled code, 0 when unknown without a GPU"]
    pub registers: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_kernel_info"][::std::mem::size_of::<cusync_kernel_info>() - 40usize];
    ["Alignment of cusync_kernel_info"][::std::mem::align_of::<cusync_kernel_info>() - 4usize];
    ["Offset of field: cusync_kernel_info::arch"][::std::mem::offset_of!(cusync_kernel_info, arch) - 0usize];
    ["Offset of field: cusync_kernel_info::operation"]
        [::std::mem::offset_of!(cusync_kernel_info, operation) - 4usize];
    ["Offset of field: cusync_kernel_info::element"]
        [::std::mem::offset_of!(cusync_kernel_info, element) - 8usize];
    ["Offset of field: cusync_kernel_info::tile_m"]
        [::std::mem::offset_of!(cusync_kernel_info, tile_m) - 12usize];
    ["Offset of field: cusync_kernel_info::tile_n"]
        [::std::mem::offset_of!(cusync_kernel_info, tile_n) - 16usize];
    ["Offset of field: cusync_kernel_info::tile_k"]
        [::std::mem::offset_of!(cusync_kernel_info, tile_k) - 20usize];
    ["Offset of field: cusync_kernel_info::stages"]
        [::std::mem::offset_of!(cusync_kernel_info, stages) - 24usize];
    ["Offset of field: cusync_kernel_info::threads"]
        [::std::mem::offset_of!(cusync_kernel_info, threads) - 28usize];
    ["Offset of field: cusync_kernel_info::shared_bytes"]
        [::std::mem::offset_of!(cusync_kernel_info, shared_bytes) - 32usize];
    ["Offset of field: cusync_kernel_info::registers"]
        [::std::mem::offset_of!(cusync_kernel_info, registers) - 36usize];
};
#[doc = "< CTA c takes tiles c, c + grid, ..."]
pub const CUSYNC_SCHEDULE_STATIC: cusync_schedule = 0;
#[doc = "< a device counter: a CTA that starts early takes more"]
pub const CUSYNC_SCHEDULE_TICKET: cusync_schedule = 1;
#[doc = " How tiles are handed to CTAs."]
pub type cusync_schedule = ::std::os::raw::c_uint;
#[doc = " One GEMM stage of a pipeline: D = act(A B + bias) + residual, or, gated, D = silu(A Bg) * (A Bu) with Bg and Bu\n interleaved by columns in groups of 8 (g0..g7 u0..u7 g8..g15 ...), so that n is twice D's width."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_gemm_args {
    pub arch: u32,
    pub operation: u32,
    pub element: u32,
    pub tile_m: u32,
    pub tile_n: u32,
    #[doc = "< n counts packed columns when gated"]
    pub m: u32,
    #[doc = "< n counts packed columns when gated"]
    pub n: u32,
    #[doc = "< n counts packed columns when gated"]
    pub k: u32,
    pub a: *const ::std::os::raw::c_void,
    pub b: *const ::std::os::raw::c_void,
    pub d: *mut ::std::os::raw::c_void,
    #[doc = "< NULL, or n elements"]
    pub bias: *const ::std::os::raw::c_void,
    #[doc = "< NULL, or m x n"]
    pub residual: *const ::std::os::raw::c_void,
    #[doc = "< enum cusync_activation"]
    pub activation: u32,
    #[doc = "< index of the stage in the plan, for reports"]
    pub stage: u32,
    #[doc = "< enum cusync_schedule"]
    pub schedule: u32,
    #[doc = "< CTAs to launch; 0: min(tiles, SMs x CTAs per SM)"]
    pub grid: u32,
    pub order: cusync_order,
    #[doc = " Monotonic 64-bit counter in device memory, zeroed once when the pipeline is made. One run draws exactly\n tiles + grid tickets, so ticket / (tiles + grid) is the epoch. Needed by CUSYNC_SCHEDULE_TICKET and whenever\n waits or posts are present."]
    pub tickets: *mut ::std::os::raw::c_ulonglong,
    #[doc = "< the pipeline's slots, zeroed once when the pipeline is made"]
    pub semaphores: *mut u32,
    pub wait_count: u32,
    pub post_count: u32,
    pub waits: [cusync_edge; 4usize],
    pub posts: [cusync_policy; 4usize],
    #[doc = "< 1; other values exist to test starved edges (0: never post)"]
    pub post_value_scale: u32,
    #[doc = "< 1: do not wait (timing only: results are then meaningless)"]
    pub skip_waits: u32,
    #[doc = "< of one wait; 0: the default of 1 s"]
    pub timeout_ns: ::std::os::raw::c_ulonglong,
    #[doc = "< device pointer of a pinned host record"]
    pub report: *mut cusync_report,
    pub delays: cusync_delays,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_gemm_args"][::std::mem::size_of::<cusync_gemm_args>() - 840usize];
    ["Alignment of cusync_gemm_args"][::std::mem::align_of::<cusync_gemm_args>() - 8usize];
    ["Offset of field: cusync_gemm_args::arch"][::std::mem::offset_of!(cusync_gemm_args, arch) - 0usize];
    ["Offset of field: cusync_gemm_args::operation"]
        [::std::mem::offset_of!(cusync_gemm_args, operation) - 4usize];
    ["Offset of field: cusync_gemm_args::element"]
        [::std::mem::offset_of!(cusync_gemm_args, element) - 8usize];
    ["Offset of field: cusync_gemm_args::tile_m"][::std::mem::offset_of!(cusync_gemm_args, tile_m) - 12usize];
    ["Offset of field: cusync_gemm_args::tile_n"][::std::mem::offset_of!(cusync_gemm_args, tile_n) - 16usize];
    ["Offset of field: cusync_gemm_args::m"][::std::mem::offset_of!(cusync_gemm_args, m) - 20usize];
    ["Offset of field: cusync_gemm_args::n"][::std::mem::offset_of!(cusync_gemm_args, n) - 24usize];
    ["Offset of field: cusync_gemm_args::k"][::std::mem::offset_of!(cusync_gemm_args, k) - 28usize];
    ["Offset of field: cusync_gemm_args::a"][::std::mem::offset_of!(cusync_gemm_args, a) - 32usize];
    ["Offset of field: cusync_gemm_args::b"][::std::mem::offset_of!(cusync_gemm_args, b) - 40usize];
    ["Offset of field: cusync_gemm_args::d"][::std::mem::offset_of!(cusync_gemm_args, d) - 48usize];
    ["Offset of field: cusync_gemm_args::bias"][::std::mem::offset_of!(cusync_gemm_args, bias) - 56usize];
    ["Offset of field: cusync_gemm_args::residual"]
        [::std::mem::offset_of!(cusync_gemm_args, residual) - 64usize];
    ["Offset of field: cusync_gemm_args::activation"]
        [::std::mem::offset_of!(cusync_gemm_args, activation) - 72usize];
    ["Offset of field: cusync_gemm_args::stage"][::std::mem::offset_of!(cusync_gemm_args, stage) - 76usize];
    ["Offset of field: cusync_gemm_args::schedule"]
        [::std::mem::offset_of!(cusync_gemm_args, schedule) - 80usize];
    ["Offset of field: cusync_gemm_args::grid"][::std::mem::offset_of!(cusync_gemm_args, grid) - 84usize];
    ["Offset of field: cusync_gemm_args::order"][::std::mem::offset_of!(cusync_gemm_args, order) - 88usize];
    ["Offset of field: cusync_gemm_args::tickets"]
        [::std::mem::offset_of!(cusync_gemm_args, tickets) - 112usize];
    ["Offset of field: cusync_gemm_args::semaphores"]
        [::std::mem::offset_of!(cusync_gemm_args, semaphores) - 120usize];
    ["Offset of field: cusync_gemm_args::wait_count"]
        [::std::mem::offset_of!(cusync_gemm_args, wait_count) - 128usize];
    ["Offset of field: cusync_gemm_args::post_count"]
        [::std::mem::offset_of!(cusync_gemm_args, post_count) - 132usize];
    ["Offset of field: cusync_gemm_args::waits"][::std::mem::offset_of!(cusync_gemm_args, waits) - 136usize];
    ["Offset of field: cusync_gemm_args::posts"][::std::mem::offset_of!(cusync_gemm_args, posts) - 616usize];
    ["Offset of field: cusync_gemm_args::post_value_scale"]
        [::std::mem::offset_of!(cusync_gemm_args, post_value_scale) - 808usize];
    ["Offset of field: cusync_gemm_args::skip_waits"]
        [::std::mem::offset_of!(cusync_gemm_args, skip_waits) - 812usize];
    ["Offset of field: cusync_gemm_args::timeout_ns"]
        [::std::mem::offset_of!(cusync_gemm_args, timeout_ns) - 816usize];
    ["Offset of field: cusync_gemm_args::report"]
        [::std::mem::offset_of!(cusync_gemm_args, report) - 824usize];
    ["Offset of field: cusync_gemm_args::delays"]
        [::std::mem::offset_of!(cusync_gemm_args, delays) - 832usize];
};
impl Default for cusync_gemm_args {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[doc = " A stage made ready to launch: tensor maps encoded, kernel attributes set, module loaded."]
#[repr(C)]
#[derive(Debug)]
pub struct cusync_gemm {
    _unused: [u8; 0],
}
#[doc = " Launch attributes. `completion_event` (a CUevent, or NULL) is recorded when every CTA has begun: the start\n guarantee that a concurrently launched consumer needs. `programmatic` allows the launch to begin when every\n CTA of the kernel before it in the stream has issued its early trigger."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_launch {
    pub stream: *mut ::std::os::raw::c_void,
    pub completion_event: *mut ::std::os::raw::c_void,
    pub programmatic: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_launch"][::std::mem::size_of::<cusync_launch>() - 24usize];
    ["Alignment of cusync_launch"][::std::mem::align_of::<cusync_launch>() - 8usize];
    ["Offset of field: cusync_launch::stream"][::std::mem::offset_of!(cusync_launch, stream) - 0usize];
    ["Offset of field: cusync_launch::completion_event"]
        [::std::mem::offset_of!(cusync_launch, completion_event) - 8usize];
    ["Offset of field: cusync_launch::programmatic"]
        [::std::mem::offset_of!(cusync_launch, programmatic) - 16usize];
};
impl Default for cusync_launch {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const CUSYNC_MAX_FUSED_STAGES: _bindgen_ty_2 = 8;
#[doc = "< cusync_item.role: no item"]
pub const CUSYNC_END_OF_LIST: _bindgen_ty_2 = 0;
#[doc = "< the item is a tile over all of k"]
pub const CUSYNC_WHOLE_TILE: _bindgen_ty_2 = 1;
#[doc = "< adds nothing to the output: leaves its float sums in slab `slab`"]
pub const CUSYNC_CONTRIBUTE: _bindgen_ty_2 = 2;
#[doc = "< adds slabs slab ... slab + slabs - 1 to its own sums, then finishes the tile"]
pub const CUSYNC_FINISH: _bindgen_ty_2 = 3;
#[doc = "< part `part` of `slabs` parts, each of which finishes its own columns: leaves the sums\n< of the others' columns in slab `slab + part`, adds theirs of its own"]
pub const CUSYNC_SHARE: _bindgen_ty_2 = 4;
#[doc = "< what a tile adds to its slot, shared evenly among the parts that finish it"]
pub const CUSYNC_POST_WEIGHT: _bindgen_ty_2 = 12;
#[doc = " ---- fused: a whole chain of GEMM stages in one persistent kernel ---------------------------------------------"]
pub type _bindgen_ty_2 = ::std::os::raw::c_uint;
#[doc = " One piece of work of a worker (a cluster of CTAs): k-blocks [k_begin, k_end) of a tile of a stage. `m` and `n` count\n cluster tiles: CTA (i, j) of the cluster computes tile (m * cluster_m + i, n * cluster_n + j) of the stage's grid,\n or nothing where that lies outside."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_item {
    pub m: u16,
    pub n: u16,
    pub k_begin: u16,
    pub k_end: u16,
    pub stage: u8,
    #[doc = "< CUSYNC_END_OF_LIST, CUSYNC_WHOLE_TILE, CUSYNC_CONTRIBUTE, CUSYNC_FINISH or CUSYNC_SHARE"]
    pub role: u8,
    #[doc = "< CUSYNC_FINISH: slabs to add; CUSYNC_SHARE: parts of the tile"]
    pub slabs: u8,
    #[doc = "< CUSYNC_SHARE: which part"]
    pub part: u8,
    #[doc = "< first slab; a slab is written once a run"]
    pub slab: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_item"][::std::mem::size_of::<cusync_item>() - 16usize];
    ["Alignment of cusync_item"][::std::mem::align_of::<cusync_item>() - 4usize];
    ["Offset of field: cusync_item::m"][::std::mem::offset_of!(cusync_item, m) - 0usize];
    ["Offset of field: cusync_item::n"][::std::mem::offset_of!(cusync_item, n) - 2usize];
    ["Offset of field: cusync_item::k_begin"][::std::mem::offset_of!(cusync_item, k_begin) - 4usize];
    ["Offset of field: cusync_item::k_end"][::std::mem::offset_of!(cusync_item, k_end) - 6usize];
    ["Offset of field: cusync_item::stage"][::std::mem::offset_of!(cusync_item, stage) - 8usize];
    ["Offset of field: cusync_item::role"][::std::mem::offset_of!(cusync_item, role) - 9usize];
    ["Offset of field: cusync_item::slabs"][::std::mem::offset_of!(cusync_item, slabs) - 10usize];
    ["Offset of field: cusync_item::part"][::std::mem::offset_of!(cusync_item, part) - 11usize];
    ["Offset of field: cusync_item::slab"][::std::mem::offset_of!(cusync_item, slab) - 12usize];
};
#[doc = " One compiled chain kernel."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_fused_info {
    #[doc = "< enum cusync_element"]
    pub element: u32,
    #[doc = "< of one CTA"]
    pub tile_m: u32,
    #[doc = "< of one CTA"]
    pub tile_n: u32,
    #[doc = "< of one CTA"]
    pub tile_k: u32,
    pub cluster_m: u32,
    pub cluster_n: u32,
    pub stages: u32,
    pub threads: u32,
    pub shared_bytes: u32,
    pub registers: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_fused_info"][::std::mem::size_of::<cusync_fused_info>() - 40usize];
    ["Alignment of cusync_fused_info"][::std::mem::align_of::<cusync_fused_info>() - 4usize];
    ["Offset of field: cusync_fused_info::element"]
        [::std::mem::offset_of!(cusync_fused_info, element) - 0usize];
    ["Offset of field: cusync_fused_info::tile_m"]
        [::std::mem::offset_of!(cusync_fused_info, tile_m) - 4usize];
    ["Offset of field: cusync_fused_info::tile_n"]
        [::std::mem::offset_of!(cusync_fused_info, tile_n) - 8usize];
    ["Offset of field: cusync_fused_info::tile_k"]
        [::std::mem::offset_of!(cusync_fused_info, tile_k) - 12usize];
    ["Offset of field: cusync_fused_info::cluster_m"]
        [::std::mem::offset_of!(cusync_fused_info, cluster_m) - 16usize];
    ["Offset of field: cusync_fused_info::cluster_n"]
        [::std::mem::offset_of!(cusync_fused_info, cluster_n) - 20usize];
    ["Offset of field: cusync_fused_info::stages"]
        [::std::mem::offset_of!(cusync_fused_info, stages) - 24usize];
    ["Offset of field: cusync_fused_info::threads"]
        [::std::mem::offset_of!(cusync_fused_info, threads) - 28usize];
    ["Offset of field: cusync_fused_info::shared_bytes"]
        [::std::mem::offset_of!(cusync_fused_info, shared_bytes) - 32usize];
    ["Offset of field: cusync_fused_info::registers"]
        [::std::mem::offset_of!(cusync_fused_info, registers) - 36usize];
};
#[doc = " A chain. Stages are described as for cusync_gemm_create, and of each these fields are used: operation, m, n, k, a,\n b, d, bias, residual, activation, stage, wait_count, waits, post_count, posts. The rest is the chain's."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_fused_args {
    pub element: u32,
    pub tile_m: u32,
    pub tile_n: u32,
    pub cluster_m: u32,
    pub cluster_n: u32,
    pub stage_count: u32,
    #[doc = "< host array, producers before consumers"]
    pub stages: *const cusync_gemm_args,
    #[doc = "< clusters of the grid; all of them must be resident at once"]
    pub workers: u32,
    #[doc = "< enum cusync_schedule: a list for each worker, or one list drawn by ticket"]
    pub schedule: u32,
    #[doc = "< device: static: workers lists of `list_length`, each ended by a\n< CUSYNC_END_OF_LIST; ticket: one list of `list_length` items, without"]
    pub items: *const cusync_item,
    pub list_length: u32,
    pub slab_count: u32,
    #[doc = "< device: slab_count * cluster_m * cluster_n * tile_m * tile_n; never cleared"]
    pub slabs: *mut f32,
    #[doc = "< device: 2 * slab_count * cluster_m * cluster_n, zeroed once"]
    pub slab_flags: *mut u32,
    #[doc = "< device: a word for each CTA, zeroed once"]
    pub epochs: *mut u32,
    #[doc = "< device: one counter, zeroed once; used by CUSYNC_SCHEDULE_TICKET"]
    pub tickets: *mut ::std::os::raw::c_ulonglong,
    #[doc = "< device: the plan's slots, zeroed once"]
    pub semaphores: *mut u32,
    pub post_value_scale: u32,
    pub skip_waits: u32,
    pub timeout_ns: ::std::os::raw::c_ulonglong,
    pub report: *mut cusync_report,
    #[doc = "< device, or NULL: workers * cluster * list_length records"]
    pub trace: *mut cusync_trace,
    pub delays: cusync_delays,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_fused_args"][::std::mem::size_of::<cusync_fused_args>() - 136usize];
    ["Alignment of cusync_fused_args"][::std::mem::align_of::<cusync_fused_args>() - 8usize];
    ["Offset of field: cusync_fused_args::element"]
        [::std::mem::offset_of!(cusync_fused_args, element) - 0usize];
    ["Offset of field: cusync_fused_args::tile_m"]
        [::std::mem::offset_of!(cusync_fused_args, tile_m) - 4usize];
    ["Offset of field: cusync_fused_args::tile_n"]
        [::std::mem::offset_of!(cusync_fused_args, tile_n) - 8usize];
    ["Offset of field: cusync_fused_args::cluster_m"]
        [::std::mem::offset_of!(cusync_fused_args, cluster_m) - 12usize];
    ["Offset of field: cusync_fused_args::cluster_n"]
        [::std::mem::offset_of!(cusync_fused_args, cluster_n) - 16usize];
    ["Offset of field: cusync_fused_args::stage_count"]
        [::std::mem::offset_of!(cusync_fused_args, stage_count) - 20usize];
    ["Offset of field: cusync_fused_args::stages"]
        [::std::mem::offset_of!(cusync_fused_args, stages) - 24usize];
    ["Offset of field: cusync_fused_args::workers"]
        [::std::mem::offset_of!(cusync_fused_args, workers) - 32usize];
    ["Offset of field: cusync_fused_args::schedule"]
        [::std::mem::offset_of!(cusync_fused_args, schedule) - 36usize];
    ["Offset of field: cusync_fused_args::items"][::std::mem::offset_of!(cusync_fused_args, items) - 40usize];
    ["Offset of field: cusync_fused_args::list_length"]
        [::std::mem::offset_of!(cusync_fused_args, list_length) - 48usize];
    ["Offset of field: cusync_fused_args::slab_count"]
        [::std::mem::offset_of!(cusync_fused_args, slab_count) - 52usize];
    ["Offset of field: cusync_fused_args::slabs"][::std::mem::offset_of!(cusync_fused_args, slabs) - 56usize];
    ["Offset of field: cusync_fused_args::slab_flags"]
        [::std::mem::offset_of!(cusync_fused_args, slab_flags) - 64usize];
    ["Offset of field: cusync_fused_args::epochs"]
        [::std::mem::offset_of!(cusync_fused_args, epochs) - 72usize];
    ["Offset of field: cusync_fused_args::tickets"]
        [::std::mem::offset_of!(cusync_fused_args, tickets) - 80usize];
    ["Offset of field: cusync_fused_args::semaphores"]
        [::std::mem::offset_of!(cusync_fused_args, semaphores) - 88usize];
    ["Offset of field: cusync_fused_args::post_value_scale"]
        [::std::mem::offset_of!(cusync_fused_args, post_value_scale) - 96usize];
    ["Offset of field: cusync_fused_args::skip_waits"]
        [::std::mem::offset_of!(cusync_fused_args, skip_waits) - 100usize];
    ["Offset of field: cusync_fused_args::timeout_ns"]
        [::std::mem::offset_of!(cusync_fused_args, timeout_ns) - 104usize];
    ["Offset of field: cusync_fused_args::report"]
        [::std::mem::offset_of!(cusync_fused_args, report) - 112usize];
    ["Offset of field: cusync_fused_args::trace"]
        [::std::mem::offset_of!(cusync_fused_args, trace) - 120usize];
    ["Offset of field: cusync_fused_args::delays"]
        [::std::mem::offset_of!(cusync_fused_args, delays) - 128usize];
};
impl Default for cusync_fused_args {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug)]
pub struct cusync_fused {
    _unused: [u8; 0],
}
pub const CUSYNC_MAX_DECODE_STAGES: _bindgen_ty_3 = 8;
#[doc = "< cusync_decode_stage.producer: `a` is written before the launch"]
pub const CUSYNC_DECODE_INPUT: _bindgen_ty_3 = 4294967295;
#[doc = " ---- decode: a chain of GEMM stages for at most 64 tokens, one persistent kernel ---------------------------------\n\n Weights stand on the tensor cores' M side and tokens on the N side. Worker c of P, a CTA, computes features (columns of\n D) [c * n / P, (c + 1) * n / P) of every stage over all of k, so nothing is added twice. Its share of the weights is\n laid out once (cusync_decode_relay) in the order in which it is streamed. A stage that others of the chain read posts\n one semaphore for every 64 columns of its D, once from each worker that computes some of them."]
pub type _bindgen_ty_3 = ::std::os::raw::c_uint;
#[doc = " One stage: d = act(a w + bias) + residual or, gated, d = silu(a wg) * (a wu)."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_decode_stage {
    #[doc = "< CUSYNC_GEMM or CUSYNC_GATED_GEMM"]
    pub operation: u32,
    #[doc = "< n: columns of d, also when gated"]
    pub k: u32,
    #[doc = "< n: columns of d, also when gated"]
    pub n: u32,
    #[doc = "< enum cusync_activation"]
    pub activation: u32,
    #[doc = "< the earlier stage of this chain that writes `a`, or CUSYNC_DECODE_INPUT"]
    pub producer: u32,
    #[doc = "< first of its ceil(n / 64) semaphores; used where another stage reads d"]
    pub slot_base: u32,
    #[doc = "< of the plan, for reports"]
    pub stage: u32,
    #[doc = "< of the plan, for reports"]
    pub edge: u32,
    #[doc = "< as cusync_decode_relay leaves them, for the same number of workers"]
    pub weights: *const ::std::os::raw::c_void,
    #[doc = "< m x k"]
    pub a: *const ::std::os::raw::c_void,
    #[doc = "< m x n; n is a multiple of 8 when another stage reads it"]
    pub d: *mut ::std::os::raw::c_void,
    #[doc = "< NULL, or n elements"]
    pub bias: *const ::std::os::raw::c_void,
    #[doc = "< NULL, or m x n: an input, or any earlier stage's d"]
    pub residual: *const ::std::os::raw::c_void,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_decode_stage"][::std::mem::size_of::<cusync_decode_stage>() - 72usize];
    ["Alignment of cusync_decode_stage"][::std::mem::align_of::<cusync_decode_stage>() - 8usize];
    ["Offset of field: cusync_decode_stage::operation"]
        [::std::mem::offset_of!(cusync_decode_stage, operation) - 0usize];
    ["Offset of field: cusync_decode_stage::k"][::std::mem::offset_of!(cusync_decode_stage, k) - 4usize];
    ["Offset of field: cusync_decode_stage::n"][::std::mem::offset_of!(cusync_decode_stage, n) - 8usize];
    ["Offset of field: cusync_decode_stage::activation"]
        [::std::mem::offset_of!(cusync_decode_stage, activation) - 12usize];
    ["Offset of field: cusync_decode_stage::producer"]
        [::std::mem::offset_of!(cusync_decode_stage, producer) - 16usize];
    ["Offset of field: cusync_decode_stage::slot_base"]
        [::std::mem::offset_of!(cusync_decode_stage, slot_base) - 20usize];
    ["Offset of field: cusync_decode_stage::stage"]
        [::std::mem::offset_of!(cusync_decode_stage, stage) - 24usize];
    ["Offset of field: cusync_decode_stage::edge"]
        [::std::mem::offset_of!(cusync_decode_stage, edge) - 28usize];
    ["Offset of field: cusync_decode_stage::weights"]
        [::std::mem::offset_of!(cusync_decode_stage, weights) - 32usize];
    ["Offset of field: cusync_decode_stage::a"][::std::mem::offset_of!(cusync_decode_stage, a) - 40usize];
    ["Offset of field: cusync_decode_stage::d"][::std::mem::offset_of!(cusync_decode_stage, d) - 48usize];
    ["Offset of field: cusync_decode_stage::bias"]
        [::std::mem::offset_of!(cusync_decode_stage, bias) - 56usize];
    ["Offset of field: cusync_decode_stage::residual"]
        [::std::mem::offset_of!(cusync_decode_stage, residual) - 64usize];
};
impl Default for cusync_decode_stage {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_decode_args {
    #[doc = "< enum cusync_element"]
    pub element: u32,
    #[doc = "< tokens of the MMA: 8, 16, 32 or 64; 0: the least that holds m"]
    pub width: u32,
    #[doc = "< tokens, at most `width`"]
    pub m: u32,
    #[doc = "< all of them must be resident at once, a CTA an SM"]
    pub workers: u32,
    pub stage_count: u32,
    #[doc = "< host array, producers before consumers"]
    pub stages: *const cusync_decode_stage,
    #[doc = "< device: the plan's slots, zeroed once"]
    pub semaphores: *mut u32,
    #[doc = "< device: a word for each CTA, zeroed once"]
    pub epochs: *mut u32,
    #[doc = "< weights that one ring entry aims at"]
    pub chunk_bytes: u32,
    #[doc = "< ring of weights; default: what is left"]
    pub ring_bytes: u32,
    #[doc = "< ring of 64-wide activation tiles, a multiple of 4"]
    pub activation_slots: u32,
    #[doc = "< most weights on their way at once"]
    pub in_flight_bytes: u32,
    #[doc = "< the same while the ring fills with weights of a stage that still waits"]
    pub ahead_bytes: u32,
    #[doc = "< 1: no stage posts (tests)"]
    pub starve: u32,
    #[doc = "< 1: no stage waits (timing only: results are then meaningless)"]
    pub skip_waits: u32,
    #[doc = "< 1: weights stream through the ring and nothing else happens (the read limit)"]
    pub stream_only: u32,
    #[doc = "< of one wait; 0: the default of 1 s"]
    pub timeout_ns: ::std::os::raw::c_ulonglong,
    #[doc = "< device pointer of a pinned host record"]
    pub report: *mut cusync_report,
    #[doc = "< device, or NULL: CTAs * stage_count records, `item` being the stage"]
    pub trace: *mut cusync_trace,
    pub delays: cusync_delays,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_decode_args"][::std::mem::size_of::<cusync_decode_args>() - 112usize];
    ["Alignment of cusync_decode_args"][::std::mem::align_of::<cusync_decode_args>() - 8usize];
    ["Offset of field: cusync_decode_args::element"]
        [::std::mem::offset_of!(cusync_decode_args, element) - 0usize];
    ["Offset of field: cusync_decode_args::width"]
        [::std::mem::offset_of!(cusync_decode_args, width) - 4usize];
    ["Offset of field: cusync_decode_args::m"][::std::mem::offset_of!(cusync_decode_args, m) - 8usize];
    ["Offset of field: cusync_decode_args::workers"]
        [::std::mem::offset_of!(cusync_decode_args, workers) - 12usize];
    ["Offset of field: cusync_decode_args::stage_count"]
        [::std::mem::offset_of!(cusync_decode_args, stage_count) - 16usize];
    ["Offset of field: cusync_decode_args::stages"]
        [::std::mem::offset_of!(cusync_decode_args, stages) - 24usize];
    ["Offset of field: cusync_decode_args::semaphores"]
        [::std::mem::offset_of!(cusync_decode_args, semaphores) - 32usize];
    ["Offset of field: cusync_decode_args::epochs"]
        [::std::mem::offset_of!(cusync_decode_args, epochs) - 40usize];
    ["Offset of field: cusync_decode_args::chunk_bytes"]
        [::std::mem::offset_of!(cusync_decode_args, chunk_bytes) - 48usize];
    ["Offset of field: cusync_decode_args::ring_bytes"]
        [::std::mem::offset_of!(cusync_decode_args, ring_bytes) - 52usize];
    ["Offset of field: cusync_decode_args::activation_slots"]
        [::std::mem::offset_of!(cusync_decode_args, activation_slots) - 56usize];
    ["Offset of field: cusync_decode_args::in_flight_bytes"]
        [::std::mem::offset_of!(cusync_decode_args, in_flight_bytes) - 60usize];
    ["Offset of field: cusync_decode_args::ahead_bytes"]
        [::std::mem::offset_of!(cusync_decode_args, ahead_bytes) - 64usize];
    ["Offset of field: cusync_decode_args::starve"]
        [::std::mem::offset_of!(cusync_decode_args, starve) - 68usize];
    ["Offset of field: cusync_decode_args::skip_waits"]
        [::std::mem::offset_of!(cusync_decode_args, skip_waits) - 72usize];
    ["Offset of field: cusync_decode_args::stream_only"]
        [::std::mem::offset_of!(cusync_decode_args, stream_only) - 76usize];
    ["Offset of field: cusync_decode_args::timeout_ns"]
        [::std::mem::offset_of!(cusync_decode_args, timeout_ns) - 80usize];
    ["Offset of field: cusync_decode_args::report"]
        [::std::mem::offset_of!(cusync_decode_args, report) - 88usize];
    ["Offset of field: cusync_decode_args::trace"]
        [::std::mem::offset_of!(cusync_decode_args, trace) - 96usize];
    ["Offset of field: cusync_decode_args::delays"]
        [::std::mem::offset_of!(cusync_decode_args, delays) - 104usize];
};
impl Default for cusync_decode_args {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[doc = " One compiled decode kernel."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_decode_info {
    #[doc = "< enum cusync_element"]
    pub element: u32,
    #[doc = "< tokens"]
    pub width: u32,
    #[doc = "< most 64-row tiles of weights that a worker may own in a stage"]
    pub row_tiles: u32,
    pub threads: u32,
    pub shared_bytes: u32,
    pub registers: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_decode_info"][::std::mem::size_of::<cusync_decode_info>() - 24usize];
    ["Alignment of cusync_decode_info"][::std::mem::align_of::<cusync_decode_info>() - 4usize];
    ["Offset of field: cusync_decode_info::element"]
        [::std::mem::offset_of!(cusync_decode_info, element) - 0usize];
    ["Offset of field: cusync_decode_info::width"]
        [::std::mem::offset_of!(cusync_decode_info, width) - 4usize];
    ["Offset of field: cusync_decode_info::row_tiles"]
        [::std::mem::offset_of!(cusync_decode_info, row_tiles) - 8usize];
    ["Offset of field: cusync_decode_info::threads"]
        [::std::mem::offset_of!(cusync_decode_info, threads) - 12usize];
    ["Offset of field: cusync_decode_info::shared_bytes"]
        [::std::mem::offset_of!(cusync_decode_info, shared_bytes) - 16usize];
    ["Offset of field: cusync_decode_info::registers"]
        [::std::mem::offset_of!(cusync_decode_info, registers) - 20usize];
};
#[repr(C)]
#[derive(Debug)]
pub struct cusync_decode {
    _unused: [u8; 0],
}
#[doc = " The Stream-K peer: D = act(A B + bias), CUTLASS's own kernel, one of the benchmark's baselines. `workspace` of\n `workspace_bytes`; call with workspace NULL to learn the size."]
#[repr(C)]
#[derive(Debug)]
pub struct cusync_streamk {
    _unused: [u8; 0],
}
unsafe extern "C" {
    #[doc = " Number of compiled kernels; `cusync_kernels` fills up to `capacity` entries and returns how many there are."]
    pub fn cusync_kernels(out: *mut cusync_kernel_info, capacity: u32) -> u32;
    #[doc = " Makes a stage ready. Must run before any kernel of the pipeline spins. Host work only."]
    pub fn cusync_gemm_create(args: *const cusync_gemm_args, out: *mut *mut cusync_gemm) -> i32;
    pub fn cusync_gemm_launch(gemm: *const cusync_gemm, launch: *const cusync_launch) -> i32;
    #[doc = " CTAs that a launch has, and CTAs of it that fit an SM at once."]
    pub fn cusync_gemm_grid(gemm: *const cusync_gemm, ctas: *mut u32, ctas_per_sm: *mut u32) -> i32;
    pub fn cusync_gemm_destroy(gemm: *mut cusync_gemm);
    pub fn cusync_fused_kernels(out: *mut cusync_fused_info, capacity: u32) -> u32;
    #[doc = " Workers of a chain kernel that are resident at once on the current device."]
    pub fn cusync_fused_workers(kernel: *const cusync_fused_info, workers: *mut u32) -> i32;
    pub fn cusync_fused_create(args: *const cusync_fused_args, out: *mut *mut cusync_fused) -> i32;
    #[doc = " `programmatic`: the launch may begin while the kernel before it ends: weights stream meanwhile, everything else\n waits for that kernel's memory."]
    pub fn cusync_fused_launch(fused: *const cusync_fused, launch: *const cusync_launch) -> i32;
    pub fn cusync_fused_destroy(fused: *mut cusync_fused);
    pub fn cusync_decode_kernels(out: *mut cusync_decode_info, capacity: u32) -> u32;
    #[doc = " Workers that are resident at once on the current device, a CTA an SM."]
    pub fn cusync_decode_workers(workers: *mut u32) -> i32;
    #[doc = " Bytes of a stage's re-laid weights: `n` columns of d, gated or not, k rounded up to 64."]
    pub fn cusync_decode_weights_bytes(operation: u32, k: u32, n: u32) -> ::std::os::raw::c_ulonglong;
    #[doc = " Lays out the k x n row-major `weights` (of a gated stage: the gate's, and `up` the other; else `up` is NULL) for\n `workers` workers into `out`, asynchronously on `stream`."]
    pub fn cusync_decode_relay(
        operation: u32,
        k: u32,
        n: u32,
        workers: u32,
        weights: *const ::std::os::raw::c_void,
        up: *const ::std::os::raw::c_void,
        out: *mut ::std::os::raw::c_void,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
    #[doc = " CUSYNC_ERROR_NOT_BUILT: a stage gives a worker more rows than `row_tiles`, or the GPU is of another architecture."]
    pub fn cusync_decode_create(args: *const cusync_decode_args, out: *mut *mut cusync_decode) -> i32;
    #[doc = " `programmatic` as for cusync_fused_launch."]
    pub fn cusync_decode_launch(decode: *const cusync_decode, launch: *const cusync_launch) -> i32;
    pub fn cusync_decode_destroy(decode: *mut cusync_decode);
    pub fn cusync_streamk_create(
        args: *const cusync_gemm_args,
        workspace: *mut ::std::os::raw::c_void,
        workspace_bytes: *mut ::std::os::raw::c_ulonglong,
        out: *mut *mut cusync_streamk,
    ) -> i32;
    pub fn cusync_streamk_launch(gemm: *mut cusync_streamk, stream: *mut ::std::os::raw::c_void) -> i32;
    pub fn cusync_streamk_destroy(gemm: *mut cusync_streamk);
    #[doc = " Device helpers of tests and benchmarks; all asynchronous on `stream`.\n Fills with uniform random values in (-scale, scale)."]
    pub fn cusync_fill_random(
        data: *mut ::std::os::raw::c_void,
        count: ::std::os::raw::c_ulonglong,
        element: u32,
        scale: f32,
        seed: u32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
    #[doc = " out[0] += sum (x - y)^2, out[1] += sum y^2, out[2] = max |x - y|; x of `element`, y float."]
    pub fn cusync_compare(
        x: *const ::std::os::raw::c_void,
        y: *const f32,
        count: ::std::os::raw::c_ulonglong,
        element: u32,
        out: *mut f32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
    #[doc = " Reference with float accumulation and plain CUDA cores, sharing nothing with the kernels above; d is float.\n Rounds the result through `element` once when `round` is set, as a stage that stores it would."]
    pub fn cusync_reference_gemm(
        args: *const cusync_gemm_args,
        d: *mut f32,
        round: u32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
    #[doc = " Interleaves gate and up (each k x n) into packed (k x 2n), groups of 8 columns."]
    pub fn cusync_pack_gated(
        gate: *const ::std::os::raw::c_void,
        up: *const ::std::os::raw::c_void,
        packed: *mut ::std::os::raw::c_void,
        k: u32,
        n: u32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
    #[doc = " silu(x[:, gate]) * x[:, up] for a packed m x 2n product: the separate activation kernel that peers need."]
    pub fn cusync_gated_activation(
        packed: *const ::std::os::raw::c_void,
        d: *mut ::std::os::raw::c_void,
        m: u32,
        n: u32,
        element: u32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
    #[doc = " d = act(x), element-wise, for peers without a fused epilogue."]
    pub fn cusync_activation_kernel(
        x: *const ::std::os::raw::c_void,
        d: *mut ::std::os::raw::c_void,
        count: ::std::os::raw::c_ulonglong,
        activation: u32,
        element: u32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
    #[doc = " The two ceilings, for the floor: reads `bytes` once; and one post or one satisfied wait repeated `count` times,\n nanoseconds each into out[0] (wait), out[1] (post), out[2] (one hand-off between two SMs)."]
    pub fn cusync_stream_read(
        data: *const ::std::os::raw::c_void,
        bytes: ::std::os::raw::c_ulonglong,
        sink: *mut ::std::os::raw::c_void,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
    pub fn cusync_measure_semaphores(
        scratch: *mut u32,
        count: u32,
        out: *mut f32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
    #[doc = " Host-compiled policy arithmetic, the same code that kernels run: what the cpu executor calls."]
    pub fn cusync_host_slot_of(policy: *const cusync_policy, m: u32, n: u32) -> u32;
    pub fn cusync_host_posts_of(policy: *const cusync_policy, slot: u32) -> u32;
    #[doc = " Writes up to `capacity` (slot, posts) pairs that must be reached before k-block `k`; returns how many there are."]
    pub fn cusync_host_waits(
        edge: *const cusync_edge,
        m: u32,
        n: u32,
        k: u32,
        first: u32,
        k_end: u32,
        slots: *mut u32,
        posts: *mut u32,
        capacity: u32,
    ) -> u32;
    #[doc = " Byte offset of element `at_k` of a feature's weights (`up`: 1 for the up weights of a gated stage) after\n cusync_decode_relay."]
    pub fn cusync_host_decode_weight(
        operation: u32,
        k: u32,
        n: u32,
        workers: u32,
        feature: u32,
        up: u32,
        at_k: u32,
    ) -> ::std::os::raw::c_ulonglong;
    #[doc = " The k-blocks of a decode stage in the order in which the CTAs of worker `worker` multiply them, as weights\n (`by_chunks`) or activations are brought; writes up to `capacity` and returns how many there are."]
    pub fn cusync_host_decode_order(
        operation: u32,
        k: u32,
        n: u32,
        workers: u32,
        chunk_bytes: u32,
        worker: u32,
        by_chunks: u32,
        blocks: *mut u32,
        capacity: u32,
    ) -> u32;
    #[doc = " How many chunks the two warpgroups of a decode CTA may be apart, for `slots` of activations, 1 << `chunk_shift` k-blocks\n a chunk and a ring of `max_chunks` chunks."]
    pub fn cusync_host_decode_lead(slots: u32, chunk_shift: u32, max_chunks: u32) -> u32;
    #[doc = " Workers that post the semaphore of 64-wide column tile `tile`."]
    pub fn cusync_host_decode_owners(n: u32, workers: u32, tile: u32) -> u32;
    pub fn cusync_host_tile_at(order: *const cusync_order, i: u32, m: *mut u32, n: *mut u32);
}
