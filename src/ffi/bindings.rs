// Made by bindgen from csrc/abi/cusync.h and csrc/host/decode.h; `cargo xtask render` makes it anew.

#[doc = " Maps the tiles of a producer's grid to semaphore slots.\n\n slot(m, n) = slot_base + (m / block_m) * slots_n + column(n), where\n column(n)  = stride_n == 0 ? n / block_n : n % stride_n.\n\n Tile: block 1 x 1. Row: block 1 x grid_n. Batched: block r x c. Strided: stride_n > 0, block_n unused (1).\n With `width` set, slots are tiles of `width` of the output's `columns` columns. The producer tiles are even shares of\n the columns, (0, i) from column i * columns / grid_n on, and each posts to every slot that it has columns of. Waits\n count column tiles: tile_cols of their edges is `width`, and block is 1 x 1. columns * grid_n stays below 2^32.\n With `table` set (a user's own policy), slot(m, n) = slot_base + table[m * grid_n + n] and the number of\n posts to slot i is table_posts[i - slot_base]."]
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
    #[doc = "< 0, or columns per slot and columns of the output"]
    pub width: u32,
    #[doc = "< 0, or columns per slot and columns of the output"]
    pub columns: u32,
    #[doc = "< NULL, or grid_m * grid_n slot numbers"]
    pub table: *const u32,
    #[doc = "< NULL, or slot_count post counts"]
    pub table_posts: *const u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_policy"][::std::mem::size_of::<cusync_policy>() - 56usize];
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
    ["Offset of field: cusync_policy::width"][::std::mem::offset_of!(cusync_policy, width) - 32usize];
    ["Offset of field: cusync_policy::columns"][::std::mem::offset_of!(cusync_policy, columns) - 36usize];
    ["Offset of field: cusync_policy::table"][::std::mem::offset_of!(cusync_policy, table) - 40usize];
    ["Offset of field: cusync_policy::table_posts"]
        [::std::mem::offset_of!(cusync_policy, table_posts) - 48usize];
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
pub const CUSYNC_OPERAND_A: cusync_role = 0;
pub const CUSYNC_OPERAND_B: cusync_role = 1;
pub const CUSYNC_OPERAND_BIAS: cusync_role = 2;
pub const CUSYNC_OPERAND_RESIDUAL: cusync_role = 3;
pub const CUSYNC_OPERAND_CUSTOM: cusync_role = 4;
#[doc = "< cached keys; the new ones are appended"]
pub const CUSYNC_OPERAND_KEYS: cusync_role = 5;
#[doc = "< cached values; the new ones are appended"]
pub const CUSYNC_OPERAND_VALUES: cusync_role = 6;
#[doc = "< int32: cached tokens of each sequence, before the run"]
pub const CUSYNC_OPERAND_LENGTHS: cusync_role = 7;
#[doc = "< int32: pages of each sequence"]
pub const CUSYNC_OPERAND_PAGES: cusync_role = 8;
#[doc = "< cosines, then sines, of each position"]
pub const CUSYNC_OPERAND_ROTARY: cusync_role = 9;
pub const CUSYNC_OPERAND_GAIN: cusync_role = 10;
#[doc = "< of each normalized head of queries"]
pub const CUSYNC_OPERAND_QUERY_GAIN: cusync_role = 11;
#[doc = "< of each normalized head of keys"]
pub const CUSYNC_OPERAND_KEY_GAIN: cusync_role = 12;
#[doc = " The role of an operand in the stage that reads it."]
pub type cusync_role = ::std::os::raw::c_uint;
#[doc = "< before the first k-block whose footprint enters new slots"]
pub const CUSYNC_WAIT_PER_K_BLOCK: cusync_wait_at = 0;
#[doc = "< for everything the tile reads, before its first dependent load"]
pub const CUSYNC_WAIT_AT_START: cusync_wait_at = 1;
#[doc = " Where in the consumer's k-loop it waits for an edge."]
pub type cusync_wait_at = ::std::os::raw::c_uint;
#[doc = " One dependence as kernels see it: the producer's policy and tile size, and the consumer's footprint."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_edge {
    pub policy: cusync_policy,
    #[doc = "< index of the edge in the plan, for reports"]
    pub id: u32,
    #[doc = "< enum cusync_role of the consumer operand that the edge feeds"]
    pub operand: u32,
    #[doc = "< enum cusync_wait_at"]
    pub wait_at: u32,
    #[doc = "< elements of the tensor in one of the tiles that waits count: the producer's"]
    pub tile_rows: u32,
    #[doc = "< elements of the tensor in one of the tiles that waits count: the producer's"]
    pub tile_cols: u32,
    #[doc = "< tensor size, for clipping"]
    pub tensor_rows: u32,
    #[doc = "< tensor size, for clipping"]
    pub tensor_cols: u32,
    #[doc = "< k-blocks of one consumer tile"]
    pub k_blocks: u32,
    #[doc = "< elements read by consumer tile (m, n) at k-block k"]
    pub rows: cusync_axis,
    #[doc = "< elements read by consumer tile (m, n) at k-block k"]
    pub cols: cusync_axis,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_edge"][::std::mem::size_of::<cusync_edge>() - 128usize];
    ["Alignment of cusync_edge"][::std::mem::align_of::<cusync_edge>() - 8usize];
    ["Offset of field: cusync_edge::policy"][::std::mem::offset_of!(cusync_edge, policy) - 0usize];
    ["Offset of field: cusync_edge::id"][::std::mem::offset_of!(cusync_edge, id) - 56usize];
    ["Offset of field: cusync_edge::operand"][::std::mem::offset_of!(cusync_edge, operand) - 60usize];
    ["Offset of field: cusync_edge::wait_at"][::std::mem::offset_of!(cusync_edge, wait_at) - 64usize];
    ["Offset of field: cusync_edge::tile_rows"][::std::mem::offset_of!(cusync_edge, tile_rows) - 68usize];
    ["Offset of field: cusync_edge::tile_cols"][::std::mem::offset_of!(cusync_edge, tile_cols) - 72usize];
    ["Offset of field: cusync_edge::tensor_rows"][::std::mem::offset_of!(cusync_edge, tensor_rows) - 76usize];
    ["Offset of field: cusync_edge::tensor_cols"][::std::mem::offset_of!(cusync_edge, tensor_cols) - 80usize];
    ["Offset of field: cusync_edge::k_blocks"][::std::mem::offset_of!(cusync_edge, k_blocks) - 84usize];
    ["Offset of field: cusync_edge::rows"][::std::mem::offset_of!(cusync_edge, rows) - 88usize];
    ["Offset of field: cusync_edge::cols"][::std::mem::offset_of!(cusync_edge, cols) - 108usize];
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
#[doc = " The order in which a stage's tiles start: a bijection from 0 .. grid_m * grid_n - 1 onto the grid."]
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
#[doc = "< a wait timed out; the kernel traps"]
pub const CUSYNC_REPORT_LATE: cusync_report_kind = 0;
#[doc = "< sequence `tile_m` has `have` cached tokens, room for `want`; the run skips it"]
pub const CUSYNC_REPORT_BAD_LENGTH: cusync_report_kind = 1;
#[doc = "< page `tile_n` of sequence `tile_m` is `have`, of `want` pages; the run skips it"]
pub const CUSYNC_REPORT_BAD_PAGE: cusync_report_kind = 2;
#[doc = " Kinds of kernel reports."]
pub type cusync_report_kind = ::std::os::raw::c_uint;
#[doc = " The first fault of a run. In pinned host memory, so it survives a later trap."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_report {
    #[doc = "< 0 until the first reporter claims the record, 1 while it writes, 2 when complete"]
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
    #[doc = "< enum cusync_report_kind"]
    pub kind: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_report"][::std::mem::size_of::<cusync_report>() - 44usize];
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
    ["Offset of field: cusync_report::kind"][::std::mem::offset_of!(cusync_report, kind) - 40usize];
};
pub const CUSYNC_OK: cusync_status = 0;
#[doc = "< this binary has no kernels for the request (architecture, tile or type)"]
pub const CUSYNC_ERROR_NOT_BUILT: cusync_status = 1;
#[doc = "< a pointer, size or alignment violates the contract"]
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
pub const CUSYNC_CONV2D: cusync_operation = 2;
pub const CUSYNC_ATTENTION: cusync_operation = 3;
pub const CUSYNC_NORM: cusync_operation = 4;
pub const CUSYNC_ATTEND: cusync_operation = 5;
pub const CUSYNC_POOL: cusync_operation = 6;
pub const CUSYNC_GROUP_NORM: cusync_operation = 7;
#[doc = "< of kernels, not of stages: products can normalize A"]
pub const CUSYNC_INPUT_NORM: cusync_operation = 8;
pub const CUSYNC_GROUPED_CONV: cusync_operation = 9;
pub type cusync_operation = ::std::os::raw::c_uint;
pub const CUSYNC_IDENTITY: cusync_activation = 0;
pub const CUSYNC_GELU_TANH: cusync_activation = 1;
pub const CUSYNC_RELU: cusync_activation = 2;
pub const CUSYNC_SILU: cusync_activation = 3;
pub const CUSYNC_GELU_ERF: cusync_activation = 4;
pub const CUSYNC_QUICK_GELU: cusync_activation = 5;
pub const CUSYNC_SQUARED_RELU: cusync_activation = 6;
pub const CUSYNC_RELU6: cusync_activation = 7;
pub const CUSYNC_HARD_SWISH: cusync_activation = 8;
pub const CUSYNC_SIGMOID: cusync_activation = 9;
pub const CUSYNC_TANH: cusync_activation = 10;
#[doc = " Element-wise functions. GELU: by tanh, by erf (x Phi(x)), and QUICK_GELU, x sigmoid(1.702 x); SILU: x sigmoid(x);\n HARD_SWISH: x min(max(x + 3, 0), 6) / 6."]
pub type cusync_activation = ::std::os::raw::c_uint;
pub const CUSYNC_MAX_DELAY_NS: _bindgen_ty_1 = 500000;
pub type _bindgen_ty_1 = ::std::os::raw::c_uint;
#[doc = " Timestamps of one work item of a chain kernel, taken by the first math thread of its CTA, in nanoseconds of the\n device's global timer. One record per CTA and item."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_trace {
    #[doc = "< the item is known"]
    pub begin: ::std::os::raw::c_ulonglong,
    #[doc = "< all operands of the first k-block may be loaded (waits satisfied)"]
    pub ready: ::std::os::raw::c_ulonglong,
    #[doc = "< the first k-block has arrived"]
    pub loaded: ::std::os::raw::c_ulonglong,
    #[doc = "< the last k-block has been multiplied"]
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
#[doc = " Pseudo-random delays before items, loads behind waits, stores and posts, for tests. A delay is a hash of seed, run,\n SM, tile and kind of place. Only builds with CUSYNC_DELAYS support them, and only in kernels for sm_90a; others\n return CUSYNC_ERROR_NOT_BUILT."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_delays {
    pub seed: u32,
    #[doc = "< maximum delay, at most CUSYNC_MAX_DELAY_NS; a sleep may take twice as long. 0: none"]
    pub limit_ns: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_delays"][::std::mem::size_of::<cusync_delays>() - 8usize];
    ["Alignment of cusync_delays"][::std::mem::align_of::<cusync_delays>() - 4usize];
    ["Offset of field: cusync_delays::seed"][::std::mem::offset_of!(cusync_delays, seed) - 0usize];
    ["Offset of field: cusync_delays::limit_ns"][::std::mem::offset_of!(cusync_delays, limit_ns) - 4usize];
};
#[doc = "< at: slot; value: observed posts"]
pub const CUSYNC_EVENT_WAIT: cusync_event = 0;
#[doc = "< at: enum cusync_operand; value: k-block, or the warpgroup that loads for its epilogue"]
pub const CUSYNC_EVENT_LOAD: cusync_event = 1;
#[doc = "< at: unit; value: warpgroup"]
pub const CUSYNC_EVENT_STORE: cusync_event = 2;
#[doc = "< at: slot; value: posts added"]
pub const CUSYNC_EVENT_POST: cusync_event = 3;
#[doc = "< at: slab; value: warpgroup"]
pub const CUSYNC_EVENT_GIVE: cusync_event = 4;
#[doc = "< at: slab; value: warpgroup"]
pub const CUSYNC_EVENT_TAKE: cusync_event = 5;
#[doc = " Events that a kernel records, for the test that compares a run with its checked plan. Available in the same builds\n and kernels as delays."]
pub type cusync_event = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_note {
    #[doc = "< enum cusync_event"]
    pub event: u32,
    #[doc = "< the tile; for a share, n is the worker"]
    pub stage: u32,
    #[doc = "< the tile; for a share, n is the worker"]
    pub m: u32,
    #[doc = "< the tile; for a share, n is the worker"]
    pub n: u32,
    #[doc = "< first k-block of the item; for an attention tile in a decode kernel, the worker"]
    pub item: u32,
    pub at: u32,
    pub value: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_note"][::std::mem::size_of::<cusync_note>() - 28usize];
    ["Alignment of cusync_note"][::std::mem::align_of::<cusync_note>() - 4usize];
    ["Offset of field: cusync_note::event"][::std::mem::offset_of!(cusync_note, event) - 0usize];
    ["Offset of field: cusync_note::stage"][::std::mem::offset_of!(cusync_note, stage) - 4usize];
    ["Offset of field: cusync_note::m"][::std::mem::offset_of!(cusync_note, m) - 8usize];
    ["Offset of field: cusync_note::n"][::std::mem::offset_of!(cusync_note, n) - 12usize];
    ["Offset of field: cusync_note::item"][::std::mem::offset_of!(cusync_note, item) - 16usize];
    ["Offset of field: cusync_note::at"][::std::mem::offset_of!(cusync_note, at) - 20usize];
    ["Offset of field: cusync_note::value"][::std::mem::offset_of!(cusync_note, value) - 24usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_notes {
    #[doc = "< device"]
    pub list: *mut cusync_note,
    #[doc = "< device: number of events, including those that did not fit"]
    pub count: *mut u32,
    #[doc = "< 0: record nothing"]
    pub capacity: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_notes"][::std::mem::size_of::<cusync_notes>() - 24usize];
    ["Alignment of cusync_notes"][::std::mem::align_of::<cusync_notes>() - 8usize];
    ["Offset of field: cusync_notes::list"][::std::mem::offset_of!(cusync_notes, list) - 0usize];
    ["Offset of field: cusync_notes::count"][::std::mem::offset_of!(cusync_notes, count) - 8usize];
    ["Offset of field: cusync_notes::capacity"][::std::mem::offset_of!(cusync_notes, capacity) - 16usize];
};
impl Default for cusync_notes {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[doc = "< per kernel"]
pub const CUSYNC_MAX_STAGES: _bindgen_ty_2 = 64;
#[doc = "< per stage"]
pub const CUSYNC_MAX_OPERANDS: _bindgen_ty_2 = 8;
#[doc = "< incoming edges per stage"]
pub const CUSYNC_MAX_WAITS: _bindgen_ty_2 = 4;
#[doc = "< outgoing edges per stage"]
pub const CUSYNC_MAX_POSTS: _bindgen_ty_2 = 4;
#[doc = "< product columns of a decode kernel that share a semaphore"]
pub const CUSYNC_COLUMN_TILE: _bindgen_ty_2 = 64;
#[doc = "< tokens per page of a paged cache"]
pub const CUSYNC_PAGE_TOKENS: _bindgen_ty_2 = 64;
#[doc = "< tokens per step of CUSYNC_ATTENTION"]
pub const CUSYNC_PROMPT_TOKENS: _bindgen_ty_2 = 128;
#[doc = "< floats per slab of a decode kernel with attention"]
pub const CUSYNC_ATTEND_SLAB: _bindgen_ty_2 = 1040;
#[doc = "< maximum row length that a decode kernel normalizes"]
pub const CUSYNC_MAX_NORMED: _bindgen_ty_2 = 16384;
#[doc = "< parts of a decode kernel's output, over workers and rounds: the cube is below 2^32"]
pub const CUSYNC_MAX_PARTS: _bindgen_ty_2 = 1625;
pub const CUSYNC_TABLE_ALIGNMENT: _bindgen_ty_2 = 128;
#[doc = " ---- stages, work, synchronization: arguments of every kernel\n --------------------------------------------------------"]
pub type _bindgen_ty_2 = ::std::os::raw::c_uint;
#[doc = "< one stage per launch: tiles in the order of `cusync_work.order`"]
pub const CUSYNC_FAMILY_GEMM: cusync_family = 0;
#[doc = "< many stages: items from lists"]
pub const CUSYNC_FAMILY_CHAIN: cusync_family = 1;
#[doc = "< few tokens: worker c of P owns columns [c * n / P, (c + 1) * n / P) of each stage"]
pub const CUSYNC_FAMILY_DECODE: cusync_family = 2;
#[doc = "< one stage per launch, without waits, posts, trace and notes; the kernel divides it"]
pub const CUSYNC_FAMILY_ALONE: cusync_family = 3;
#[doc = " How a kernel distributes work."]
pub type cusync_family = ::std::os::raw::c_uint;
#[doc = " Identifies a compiled kernel."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_kernel_id {
    #[doc = "< enum cusync_family"]
    pub family: u32,
    #[doc = "< enum cusync_arch"]
    pub arch: u32,
    #[doc = "< supported operations: bit 1 << o for each o of enum cusync_operation"]
    pub operations: u32,
    #[doc = "< enum cusync_element"]
    pub element: u32,
    #[doc = "< MMA tile; 64 x 0 for decode kernels, which take any number of columns; 0 x 0: alone"]
    pub tile_m: u32,
    #[doc = "< MMA tile; 64 x 0 for decode kernels, which take any number of columns; 0 x 0: alone"]
    pub tile_n: u32,
    #[doc = "< CTAs per worker"]
    pub cluster_m: u32,
    #[doc = "< CTAs per worker"]
    pub cluster_n: u32,
    #[doc = "< tokens of a decode kernel's MMA; otherwise 0"]
    pub width: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_kernel_id"][::std::mem::size_of::<cusync_kernel_id>() - 36usize];
    ["Alignment of cusync_kernel_id"][::std::mem::align_of::<cusync_kernel_id>() - 4usize];
    ["Offset of field: cusync_kernel_id::family"][::std::mem::offset_of!(cusync_kernel_id, family) - 0usize];
    ["Offset of field: cusync_kernel_id::arch"][::std::mem::offset_of!(cusync_kernel_id, arch) - 4usize];
    ["Offset of field: cusync_kernel_id::operations"]
        [::std::mem::offset_of!(cusync_kernel_id, operations) - 8usize];
    ["Offset of field: cusync_kernel_id::element"]
        [::std::mem::offset_of!(cusync_kernel_id, element) - 12usize];
    ["Offset of field: cusync_kernel_id::tile_m"][::std::mem::offset_of!(cusync_kernel_id, tile_m) - 16usize];
    ["Offset of field: cusync_kernel_id::tile_n"][::std::mem::offset_of!(cusync_kernel_id, tile_n) - 20usize];
    ["Offset of field: cusync_kernel_id::cluster_m"]
        [::std::mem::offset_of!(cusync_kernel_id, cluster_m) - 24usize];
    ["Offset of field: cusync_kernel_id::cluster_n"]
        [::std::mem::offset_of!(cusync_kernel_id, cluster_n) - 28usize];
    ["Offset of field: cusync_kernel_id::width"][::std::mem::offset_of!(cusync_kernel_id, width) - 32usize];
};
#[doc = " One compiled kernel."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_kernel_info {
    pub id: cusync_kernel_id,
    pub tile_k: u32,
    #[doc = "< k-blocks in the operand ring; 0: sized by cusync_create"]
    pub ring: u32,
    #[doc = "< maximum number of stages"]
    pub stages: u32,
    #[doc = "< device memory needed per stage; 0: none"]
    pub table_bytes: u32,
    #[doc = "< decode: maximum 64-row weight tiles of a worker per stage; otherwise 0"]
    pub row_tiles: u32,
    pub threads: u32,
    pub shared_bytes: u32,
    #[doc = "< registers per thread; 0 if unknown without a GPU"]
    pub registers: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_kernel_info"][::std::mem::size_of::<cusync_kernel_info>() - 68usize];
    ["Alignment of cusync_kernel_info"][::std::mem::align_of::<cusync_kernel_info>() - 4usize];
    ["Offset of field: cusync_kernel_info::id"][::std::mem::offset_of!(cusync_kernel_info, id) - 0usize];
    ["Offset of field: cusync_kernel_info::tile_k"]
        [::std::mem::offset_of!(cusync_kernel_info, tile_k) - 36usize];
    ["Offset of field: cusync_kernel_info::ring"][::std::mem::offset_of!(cusync_kernel_info, ring) - 40usize];
    ["Offset of field: cusync_kernel_info::stages"]
        [::std::mem::offset_of!(cusync_kernel_info, stages) - 44usize];
    ["Offset of field: cusync_kernel_info::table_bytes"]
        [::std::mem::offset_of!(cusync_kernel_info, table_bytes) - 48usize];
    ["Offset of field: cusync_kernel_info::row_tiles"]
        [::std::mem::offset_of!(cusync_kernel_info, row_tiles) - 52usize];
    ["Offset of field: cusync_kernel_info::threads"]
        [::std::mem::offset_of!(cusync_kernel_info, threads) - 56usize];
    ["Offset of field: cusync_kernel_info::shared_bytes"]
        [::std::mem::offset_of!(cusync_kernel_info, shared_bytes) - 60usize];
    ["Offset of field: cusync_kernel_info::registers"]
        [::std::mem::offset_of!(cusync_kernel_info, registers) - 64usize];
};
#[doc = "< one part per k-block; its edges may be waited for k-block by k-block"]
pub const CUSYNC_READ_IN_K_LOOP: cusync_read_at = 0;
#[doc = "< once per tile, after the last k-block"]
pub const CUSYNC_READ_IN_EPILOGUE: cusync_read_at = 1;
#[doc = " When a stage reads an operand."]
pub type cusync_read_at = ::std::os::raw::c_uint;
#[doc = " One operand of a stage."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_operand {
    pub data: *const ::std::os::raw::c_void,
    #[doc = "< enum cusync_role: its role in the operation; at most one operand per role"]
    pub role: u32,
    #[doc = "< enum cusync_read_at"]
    pub read_at: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_operand"][::std::mem::size_of::<cusync_operand>() - 16usize];
    ["Alignment of cusync_operand"][::std::mem::align_of::<cusync_operand>() - 8usize];
    ["Offset of field: cusync_operand::data"][::std::mem::offset_of!(cusync_operand, data) - 0usize];
    ["Offset of field: cusync_operand::role"][::std::mem::offset_of!(cusync_operand, role) - 8usize];
    ["Offset of field: cusync_operand::read_at"][::std::mem::offset_of!(cusync_operand, read_at) - 12usize];
};
impl Default for cusync_operand {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[doc = " The images of a convolution or a pool. A tile is rows of one image (a divisor of its height), or whole images."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_images {
    #[doc = "< input image; `channels` is a multiple of 8"]
    pub height: u32,
    #[doc = "< input image; `channels` is a multiple of 8"]
    pub width: u32,
    #[doc = "< input image; `channels` is a multiple of 8"]
    pub channels: u32,
    #[doc = "< output image"]
    pub out_height: u32,
    #[doc = "< output image"]
    pub out_width: u32,
    pub filter_rows: u32,
    pub filter_cols: u32,
    pub stride_rows: u32,
    pub stride_cols: u32,
    pub padding_rows: u32,
    pub padding_cols: u32,
    #[doc = "< CUSYNC_POOL: 1: average, without padding; 0: maximum"]
    pub mean: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_images"][::std::mem::size_of::<cusync_images>() - 48usize];
    ["Alignment of cusync_images"][::std::mem::align_of::<cusync_images>() - 4usize];
    ["Offset of field: cusync_images::height"][::std::mem::offset_of!(cusync_images, height) - 0usize];
    ["Offset of field: cusync_images::width"][::std::mem::offset_of!(cusync_images, width) - 4usize];
    ["Offset of field: cusync_images::channels"][::std::mem::offset_of!(cusync_images, channels) - 8usize];
    ["Offset of field: cusync_images::out_height"]
        [::std::mem::offset_of!(cusync_images, out_height) - 12usize];
    ["Offset of field: cusync_images::out_width"][::std::mem::offset_of!(cusync_images, out_width) - 16usize];
    ["Offset of field: cusync_images::filter_rows"]
        [::std::mem::offset_of!(cusync_images, filter_rows) - 20usize];
    ["Offset of field: cusync_images::filter_cols"]
        [::std::mem::offset_of!(cusync_images, filter_cols) - 24usize];
    ["Offset of field: cusync_images::stride_rows"]
        [::std::mem::offset_of!(cusync_images, stride_rows) - 28usize];
    ["Offset of field: cusync_images::stride_cols"]
        [::std::mem::offset_of!(cusync_images, stride_cols) - 32usize];
    ["Offset of field: cusync_images::padding_rows"]
        [::std::mem::offset_of!(cusync_images, padding_rows) - 36usize];
    ["Offset of field: cusync_images::padding_cols"]
        [::std::mem::offset_of!(cusync_images, padding_cols) - 40usize];
    ["Offset of field: cusync_images::mean"][::std::mem::offset_of!(cusync_images, mean) - 44usize];
};
#[doc = " A convolution in groups of consecutive channels."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_grouped_conv {
    #[doc = "< a tile as of a pool"]
    pub images: cusync_images,
    #[doc = "< more than one divide the channels, and n"]
    pub groups: u32,
    #[doc = "< input pixels from one tap to the next"]
    pub dilation_rows: u32,
    #[doc = "< input pixels from one tap to the next"]
    pub dilation_cols: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_grouped_conv"][::std::mem::size_of::<cusync_grouped_conv>() - 60usize];
    ["Alignment of cusync_grouped_conv"][::std::mem::align_of::<cusync_grouped_conv>() - 4usize];
    ["Offset of field: cusync_grouped_conv::images"]
        [::std::mem::offset_of!(cusync_grouped_conv, images) - 0usize];
    ["Offset of field: cusync_grouped_conv::groups"]
        [::std::mem::offset_of!(cusync_grouped_conv, groups) - 48usize];
    ["Offset of field: cusync_grouped_conv::dilation_rows"]
        [::std::mem::offset_of!(cusync_grouped_conv, dilation_rows) - 52usize];
    ["Offset of field: cusync_grouped_conv::dilation_cols"]
        [::std::mem::offset_of!(cusync_grouped_conv, dilation_cols) - 56usize];
};
#[doc = " The tiles of a stage as they were planned and proved."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_tiles {
    #[doc = "< of one tile: output rows; columns of accumulators, or of the output of a row operation"]
    pub rows: u32,
    #[doc = "< of one tile: output rows; columns of accumulators, or of the output of a row operation"]
    pub columns: u32,
    #[doc = "< tiles along the rows and the columns"]
    pub grid_m: u32,
    #[doc = "< tiles along the rows and the columns"]
    pub grid_n: u32,
    #[doc = "< k-blocks of the longest tile"]
    pub k_blocks: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_tiles"][::std::mem::size_of::<cusync_tiles>() - 20usize];
    ["Alignment of cusync_tiles"][::std::mem::align_of::<cusync_tiles>() - 4usize];
    ["Offset of field: cusync_tiles::rows"][::std::mem::offset_of!(cusync_tiles, rows) - 0usize];
    ["Offset of field: cusync_tiles::columns"][::std::mem::offset_of!(cusync_tiles, columns) - 4usize];
    ["Offset of field: cusync_tiles::grid_m"][::std::mem::offset_of!(cusync_tiles, grid_m) - 8usize];
    ["Offset of field: cusync_tiles::grid_n"][::std::mem::offset_of!(cusync_tiles, grid_n) - 12usize];
    ["Offset of field: cusync_tiles::k_blocks"][::std::mem::offset_of!(cusync_tiles, k_blocks) - 16usize];
};
#[doc = " Parameters of a normalization stage."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct cusync_norm {
    #[doc = "< 1: subtracts the mean of the row (LayerNorm); 0: does not (RmsNorm)"]
    pub centred: u32,
    #[doc = "< 1: multiplies by one plus the gain; CUSYNC_NORM only"]
    pub one_plus_gain: u32,
    #[doc = "< added to the variance, or to the mean square"]
    pub epsilon: f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_norm"][::std::mem::size_of::<cusync_norm>() - 12usize];
    ["Alignment of cusync_norm"][::std::mem::align_of::<cusync_norm>() - 4usize];
    ["Offset of field: cusync_norm::centred"][::std::mem::offset_of!(cusync_norm, centred) - 0usize];
    ["Offset of field: cusync_norm::one_plus_gain"]
        [::std::mem::offset_of!(cusync_norm, one_plus_gain) - 4usize];
    ["Offset of field: cusync_norm::epsilon"][::std::mem::offset_of!(cusync_norm, epsilon) - 8usize];
};
#[doc = " Parameters of a stage that normalizes groups of channels."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct cusync_group_norm {
    #[doc = "< of an image: consecutive rows of A"]
    pub pixels: u32,
    #[doc = "< of n / groups consecutive columns"]
    pub groups: u32,
    #[doc = "< enum cusync_activation, of the result"]
    pub activation: u32,
    #[doc = "< added to the variance"]
    pub epsilon: f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_group_norm"][::std::mem::size_of::<cusync_group_norm>() - 16usize];
    ["Alignment of cusync_group_norm"][::std::mem::align_of::<cusync_group_norm>() - 4usize];
    ["Offset of field: cusync_group_norm::pixels"]
        [::std::mem::offset_of!(cusync_group_norm, pixels) - 0usize];
    ["Offset of field: cusync_group_norm::groups"]
        [::std::mem::offset_of!(cusync_group_norm, groups) - 4usize];
    ["Offset of field: cusync_group_norm::activation"]
        [::std::mem::offset_of!(cusync_group_norm, activation) - 8usize];
    ["Offset of field: cusync_group_norm::epsilon"]
        [::std::mem::offset_of!(cusync_group_norm, epsilon) - 12usize];
};
#[doc = " The heads of CUSYNC_ATTENTION and CUSYNC_ATTEND, and their key/value caches."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct cusync_heads {
    #[doc = "< CUSYNC_ATTEND: at most 8 query heads share a key/value head"]
    pub query_heads: u32,
    #[doc = "< CUSYNC_ATTEND: at most 8 query heads share a key/value head"]
    pub kv_heads: u32,
    #[doc = "< a multiple of 8, at most 256; CUSYNC_ATTEND: 64 or 128"]
    pub head_dim: u32,
    #[doc = "< of each sequence in A; CUSYNC_ATTEND: 1"]
    pub tokens: u32,
    #[doc = "< CUSYNC_ATTENTION: 1: tokens attend to themselves and earlier ones; 0: to all"]
    pub causal: u32,
    #[doc = "< tokens per sequence in the cache; 0: no cache"]
    pub capacity: u32,
    #[doc = "< pages in the pool; 0: contiguous cache"]
    pub pages: u32,
    #[doc = "< CUSYNC_ATTEND: added to the mean of squares of a head; 0: no norm of heads"]
    pub norm_epsilon: f32,
    #[doc = "< factor on the product of a query and a key"]
    pub scale: f32,
    #[doc = "< c: scores become c tanh(score / c); 0: they do not"]
    pub softcap: f32,
    #[doc = "< tokens that a token attends to at most, itself included; 0: all"]
    pub window: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_heads"][::std::mem::size_of::<cusync_heads>() - 44usize];
    ["Alignment of cusync_heads"][::std::mem::align_of::<cusync_heads>() - 4usize];
    ["Offset of field: cusync_heads::query_heads"]
        [::std::mem::offset_of!(cusync_heads, query_heads) - 0usize];
    ["Offset of field: cusync_heads::kv_heads"][::std::mem::offset_of!(cusync_heads, kv_heads) - 4usize];
    ["Offset of field: cusync_heads::head_dim"][::std::mem::offset_of!(cusync_heads, head_dim) - 8usize];
    ["Offset of field: cusync_heads::tokens"][::std::mem::offset_of!(cusync_heads, tokens) - 12usize];
    ["Offset of field: cusync_heads::causal"][::std::mem::offset_of!(cusync_heads, causal) - 16usize];
    ["Offset of field: cusync_heads::capacity"][::std::mem::offset_of!(cusync_heads, capacity) - 20usize];
    ["Offset of field: cusync_heads::pages"][::std::mem::offset_of!(cusync_heads, pages) - 24usize];
    ["Offset of field: cusync_heads::norm_epsilon"]
        [::std::mem::offset_of!(cusync_heads, norm_epsilon) - 28usize];
    ["Offset of field: cusync_heads::scale"][::std::mem::offset_of!(cusync_heads, scale) - 32usize];
    ["Offset of field: cusync_heads::softcap"][::std::mem::offset_of!(cusync_heads, softcap) - 36usize];
    ["Offset of field: cusync_heads::window"][::std::mem::offset_of!(cusync_heads, window) - 40usize];
};
#[doc = " The sizes of an operation that m, n and k do not state."]
#[repr(C)]
#[derive(Copy, Clone)]
pub union cusync_shape {
    #[doc = "< CUSYNC_CONV2D, CUSYNC_POOL"]
    pub images: cusync_images,
    #[doc = "< CUSYNC_NORM; CUSYNC_GEMM and CUSYNC_GATED_GEMM of decode kernels that normalize A"]
    pub norm: cusync_norm,
    #[doc = "< CUSYNC_GROUP_NORM"]
    pub group_norm: cusync_group_norm,
    #[doc = "< CUSYNC_GROUPED_CONV"]
    pub grouped_conv: cusync_grouped_conv,
    #[doc = "< CUSYNC_ATTENTION, CUSYNC_ATTEND"]
    pub heads: cusync_heads,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_shape"][::std::mem::size_of::<cusync_shape>() - 60usize];
    ["Alignment of cusync_shape"][::std::mem::align_of::<cusync_shape>() - 4usize];
    ["Offset of field: cusync_shape::images"][::std::mem::offset_of!(cusync_shape, images) - 0usize];
    ["Offset of field: cusync_shape::norm"][::std::mem::offset_of!(cusync_shape, norm) - 0usize];
    ["Offset of field: cusync_shape::group_norm"][::std::mem::offset_of!(cusync_shape, group_norm) - 0usize];
    ["Offset of field: cusync_shape::grouped_conv"]
        [::std::mem::offset_of!(cusync_shape, grouped_conv) - 0usize];
    ["Offset of field: cusync_shape::heads"][::std::mem::offset_of!(cusync_shape, heads) - 0usize];
};
impl Default for cusync_shape {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[doc = " One stage. CUSYNC_GEMM: out = act(A B + bias) + residual, or act(A B + bias + residual) if `residual_first` is 1.\n CUSYNC_GATED_GEMM: out = act(A Bg) * (A Bu), where B interleaves the columns of Bg and Bu in groups of 8 (g0..g7\n u0..u7 g8..g15 ...), so its rows have 2 n elements. Decode kernels read B in the layout of cusync_repack. Those with CUSYNC_INPUT_NORM, given\n an `epsilon`, divide each row of A by the root of its mean square plus epsilon; gains are part of B.\n CUSYNC_CONV2D: like CUSYNC_GEMM, where A is pixels x channels (an NHWC tensor), B is (filter_rows * filter_cols *\n channels) x n, and the rows of `out` are output pixels. A k-block is 64 channels of one tap, channels outermost:\n block b has channels from 64 * (b / taps) of tap b % taps. Taps are ordered by the remainders of row and column\n modulo the strides, then by row and column. CUSYNC_NORM: out = (A - mean) / sqrt(variance + epsilon) * gain + bias\n + residual for each row; A and the output are m x n. Its tiles have one k-block of n elements. In decode kernels its tiles are\n single rows of at most CUSYNC_MAX_NORMED elements and post one slot, m times per run. CUSYNC_POOL: each output row\n is the maximum or mean of the rows of A, pixels x n, under a filter window; its tiles have all columns, and one\n k-block with as many elements as the window has pixels.\n\n CUSYNC_GROUP_NORM (alone): out = act((A - mean) / sqrt(variance + epsilon) * gain + bias), with the mean and variance\n of each group of columns over the rows of each image. A tile is one group of one image, with one k-block of all its\n elements; k is their number. GAIN and BIAS have n elements.\n\n CUSYNC_GROUPED_CONV (alone): like CUSYNC_CONV2D, but output channel j is a sum over the input channels of its group,\n j / (n / groups), only. B is (filter_rows * filter_cols * channels / groups) x n. A tile has all columns, and one\n k-block with all k terms of a sum.\n\n CUSYNC_ATTENTION (alone): attention over whole sequences, stored consecutively in the rows of operand A, m x\n (query_heads + 2 kv_heads) * head_dim: queries, keys, values of all heads. If KEYS and VALUES (sequences, kv_heads,\n capacity, head_dim) are given, keys and values are written there from row 0. `pages` is 0.\n\n CUSYNC_ATTEND (decode kernels): attention of one new token in each of m sequences. Operand A is m x (query_heads + 2\n kv_heads) * head_dim: queries, keys, values of all heads; n is query_heads * head_dim. KEYS\n and VALUES are (m, kv_heads, capacity, head_dim), or `pages` pages of (kv_heads, 64, head_dim), assigned to\n sequences by PAGES (m x capacity / 64, rounded up). LENGTHS are read at run time: sequence b has lengths[b] tokens\n in the cache. With ROTARY (capacity x head_dim; cosines of head_dim / 2 pairs, then sines) queries and the new key\n are rotated by that position, with elements (i, i + head_dim / 2) as a pair. With a `norm_epsilon`, which needs\n ROTARY, each head of queries and the new key is divided by the root of its mean square plus epsilon and multiplied\n by QUERY_GAIN or KEY_GAIN (head_dim elements) first. The new key and value are appended to the cache and attended to\n with the cached ones. If a sequence's length is negative or leaves no room, or if any of\n its pages up to the new token's is not in the pool, its output is zero and nothing is appended; the report says so,\n and the other results are correct. All attention stages of a kernel have the same LENGTHS, capacity and kv_heads.\n They post one slot per key/value head, m times per run."]
#[repr(C)]
#[derive(Copy, Clone)]
pub struct cusync_stage {
    #[doc = "< enum cusync_operation"]
    pub operation: u32,
    #[doc = "< enum cusync_activation"]
    pub activation: u32,
    #[doc = "< 1: residual added before the activation; 0: added after it, or none"]
    pub residual_first: u32,
    #[doc = "< index of the stage in the plan, for reports"]
    pub index: u32,
    #[doc = "< size of `out`, also if gated"]
    pub m: u32,
    #[doc = "< size of `out`, also if gated"]
    pub n: u32,
    #[doc = "< length of the reduction: terms of a product's sum, elements of a normalized row or group,\n< pixels of a window, or tokens to which a query may attend"]
    pub k: u32,
    #[doc = "< except in decode kernels"]
    pub tiles: cusync_tiles,
    pub shape: cusync_shape,
    #[doc = "< decode: workers compute `rounds` even parts of `out` each, in as many stages that\n< differ in `round` only; 0 of 1: one part each"]
    pub round: u32,
    #[doc = "< decode: workers compute `rounds` even parts of `out` each, in as many stages that\n< differ in `round` only; 0 of 1: one part each"]
    pub rounds: u32,
    pub operand_count: u32,
    pub wait_count: u32,
    pub post_count: u32,
    pub operands: [cusync_operand; 8usize],
    #[doc = "< m x n"]
    pub out: *mut ::std::os::raw::c_void,
    #[doc = "< each feeds the operand of its role"]
    pub waits: [cusync_edge; 4usize],
    pub posts: [cusync_policy; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_stage"][::std::mem::size_of::<cusync_stage>() - 1000usize];
    ["Alignment of cusync_stage"][::std::mem::align_of::<cusync_stage>() - 8usize];
    ["Offset of field: cusync_stage::operation"][::std::mem::offset_of!(cusync_stage, operation) - 0usize];
    ["Offset of field: cusync_stage::activation"][::std::mem::offset_of!(cusync_stage, activation) - 4usize];
    ["Offset of field: cusync_stage::residual_first"]
        [::std::mem::offset_of!(cusync_stage, residual_first) - 8usize];
    ["Offset of field: cusync_stage::index"][::std::mem::offset_of!(cusync_stage, index) - 12usize];
    ["Offset of field: cusync_stage::m"][::std::mem::offset_of!(cusync_stage, m) - 16usize];
    ["Offset of field: cusync_stage::n"][::std::mem::offset_of!(cusync_stage, n) - 20usize];
    ["Offset of field: cusync_stage::k"][::std::mem::offset_of!(cusync_stage, k) - 24usize];
    ["Offset of field: cusync_stage::tiles"][::std::mem::offset_of!(cusync_stage, tiles) - 28usize];
    ["Offset of field: cusync_stage::shape"][::std::mem::offset_of!(cusync_stage, shape) - 48usize];
    ["Offset of field: cusync_stage::round"][::std::mem::offset_of!(cusync_stage, round) - 108usize];
    ["Offset of field: cusync_stage::rounds"][::std::mem::offset_of!(cusync_stage, rounds) - 112usize];
    ["Offset of field: cusync_stage::operand_count"]
        [::std::mem::offset_of!(cusync_stage, operand_count) - 116usize];
    ["Offset of field: cusync_stage::wait_count"]
        [::std::mem::offset_of!(cusync_stage, wait_count) - 120usize];
    ["Offset of field: cusync_stage::post_count"]
        [::std::mem::offset_of!(cusync_stage, post_count) - 124usize];
    ["Offset of field: cusync_stage::operands"][::std::mem::offset_of!(cusync_stage, operands) - 128usize];
    ["Offset of field: cusync_stage::out"][::std::mem::offset_of!(cusync_stage, out) - 256usize];
    ["Offset of field: cusync_stage::waits"][::std::mem::offset_of!(cusync_stage, waits) - 264usize];
    ["Offset of field: cusync_stage::posts"][::std::mem::offset_of!(cusync_stage, posts) - 776usize];
};
impl Default for cusync_stage {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[doc = "< worker c takes tiles c, c + workers, ... of `order`"]
pub const CUSYNC_SOURCE_ORDER: cusync_source = 0;
#[doc = "< tiles of `order` from a device counter: workers that start early take more"]
pub const CUSYNC_SOURCE_TICKETS: cusync_source = 1;
#[doc = "< one list of items per worker"]
pub const CUSYNC_SOURCE_LISTS: cusync_source = 2;
#[doc = "< one list of items, drawn from a device counter"]
pub const CUSYNC_SOURCE_DRAWN: cusync_source = 3;
#[doc = "< an equal share of every stage's columns"]
pub const CUSYNC_SOURCE_SHARES: cusync_source = 4;
#[doc = "< one list of items, each sent to a worker by a host or by worker 0"]
pub const CUSYNC_SOURCE_MAIL: cusync_source = 5;
#[doc = " How workers get work."]
pub type cusync_source = ::std::os::raw::c_uint;
#[doc = "< cusync_item.role: no item"]
pub const CUSYNC_END_OF_LIST: _bindgen_ty_3 = 0;
#[doc = "< a tile over all of k"]
pub const CUSYNC_WHOLE_TILE: _bindgen_ty_3 = 1;
#[doc = "< no output: leaves float sums in slab `slab`"]
pub const CUSYNC_CONTRIBUTE: _bindgen_ty_3 = 2;
#[doc = "< adds slabs slab ... slab + slabs - 1 to its own sums and finishes the tile"]
pub const CUSYNC_FINISH: _bindgen_ty_3 = 3;
#[doc = "< part `part` of `slabs` parts that each finish their own columns: leaves the sums of\n< the other parts' columns in slab `slab + part`, and adds the others' sums for its\n< own columns"]
pub const CUSYNC_SHARE: _bindgen_ty_3 = 4;
#[doc = "< value that a tile adds to its slot, divided evenly among the parts that finish it"]
pub const CUSYNC_POST_WEIGHT: _bindgen_ty_3 = 48;
pub type _bindgen_ty_3 = ::std::os::raw::c_uint;
#[doc = " One unit of work of a worker (a cluster of CTAs): k-blocks [k_begin, k_end) of one tile of a stage. `m` and `n`\n count cluster tiles: CTA (i, j) of the cluster computes tile (m * cluster_m + i, n * cluster_n + j) of the stage's\n grid, or nothing if that is outside the grid."]
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
    #[doc = "< CUSYNC_SHARE: part number"]
    pub part: u8,
    #[doc = "< first slab; a slab is written once per run"]
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
#[doc = " Shared-memory sizes of one CTA of a decode kernel, in bytes except for slots; 0: default."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_tuning {
    #[doc = "< target size of the weights in one ring entry"]
    pub chunk_bytes: u32,
    #[doc = "< weight ring; default: the remaining space"]
    pub ring_bytes: u32,
    #[doc = "< ring of 64-wide activation tiles, a multiple of 4"]
    pub activation_slots: u32,
    #[doc = "< maximum bytes of weights in flight"]
    pub in_flight_bytes: u32,
    #[doc = "< the same while prefetching weights of a stage that still waits"]
    pub ahead_bytes: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_tuning"][::std::mem::size_of::<cusync_tuning>() - 20usize];
    ["Alignment of cusync_tuning"][::std::mem::align_of::<cusync_tuning>() - 4usize];
    ["Offset of field: cusync_tuning::chunk_bytes"]
        [::std::mem::offset_of!(cusync_tuning, chunk_bytes) - 0usize];
    ["Offset of field: cusync_tuning::ring_bytes"]
        [::std::mem::offset_of!(cusync_tuning, ring_bytes) - 4usize];
    ["Offset of field: cusync_tuning::activation_slots"]
        [::std::mem::offset_of!(cusync_tuning, activation_slots) - 8usize];
    ["Offset of field: cusync_tuning::in_flight_bytes"]
        [::std::mem::offset_of!(cusync_tuning, in_flight_bytes) - 12usize];
    ["Offset of field: cusync_tuning::ahead_bytes"]
        [::std::mem::offset_of!(cusync_tuning, ahead_bytes) - 16usize];
};
#[doc = "< maximum commands that a host may be ahead of a session's kernel"]
pub const CUSYNC_COMMANDS: _bindgen_ty_4 = 16;
#[doc = "< maximum sets times stages of a session"]
pub const CUSYNC_MAX_BOUND: _bindgen_ty_4 = 512;
pub type _bindgen_ty_4 = ::std::os::raw::c_uint;
#[doc = " Pinned host memory for communication between a host and a session's kernel. Command number q, from 1, is in\n commands[q % CUSYNC_COMMANDS] as q << 32 | next << 20 | set << 8 | m: run the stages on the tensors of `set`, for\n the first m rows. `next` announces the set of the following job, so its weights may be prefetched; 0xfff or a wrong\n set announces nothing. m = 0 ends the launch. A command is one release store, made after the command previously in\n that word has finished."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_mailbox {
    #[doc = "< written by the host"]
    pub commands: [::std::os::raw::c_ulonglong; 16usize],
    #[doc = "< written by the kernel: number of the last finished job"]
    pub ended: u32,
    #[doc = "< written by the kernel: launches that have left and take no more commands"]
    pub left: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_mailbox"][::std::mem::size_of::<cusync_mailbox>() - 136usize];
    ["Alignment of cusync_mailbox"][::std::mem::align_of::<cusync_mailbox>() - 8usize];
    ["Offset of field: cusync_mailbox::commands"][::std::mem::offset_of!(cusync_mailbox, commands) - 0usize];
    ["Offset of field: cusync_mailbox::ended"][::std::mem::offset_of!(cusync_mailbox, ended) - 128usize];
    ["Offset of field: cusync_mailbox::left"][::std::mem::offset_of!(cusync_mailbox, left) - 132usize];
};
#[doc = " Device memory, zeroed once, through which the workers of a session's kernel relay commands. Words that workers poll\n do not share a cache line with words that others write."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_relay {
    pub commands: [::std::os::raw::c_ulonglong; 16usize],
    #[doc = "< number of the last finished job"]
    pub ended: u32,
    #[doc = "< number of the last finished job"]
    pub apart: [u32; 31usize],
    #[doc = "< workers that have finished the current job"]
    pub arrived: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_relay"][::std::mem::size_of::<cusync_relay>() - 264usize];
    ["Alignment of cusync_relay"][::std::mem::align_of::<cusync_relay>() - 8usize];
    ["Offset of field: cusync_relay::commands"][::std::mem::offset_of!(cusync_relay, commands) - 0usize];
    ["Offset of field: cusync_relay::ended"][::std::mem::offset_of!(cusync_relay, ended) - 128usize];
    ["Offset of field: cusync_relay::apart"][::std::mem::offset_of!(cusync_relay, apart) - 132usize];
    ["Offset of field: cusync_relay::arrived"][::std::mem::offset_of!(cusync_relay, arrived) - 256usize];
};
#[doc = " A session: a decode kernel that runs jobs at a host's request, and leaves after a period without requests. Its\n launches do not overlap."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_jobs {
    #[doc = "< device address"]
    pub mailbox: *mut cusync_mailbox,
    #[doc = "< device"]
    pub relay: *mut cusync_relay,
    #[doc = "< device, zeroed once: one word per worker"]
    pub launches: *mut u32,
    #[doc = "< tensor sets: cusync_create takes stages set by set, alike except for pointers. 0: none"]
    pub sets: u32,
    #[doc = "< time without a command after which a launch leaves, 1 to 10^9"]
    pub idle_ns: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_jobs"][::std::mem::size_of::<cusync_jobs>() - 32usize];
    ["Alignment of cusync_jobs"][::std::mem::align_of::<cusync_jobs>() - 8usize];
    ["Offset of field: cusync_jobs::mailbox"][::std::mem::offset_of!(cusync_jobs, mailbox) - 0usize];
    ["Offset of field: cusync_jobs::relay"][::std::mem::offset_of!(cusync_jobs, relay) - 8usize];
    ["Offset of field: cusync_jobs::launches"][::std::mem::offset_of!(cusync_jobs, launches) - 16usize];
    ["Offset of field: cusync_jobs::sets"][::std::mem::offset_of!(cusync_jobs, sets) - 24usize];
    ["Offset of field: cusync_jobs::idle_ns"][::std::mem::offset_of!(cusync_jobs, idle_ns) - 28usize];
};
impl Default for cusync_jobs {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[doc = "< words per worker's mailbox"]
pub const CUSYNC_MAIL: _bindgen_ty_5 = 8;
#[doc = "< instead of an item: the launch ends for this worker"]
pub const CUSYNC_NO_ITEM: _bindgen_ty_5 = 1048575;
#[doc = "< word numbers wrap here"]
pub const CUSYNC_NUMBERED: _bindgen_ty_5 = 4096;
pub type _bindgen_ty_5 = ::std::os::raw::c_uint;
#[doc = " Mailboxes of a chain kernel's workers: FIFOs of items. Word number q of worker w, from 1, is in words[w *\n CUSYNC_MAIL + q % CUSYNC_MAIL] as (q % CUSYNC_NUMBERED) << 52 | item << 32 | epoch, where `item` is an index in the\n list. A word is one release store, made after the word previously in that place is done. The first three arrays are\n pinned host memory (device addresses) if a host sends words, or device memory if the kernel has a scheduler; all are\n zeroed once. Launches do not overlap. If idle_ns is not 0, a launch continues until its workers have received no\n word for that long; epochs come with the words, and words it leaves are taken by the next launch. If idle_ns is 0,\n worker 0 takes no items: it sends all items to the other workers in list order, as one run, and ends the launch."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_mail {
    #[doc = "< CUSYNC_MAIL per worker"]
    pub words: *mut ::std::os::raw::c_ulonglong,
    #[doc = "< per worker: number of its last finished word"]
    pub done: *mut u32,
    #[doc = "< per worker: launches begun"]
    pub here: *mut u32,
    #[doc = "< one word next to them: launches that have left and take no more words"]
    pub left: *mut u32,
    #[doc = "< device, two words for alternate launches: workers that are present and have work"]
    pub awake: *mut u32,
    #[doc = "< 1 to 10^9; 0: worker 0 is a scheduler"]
    pub idle_ns: u32,
    #[doc = "< maximum unfinished words that a scheduler has sent to a worker; below CUSYNC_MAIL"]
    pub ahead: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_mail"][::std::mem::size_of::<cusync_mail>() - 48usize];
    ["Alignment of cusync_mail"][::std::mem::align_of::<cusync_mail>() - 8usize];
    ["Offset of field: cusync_mail::words"][::std::mem::offset_of!(cusync_mail, words) - 0usize];
    ["Offset of field: cusync_mail::done"][::std::mem::offset_of!(cusync_mail, done) - 8usize];
    ["Offset of field: cusync_mail::here"][::std::mem::offset_of!(cusync_mail, here) - 16usize];
    ["Offset of field: cusync_mail::left"][::std::mem::offset_of!(cusync_mail, left) - 24usize];
    ["Offset of field: cusync_mail::awake"][::std::mem::offset_of!(cusync_mail, awake) - 32usize];
    ["Offset of field: cusync_mail::idle_ns"][::std::mem::offset_of!(cusync_mail, idle_ns) - 40usize];
    ["Offset of field: cusync_mail::ahead"][::std::mem::offset_of!(cusync_mail, ahead) - 44usize];
};
impl Default for cusync_mail {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[doc = " The assignment of work to workers."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_work {
    #[doc = "< enum cusync_source"]
    pub source: u32,
    #[doc = "< workers in the grid. With lists, drawn items or shares all must be co-resident; with\n< an order, 0 means as many as are resident, or as there are tiles"]
    pub workers: u32,
    #[doc = "< order of the single stage"]
    pub order: cusync_order,
    #[doc = "< device: `workers` lists of `length`, each ended by a CUSYNC_END_OF_LIST; drawn or by mail:\n< one list of `length` items, without an end mark"]
    pub items: *const cusync_item,
    pub length: u32,
    pub slab_count: u32,
    #[doc = " Device, never cleared: slab_count * cluster_m * cluster_n * tile_m * tile_n floats. Decode kernels: 2 * workers\n slabs of CUSYNC_ATTEND_SLAB for each attention stage"]
    pub slabs: *mut f32,
    #[doc = " Device, zeroed once: 3 * slab_count * cluster_m * cluster_n. Decode kernels: m * kv_heads for each attention stage"]
    pub slab_flags: *mut u32,
    #[doc = "< for shares"]
    pub tuning: cusync_tuning,
    #[doc = "< for shares of products only, in kernels for 8 and 64 tokens"]
    pub jobs: cusync_jobs,
    #[doc = "< for CUSYNC_SOURCE_MAIL: whole tiles of products, in kernels with tiles of 128 x 128 and 128 x 256"]
    pub mail: cusync_mail,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_work"][::std::mem::size_of::<cusync_work>() - 168usize];
    ["Alignment of cusync_work"][::std::mem::align_of::<cusync_work>() - 8usize];
    ["Offset of field: cusync_work::source"][::std::mem::offset_of!(cusync_work, source) - 0usize];
    ["Offset of field: cusync_work::workers"][::std::mem::offset_of!(cusync_work, workers) - 4usize];
    ["Offset of field: cusync_work::order"][::std::mem::offset_of!(cusync_work, order) - 8usize];
    ["Offset of field: cusync_work::items"][::std::mem::offset_of!(cusync_work, items) - 32usize];
    ["Offset of field: cusync_work::length"][::std::mem::offset_of!(cusync_work, length) - 40usize];
    ["Offset of field: cusync_work::slab_count"][::std::mem::offset_of!(cusync_work, slab_count) - 44usize];
    ["Offset of field: cusync_work::slabs"][::std::mem::offset_of!(cusync_work, slabs) - 48usize];
    ["Offset of field: cusync_work::slab_flags"][::std::mem::offset_of!(cusync_work, slab_flags) - 56usize];
    ["Offset of field: cusync_work::tuning"][::std::mem::offset_of!(cusync_work, tuning) - 64usize];
    ["Offset of field: cusync_work::jobs"][::std::mem::offset_of!(cusync_work, jobs) - 88usize];
    ["Offset of field: cusync_work::mail"][::std::mem::offset_of!(cusync_work, mail) - 120usize];
};
impl Default for cusync_work {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[doc = " Deviations from a normal run, for tests and measurements; zeros: none."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_test {
    #[doc = "< 1: no stage posts"]
    pub starve: u32,
    #[doc = "< 1: no stage waits (timing only: results are meaningless)"]
    pub skip_waits: u32,
    #[doc = "< 1: a decode kernel only streams its weights (the read limit)"]
    pub stream_only: u32,
    pub delays: cusync_delays,
    pub notes: cusync_notes,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_test"][::std::mem::size_of::<cusync_test>() - 48usize];
    ["Alignment of cusync_test"][::std::mem::align_of::<cusync_test>() - 8usize];
    ["Offset of field: cusync_test::starve"][::std::mem::offset_of!(cusync_test, starve) - 0usize];
    ["Offset of field: cusync_test::skip_waits"][::std::mem::offset_of!(cusync_test, skip_waits) - 4usize];
    ["Offset of field: cusync_test::stream_only"][::std::mem::offset_of!(cusync_test, stream_only) - 8usize];
    ["Offset of field: cusync_test::delays"][::std::mem::offset_of!(cusync_test, delays) - 12usize];
    ["Offset of field: cusync_test::notes"][::std::mem::offset_of!(cusync_test, notes) - 24usize];
};
impl Default for cusync_test {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[doc = " State that couples a kernel's runs to each other and to other kernels. Zeroed once, when the pipeline is created,\n and never reset: epochs come from here, never from the host."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_sync {
    #[doc = "< device: the pipeline's slots; needed if a stage waits or posts"]
    pub semaphores: *mut u32,
    #[doc = "< device: one word per CTA; needed by lists, drawn items and shares"]
    pub epochs: *mut u32,
    #[doc = " Device: a counter used by this kernel only. A run of T tiles or items by W workers draws exactly T + W tickets, so\n ticket / (T + W) is the epoch. Needed by tickets, drawn items, and ordered stages that wait or post."]
    pub tickets: *mut ::std::os::raw::c_ulonglong,
    #[doc = "< device pointer of a pinned host record, or NULL"]
    pub report: *mut cusync_report,
    #[doc = "< device, or NULL. Lists, drawn, mail: CTAs * length records; shares: CTAs * stages"]
    pub trace: *mut cusync_trace,
    #[doc = "< timeout of one wait; 0: the default of 1 s"]
    pub timeout_ns: ::std::os::raw::c_ulonglong,
    pub test: cusync_test,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_sync"][::std::mem::size_of::<cusync_sync>() - 96usize];
    ["Alignment of cusync_sync"][::std::mem::align_of::<cusync_sync>() - 8usize];
    ["Offset of field: cusync_sync::semaphores"][::std::mem::offset_of!(cusync_sync, semaphores) - 0usize];
    ["Offset of field: cusync_sync::epochs"][::std::mem::offset_of!(cusync_sync, epochs) - 8usize];
    ["Offset of field: cusync_sync::tickets"][::std::mem::offset_of!(cusync_sync, tickets) - 16usize];
    ["Offset of field: cusync_sync::report"][::std::mem::offset_of!(cusync_sync, report) - 24usize];
    ["Offset of field: cusync_sync::trace"][::std::mem::offset_of!(cusync_sync, trace) - 32usize];
    ["Offset of field: cusync_sync::timeout_ns"][::std::mem::offset_of!(cusync_sync, timeout_ns) - 40usize];
    ["Offset of field: cusync_sync::test"][::std::mem::offset_of!(cusync_sync, test) - 48usize];
};
impl Default for cusync_sync {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[doc = " A kernel with its stages, ready to launch: tensor maps encoded, attributes set, module loaded."]
#[repr(C)]
#[derive(Debug)]
pub struct cusync_kernel {
    _unused: [u8; 0],
}
#[doc = " Launch options. The stream of a concurrently launched consumer waits for `started_event` (a CUevent, or NULL).\n Kernels for sm_90a record it when every CTA has issued its early trigger or exited; for sm_80 nothing guarantees\n when, so a gate must follow. `programmatic` lets the launch begin when every CTA of the preceding kernel in the\n stream has issued its early trigger; a chain or decode kernel then streams weights, and all its other accesses wait\n for that kernel's memory. Kernels for sm_80 do not support it and launch normally."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_how {
    pub stream: *mut ::std::os::raw::c_void,
    pub started_event: *mut ::std::os::raw::c_void,
    pub programmatic: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_how"][::std::mem::size_of::<cusync_how>() - 24usize];
    ["Alignment of cusync_how"][::std::mem::align_of::<cusync_how>() - 8usize];
    ["Offset of field: cusync_how::stream"][::std::mem::offset_of!(cusync_how, stream) - 0usize];
    ["Offset of field: cusync_how::started_event"]
        [::std::mem::offset_of!(cusync_how, started_event) - 8usize];
    ["Offset of field: cusync_how::programmatic"][::std::mem::offset_of!(cusync_how, programmatic) - 16usize];
};
impl Default for cusync_how {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[doc = " A gate waits until a kernel with a ticket schedule has drawn all tiles of the run: CTAs that are resident on an SM\n then hold all of them. Gate and kernel each run once in every run of a pipeline."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_gate {
    #[doc = "< device: the kernel's counter"]
    pub tickets: *mut ::std::os::raw::c_ulonglong,
    #[doc = "< device: a word used by this gate only, zeroed once"]
    pub runs: *mut ::std::os::raw::c_ulonglong,
    #[doc = "< of one launch of the kernel"]
    pub tiles: u32,
    #[doc = "< of one launch of the kernel"]
    pub workers: u32,
    #[doc = "< for the report: the edge to the waiting stage, and that stage"]
    pub edge: u32,
    #[doc = "< for the report: the edge to the waiting stage, and that stage"]
    pub stage: u32,
    #[doc = "< device pointer of a pinned host record, or NULL"]
    pub report: *mut cusync_report,
    #[doc = "< the gate ends after four times this without a draw. 0: the default of 1 s"]
    pub timeout_ns: ::std::os::raw::c_ulonglong,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_gate"][::std::mem::size_of::<cusync_gate>() - 48usize];
    ["Alignment of cusync_gate"][::std::mem::align_of::<cusync_gate>() - 8usize];
    ["Offset of field: cusync_gate::tickets"][::std::mem::offset_of!(cusync_gate, tickets) - 0usize];
    ["Offset of field: cusync_gate::runs"][::std::mem::offset_of!(cusync_gate, runs) - 8usize];
    ["Offset of field: cusync_gate::tiles"][::std::mem::offset_of!(cusync_gate, tiles) - 16usize];
    ["Offset of field: cusync_gate::workers"][::std::mem::offset_of!(cusync_gate, workers) - 20usize];
    ["Offset of field: cusync_gate::edge"][::std::mem::offset_of!(cusync_gate, edge) - 24usize];
    ["Offset of field: cusync_gate::stage"][::std::mem::offset_of!(cusync_gate, stage) - 28usize];
    ["Offset of field: cusync_gate::report"][::std::mem::offset_of!(cusync_gate, report) - 32usize];
    ["Offset of field: cusync_gate::timeout_ns"][::std::mem::offset_of!(cusync_gate, timeout_ns) - 40usize];
};
impl Default for cusync_gate {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[doc = " The Stream-K baseline of the benchmarks: D = act(A B + bias) by CUTLASS's own kernel. `workspace` has\n `workspace_bytes`; call with workspace NULL to query the size."]
#[repr(C)]
#[derive(Debug)]
pub struct cusync_streamk {
    _unused: [u8; 0],
}
#[doc = " How the next token of a sequence is drawn. Tokens are kept whose logit is at least that of the `top_k`-th (0: all),\n and of these the most likely ones, until their probabilities add up to `top_p` of those kept; tokens with equal\n logits are kept or left out together."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct cusync_sampling {
    #[doc = "< divides logits; 0: the most likely token; negative: no token is drawn"]
    pub temperature: f32,
    #[doc = "< 1: all"]
    pub top_p: f32,
    #[doc = "< 0: all"]
    pub top_k: u32,
    pub seed: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_sampling"][::std::mem::size_of::<cusync_sampling>() - 16usize];
    ["Alignment of cusync_sampling"][::std::mem::align_of::<cusync_sampling>() - 4usize];
    ["Offset of field: cusync_sampling::temperature"]
        [::std::mem::offset_of!(cusync_sampling, temperature) - 0usize];
    ["Offset of field: cusync_sampling::top_p"][::std::mem::offset_of!(cusync_sampling, top_p) - 4usize];
    ["Offset of field: cusync_sampling::top_k"][::std::mem::offset_of!(cusync_sampling, top_k) - 8usize];
    ["Offset of field: cusync_sampling::seed"][::std::mem::offset_of!(cusync_sampling, seed) - 12usize];
};
#[doc = " One attention worker's segment of one (sequence, key/value head): units [begin, end) in global numbering, out of the\n head's [first, last)."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_segment {
    pub sequence: u32,
    pub head: u32,
    pub begin: u32,
    pub end: u32,
    pub first: u32,
    pub last: u32,
    #[doc = "< workers that share the head"]
    pub parts: u32,
    #[doc = "< slab for this part, if there are others"]
    pub slab: u32,
    #[doc = "< slab in which the combining worker reads this part"]
    pub slab_of_part: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_segment"][::std::mem::size_of::<cusync_segment>() - 36usize];
    ["Alignment of cusync_segment"][::std::mem::align_of::<cusync_segment>() - 4usize];
    ["Offset of field: cusync_segment::sequence"][::std::mem::offset_of!(cusync_segment, sequence) - 0usize];
    ["Offset of field: cusync_segment::head"][::std::mem::offset_of!(cusync_segment, head) - 4usize];
    ["Offset of field: cusync_segment::begin"][::std::mem::offset_of!(cusync_segment, begin) - 8usize];
    ["Offset of field: cusync_segment::end"][::std::mem::offset_of!(cusync_segment, end) - 12usize];
    ["Offset of field: cusync_segment::first"][::std::mem::offset_of!(cusync_segment, first) - 16usize];
    ["Offset of field: cusync_segment::last"][::std::mem::offset_of!(cusync_segment, last) - 20usize];
    ["Offset of field: cusync_segment::parts"][::std::mem::offset_of!(cusync_segment, parts) - 24usize];
    ["Offset of field: cusync_segment::slab"][::std::mem::offset_of!(cusync_segment, slab) - 28usize];
    ["Offset of field: cusync_segment::slab_of_part"]
        [::std::mem::offset_of!(cusync_segment, slab_of_part) - 32usize];
};
#[doc = " A product in a kernel with `workers` workers: computed in pairs or not, and one of its rounds."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_shared_product {
    pub operation: u32,
    pub k: u32,
    pub n: u32,
    pub workers: u32,
    pub chunk_bytes: u32,
    pub paired: u32,
    pub round: u32,
    pub rounds: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_shared_product"][::std::mem::size_of::<cusync_shared_product>() - 32usize];
    ["Alignment of cusync_shared_product"][::std::mem::align_of::<cusync_shared_product>() - 4usize];
    ["Offset of field: cusync_shared_product::operation"]
        [::std::mem::offset_of!(cusync_shared_product, operation) - 0usize];
    ["Offset of field: cusync_shared_product::k"][::std::mem::offset_of!(cusync_shared_product, k) - 4usize];
    ["Offset of field: cusync_shared_product::n"][::std::mem::offset_of!(cusync_shared_product, n) - 8usize];
    ["Offset of field: cusync_shared_product::workers"]
        [::std::mem::offset_of!(cusync_shared_product, workers) - 12usize];
    ["Offset of field: cusync_shared_product::chunk_bytes"]
        [::std::mem::offset_of!(cusync_shared_product, chunk_bytes) - 16usize];
    ["Offset of field: cusync_shared_product::paired"]
        [::std::mem::offset_of!(cusync_shared_product, paired) - 20usize];
    ["Offset of field: cusync_shared_product::round"]
        [::std::mem::offset_of!(cusync_shared_product, round) - 24usize];
    ["Offset of field: cusync_shared_product::rounds"]
        [::std::mem::offset_of!(cusync_shared_product, rounds) - 28usize];
};
#[doc = " A worker's share of a product."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_share {
    #[doc = "< its features"]
    pub first: u32,
    #[doc = "< its features"]
    pub count: u32,
    #[doc = "< number of its k-blocks (the pair's if paired), and of those before its own"]
    pub rows: u32,
    #[doc = "< number of its k-blocks (the pair's if paired), and of those before its own"]
    pub lead: u32,
    pub chunks: u32,
    #[doc = "< byte offset of its weights"]
    pub offset: ::std::os::raw::c_ulonglong,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_share"][::std::mem::size_of::<cusync_share>() - 32usize];
    ["Alignment of cusync_share"][::std::mem::align_of::<cusync_share>() - 8usize];
    ["Offset of field: cusync_share::first"][::std::mem::offset_of!(cusync_share, first) - 0usize];
    ["Offset of field: cusync_share::count"][::std::mem::offset_of!(cusync_share, count) - 4usize];
    ["Offset of field: cusync_share::rows"][::std::mem::offset_of!(cusync_share, rows) - 8usize];
    ["Offset of field: cusync_share::lead"][::std::mem::offset_of!(cusync_share, lead) - 12usize];
    ["Offset of field: cusync_share::chunks"][::std::mem::offset_of!(cusync_share, chunks) - 16usize];
    ["Offset of field: cusync_share::offset"][::std::mem::offset_of!(cusync_share, offset) - 24usize];
};
unsafe extern "C" {
    #[doc = " Number of compiled kernels; fills up to `capacity` entries."]
    pub fn cusync_kernels(out: *mut cusync_kernel_info, capacity: u32) -> u32;
    #[doc = " Workers of a kernel that fit on the current device at once."]
    pub fn cusync_resident(id: *const cusync_kernel_id, workers: *mut u32) -> i32;
    #[doc = " Prepares kernel `id` for `count` stages, producers before consumers; for a session, for `count` stages of each set.\n `table` is device memory owned by the caller, count * table_bytes of the kernel's info, aligned to\n CUSYNC_TABLE_ALIGNMENT (NULL if that is 0). This call fills it before it returns; it must outlive the kernel and\n must not be shared. All other arguments are copied or only pointed to. Call it before any kernel of the pipeline\n spins.\n\n CUSYNC_ERROR_NOT_BUILT: there is no such kernel for this GPU, the kernel does not support a stage's operation, or a\n part that a decode worker computes in one round has more rows than it has accumulators for."]
    pub fn cusync_create(
        id: *const cusync_kernel_id,
        stages: *const cusync_stage,
        count: u32,
        work: *const cusync_work,
        sync: *const cusync_sync,
        table: *mut ::std::os::raw::c_void,
        out: *mut *mut cusync_kernel,
    ) -> i32;
    pub fn cusync_launch(kernel: *const cusync_kernel, how: *const cusync_how) -> i32;
    pub fn cusync_destroy(kernel: *mut cusync_kernel);
    #[doc = " Holds back later work on `stream`. Occupies one thread on one SM, without shared memory."]
    pub fn cusync_wait_for_start(gate: *const cusync_gate, stream: *mut ::std::os::raw::c_void) -> i32;
    #[doc = " Size in bytes of a stage's weights in the layout of cusync_repack: `n` output columns, gated or not, k rounded up to\n 64."]
    pub fn cusync_repacked_bytes(operation: u32, k: u32, n: u32) -> ::std::os::raw::c_ulonglong;
    #[doc = " Repacks the k x n row-major `weights` (for a gated stage the gate's weights, with `up` the others; otherwise `up` is\n NULL) into `out`, part by part in streaming order, for decode kernels that divide the output into `parts` parts. With\n `gain` (k elements), row i of the weights is multiplied by gain[i] first. Asynchronous on `stream`."]
    pub fn cusync_repack(
        operation: u32,
        element: u32,
        k: u32,
        n: u32,
        parts: u32,
        weights: *const ::std::os::raw::c_void,
        up: *const ::std::os::raw::c_void,
        gain: *const ::std::os::raw::c_void,
        out: *mut ::std::os::raw::c_void,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
    pub fn cusync_streamk_create(
        stage: *const cusync_stage,
        element: u32,
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
    #[doc = " sums = a b with float accumulation on CUDA cores, sharing no code with the kernels above. `largest` is at least the\n largest magnitude among the partial sums of each sum. a is m x k and b k x n, of `element`; k and n are multiples of\n 8."]
    pub fn cusync_reference_product(
        a: *const ::std::os::raw::c_void,
        b: *const ::std::os::raw::c_void,
        m: u32,
        n: u32,
        k: u32,
        element: u32,
        sums: *mut f32,
        largest: *mut f32,
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
    #[doc = " act(x[:, gate]) * x[:, up] for a packed m x 2n product, floats if `packed_bits` is 32, otherwise `element`: the\n separate activation kernel that library GEMMs need."]
    pub fn cusync_gated_activation(
        packed: *const ::std::os::raw::c_void,
        packed_bits: u32,
        d: *mut ::std::os::raw::c_void,
        m: u32,
        n: u32,
        activation: u32,
        element: u32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
    #[doc = " Copies an m x n product of heads of `head_dim` columns into d, rotating the first `rotated` columns: element i of a\n head's first half and of its second half are a pair, row r has position r modulo `tokens`, and a row of `angles` has\n the cosines of all pairs, then the sines. With an epsilon above 0, rotated heads are normalized first: divided by the\n root of their mean square plus epsilon, and multiplied by `query_gain` in the first `queries` columns and by\n `key_gain` in the others. The product has floats if `product_bits` is 32, otherwise `element`, and may then be d\n itself."]
    pub fn cusync_rotate(
        product: *const ::std::os::raw::c_void,
        product_bits: u32,
        angles: *const ::std::os::raw::c_void,
        d: *mut ::std::os::raw::c_void,
        m: u32,
        n: u32,
        rotated: u32,
        head_dim: u32,
        tokens: u32,
        epsilon: f32,
        query_gain: *const ::std::os::raw::c_void,
        key_gain: *const ::std::os::raw::c_void,
        queries: u32,
        element: u32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
    #[doc = " Copies row tokens[i] of a table, `vocabulary` x `width` 16-bit elements, to row i of `out`. If a token is negative,\n drawn[i] is taken in its place (`drawn` may be NULL if none is). A token outside the table gives a row of zeros."]
    pub fn cusync_embed(
        tokens: *const i32,
        drawn: *const i32,
        table: *const ::std::os::raw::c_void,
        out: *mut ::std::os::raw::c_void,
        count: u32,
        vocabulary: u32,
        width: u32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
    #[doc = " Draws a token from each row of logits, count x pitch, by the first `vocabulary` columns: drawn[i] depends on the row,\n sampling[i] and positions[i] alone. Of equal candidates the first is drawn."]
    pub fn cusync_draw(
        logits: *const ::std::os::raw::c_void,
        sampling: *const cusync_sampling,
        positions: *const i32,
        drawn: *mut i32,
        count: u32,
        vocabulary: u32,
        pitch: u32,
        element: u32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
    #[doc = " d = act(x), element-wise, for baselines without a fused epilogue."]
    pub fn cusync_activation_kernel(
        x: *const ::std::os::raw::c_void,
        d: *mut ::std::os::raw::c_void,
        count: ::std::os::raw::c_ulonglong,
        activation: u32,
        element: u32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
    #[doc = " Ceilings for the floor estimate: the first function reads `bytes` once; the second repeats a satisfied wait and a\n post `count` times and stores nanoseconds per operation: out[0] (wait), out[1] (post), out[2] (one hand-off between\n two SMs)."]
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
    #[doc = " Reads every SM's clock and the global timer (nanoseconds) into out[2 * sm] and out[2 * sm + 1], for SMs below `sms`.\n Two readings around some work give its mean clock rate; the entry of an SM that ran no CTA is unchanged."]
    pub fn cusync_read_clocks(
        out: *mut ::std::os::raw::c_ulonglong,
        sms: u32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
    #[doc = " Host-compiled policy arithmetic, the same code that kernels run, for the cpu executor."]
    pub fn cusync_host_posted_by(
        policy: *const cusync_policy,
        m: u32,
        n: u32,
        begin: *mut u32,
        end: *mut u32,
    );
    pub fn cusync_host_posts_of(policy: *const cusync_policy, slot: u32) -> u32;
    #[doc = " Writes up to `capacity` (slot, posts) pairs that k-block `k` must wait for; returns their number."]
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
    #[doc = " Byte offset of element `at_k` of a feature's weights (`up`: 1 for the up weights of a gated stage) after\n cusync_repack."]
    pub fn cusync_host_decode_weight(
        operation: u32,
        k: u32,
        n: u32,
        workers: u32,
        feature: u32,
        up: u32,
        at_k: u32,
    ) -> ::std::os::raw::c_ulonglong;
    #[doc = " The k-blocks of a decode stage in the order in which the CTAs of worker `worker` multiply them, in the order of\n weights (`by_chunks`) or of activations; writes up to `capacity` and returns their number."]
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
    #[doc = " Maximum distance in chunks between the two warpgroups of a decode CTA, for `slots` activation slots, 1 <<\n `chunk_shift` k-blocks per chunk and a ring of `max_chunks` chunks."]
    pub fn cusync_host_decode_lead(slots: u32, chunk_shift: u32, max_chunks: u32) -> u32;
    #[doc = " The segments of worker `worker`, of `sequences` sequences with `lengths`; writes up to `capacity`, in the worker's\n order, and returns their number. `sums`: scratch memory of 2 * sequences + 2 words."]
    pub fn cusync_host_attention_segments(
        lengths: *const i32,
        sequences: u32,
        cache_capacity: u32,
        kv_heads: u32,
        workers: u32,
        worker: u32,
        sums: *mut u32,
        segments: *mut cusync_segment,
        capacity: u32,
    ) -> u32;
    pub fn cusync_host_tile_at(order: *const cusync_order, i: u32, m: *mut u32, n: *mut u32);
    #[doc = " Whether pairs of workers compute a product together, in a kernel with attention for `width` tokens."]
    pub fn cusync_host_decode_in_pairs(operation: u32, k: u32, n: u32, workers: u32, width: u32) -> u32;
    #[doc = " The share of worker `worker`; writes up to `capacity` of its k-blocks, in multiplication order, and returns their\n number."]
    pub fn cusync_host_decode_share(
        product: *const cusync_shared_product,
        worker: u32,
        share: *mut cusync_share,
        blocks: *mut u32,
        capacity: u32,
    ) -> u32;
}
