// Made by bindgen from csrc/abi/cusync.h and csrc/host/decode.h; `cargo xtask render` makes it anew.

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
#[doc = "< of each position, cosines and then sines"]
pub const CUSYNC_OPERAND_ROTARY: cusync_role = 9;
pub const CUSYNC_OPERAND_GAIN: cusync_role = 10;
#[doc = " What an operand is to the stage that reads it."]
pub type cusync_role = ::std::os::raw::c_uint;
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
    #[doc = "< enum cusync_role of the consumer's operand that it feeds"]
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
#[doc = "< a wait that timed out; the kernel traps"]
pub const CUSYNC_REPORT_LATE: cusync_report_kind = 0;
#[doc = "< sequence `tile_m` has `have` cached tokens, and room for `want`. The run goes on without it"]
pub const CUSYNC_REPORT_BAD_LENGTH: cusync_report_kind = 1;
#[doc = "< page `tile_n` of sequence `tile_m` is `have`, of `want` pages. The run goes on without it"]
pub const CUSYNC_REPORT_BAD_PAGE: cusync_report_kind = 2;
#[doc = " What a kernel reports."]
pub type cusync_report_kind = ::std::os::raw::c_uint;
#[doc = " What went wrong first. Lives in pinned host memory, so it survives a trap that follows."]
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
pub const CUSYNC_CONV2D: cusync_operation = 2;
pub const CUSYNC_ATTENTION: cusync_operation = 3;
pub const CUSYNC_NORM: cusync_operation = 4;
pub const CUSYNC_ATTEND: cusync_operation = 5;
pub const CUSYNC_POOL: cusync_operation = 6;
pub const CUSYNC_ROTATED_GEMM: cusync_operation = 7;
pub type cusync_operation = ::std::os::raw::c_uint;
pub const CUSYNC_IDENTITY: cusync_activation = 0;
pub const CUSYNC_GELU_TANH: cusync_activation = 1;
pub const CUSYNC_RELU: cusync_activation = 2;
pub type cusync_activation = ::std::os::raw::c_uint;
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
#[doc = "< at: slot; value: the posts that were seen"]
pub const CUSYNC_EVENT_WAIT: cusync_event = 0;
#[doc = "< at: enum cusync_operand; value: k-block, or the warpgroup whose epilogue it is for"]
pub const CUSYNC_EVENT_LOAD: cusync_event = 1;
#[doc = "< at: unit; value: warpgroup"]
pub const CUSYNC_EVENT_STORE: cusync_event = 2;
#[doc = "< at: slot; value: the posts that it adds"]
pub const CUSYNC_EVENT_POST: cusync_event = 3;
#[doc = "< at: slab; value: warpgroup"]
pub const CUSYNC_EVENT_GIVE: cusync_event = 4;
#[doc = "< at: slab; value: warpgroup"]
pub const CUSYNC_EVENT_TAKE: cusync_event = 5;
#[doc = " What a kernel notes of itself, event by event, for the test that holds it against what was judged. Builds and kernels that have\n delays have notes, too."]
pub type cusync_event = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_note {
    #[doc = "< enum cusync_event"]
    pub event: u32,
    #[doc = "< the tile; of a share, n: the worker"]
    pub stage: u32,
    #[doc = "< the tile; of a share, n: the worker"]
    pub m: u32,
    #[doc = "< the tile; of a share, n: the worker"]
    pub n: u32,
    #[doc = "< the item's first k-block; of a tile of an attention in a decode kernel, the worker"]
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
    #[doc = "< device: how many there are, those without a place included"]
    pub count: *mut u32,
    #[doc = "< 0: none are taken"]
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
#[doc = "< of one kernel"]
pub const CUSYNC_MAX_STAGES: _bindgen_ty_2 = 64;
#[doc = "< of a stage"]
pub const CUSYNC_MAX_OPERANDS: _bindgen_ty_2 = 6;
#[doc = "< incoming edges of a stage"]
pub const CUSYNC_MAX_WAITS: _bindgen_ty_2 = 4;
#[doc = "< outgoing edges of a stage"]
pub const CUSYNC_MAX_POSTS: _bindgen_ty_2 = 4;
#[doc = "< columns of a product of a decode kernel that share a semaphore"]
pub const CUSYNC_COLUMN_TILE: _bindgen_ty_2 = 64;
#[doc = "< of a paged cache"]
pub const CUSYNC_PAGE_TOKENS: _bindgen_ty_2 = 64;
#[doc = "< of a k-block of CUSYNC_ATTENTION"]
pub const CUSYNC_PROMPT_TOKENS: _bindgen_ty_2 = 128;
#[doc = "< floats of a slab of a decode kernel that attends"]
pub const CUSYNC_ATTEND_SLAB: _bindgen_ty_2 = 1040;
#[doc = "< elements of a row that a decode kernel normalises"]
pub const CUSYNC_MAX_NORMED: _bindgen_ty_2 = 16384;
#[doc = "< parts of an output in a decode kernel, of all workers and rounds: the cube is below 2^32"]
pub const CUSYNC_MAX_PARTS: _bindgen_ty_2 = 1625;
pub const CUSYNC_TABLE_ALIGNMENT: _bindgen_ty_2 = 128;
#[doc = " ---- stages, work, synchronisation: what every kernel takes --------------------------------------------------------"]
pub type _bindgen_ty_2 = ::std::os::raw::c_uint;
#[doc = "< one stage a launch: tiles in the order of `cusync_work.order`"]
pub const CUSYNC_FAMILY_GEMM: cusync_family = 0;
#[doc = "< many stages: items from lists"]
pub const CUSYNC_FAMILY_CHAIN: cusync_family = 1;
#[doc = "< many stages for few tokens: worker c of P has columns [c * n / P, (c + 1) * n / P) of each"]
pub const CUSYNC_FAMILY_DECODE: cusync_family = 2;
#[doc = " How a kernel hands out work."]
pub type cusync_family = ::std::os::raw::c_uint;
#[doc = " What tells a compiled kernel from all others."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_kernel_id {
    #[doc = "< enum cusync_family"]
    pub family: u32,
    #[doc = "< enum cusync_arch"]
    pub arch: u32,
    #[doc = "< the stages it runs: bit 1 << o for each o of enum cusync_operation"]
    pub operations: u32,
    #[doc = "< enum cusync_element"]
    pub element: u32,
    #[doc = "< MMA tile; 64 x 0 for decode kernels, which take any number of columns"]
    pub tile_m: u32,
    #[doc = "< MMA tile; 64 x 0 for decode kernels, which take any number of columns"]
    pub tile_n: u32,
    #[doc = "< CTAs of a worker"]
    pub cluster_m: u32,
    #[doc = "< CTAs of a worker"]
    pub cluster_n: u32,
    #[doc = "< tokens of a decode kernel's MMA, 0 for others"]
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
    #[doc = "< k-blocks that the ring of operands holds; 0: sized by cusync_create"]
    pub ring: u32,
    #[doc = "< most stages that it takes"]
    pub stages: u32,
    #[doc = "< device memory that it needs for each stage; 0: none"]
    pub table_bytes: u32,
    #[doc = "< decode: most 64-row tiles of weights that a worker may own in a stage; else 0"]
    pub row_tiles: u32,
    pub threads: u32,
    pub shared_bytes: u32,
    #[doc = "< of the compiled code, 0 when unknown without a GPU"]
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
#[doc = "< a part for each k-block: its edges may be waited for k-block by k-block"]
pub const CUSYNC_READ_IN_K_LOOP: cusync_read_at = 0;
#[doc = "< once a tile, behind the last k-block"]
pub const CUSYNC_READ_IN_EPILOGUE: cusync_read_at = 1;
#[doc = " When a stage reads an operand."]
pub type cusync_read_at = ::std::os::raw::c_uint;
#[doc = " One operand of a stage."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_operand {
    pub data: *const ::std::os::raw::c_void,
    #[doc = "< enum cusync_role: what it is to the operation. A stage has at most one operand of a role"]
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
#[doc = " How far the tiles in row m of a stage's grid reduce: over min(first + m * step, most) elements of k. A product of\n matrices has one value for all rows: first = most = k, step = 0. Under a causal mask later rows of a sequence reduce further;\n m counts the rows of a sequence then."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_depth {
    pub first: u32,
    pub step: u32,
    pub most: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_depth"][::std::mem::size_of::<cusync_depth>() - 12usize];
    ["Alignment of cusync_depth"][::std::mem::align_of::<cusync_depth>() - 4usize];
    ["Offset of field: cusync_depth::first"][::std::mem::offset_of!(cusync_depth, first) - 0usize];
    ["Offset of field: cusync_depth::step"][::std::mem::offset_of!(cusync_depth, step) - 4usize];
    ["Offset of field: cusync_depth::most"][::std::mem::offset_of!(cusync_depth, most) - 8usize];
};
#[doc = " The images of a convolution or a pool, and how it is cut into tiles."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_images {
    #[doc = "< of an input image; `channels` is a multiple of 8"]
    pub height: u32,
    #[doc = "< of an input image; `channels` is a multiple of 8"]
    pub width: u32,
    #[doc = "< of an input image; `channels` is a multiple of 8"]
    pub channels: u32,
    #[doc = "< of an output image"]
    pub out_height: u32,
    #[doc = "< of an output image"]
    pub out_width: u32,
    pub filter_rows: u32,
    pub filter_cols: u32,
    pub stride_rows: u32,
    pub stride_cols: u32,
    pub padding_rows: u32,
    pub padding_cols: u32,
    #[doc = "< output pixels of a tile: rows of one image, a number that divides its height, or whole images"]
    pub tile_pixels: u32,
    #[doc = "< CUSYNC_POOL: 1: pixels are averaged, and there is no padding; 0: the greatest is taken"]
    pub mean: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_images"][::std::mem::size_of::<cusync_images>() - 52usize];
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
    ["Offset of field: cusync_images::tile_pixels"]
        [::std::mem::offset_of!(cusync_images, tile_pixels) - 44usize];
    ["Offset of field: cusync_images::mean"][::std::mem::offset_of!(cusync_images, mean) - 48usize];
};
#[doc = " What a normalisation adds to a stage."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct cusync_norm {
    #[doc = "< of a tile, which is as wide as the output"]
    pub tile_rows: u32,
    #[doc = "< 1: the mean of a row is taken away (LayerNorm); 0: it is not (RmsNorm)"]
    pub centred: u32,
    #[doc = "< added to the variance, or to the mean of the squares"]
    pub epsilon: f32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_norm"][::std::mem::size_of::<cusync_norm>() - 12usize];
    ["Alignment of cusync_norm"][::std::mem::align_of::<cusync_norm>() - 4usize];
    ["Offset of field: cusync_norm::tile_rows"][::std::mem::offset_of!(cusync_norm, tile_rows) - 0usize];
    ["Offset of field: cusync_norm::centred"][::std::mem::offset_of!(cusync_norm, centred) - 4usize];
    ["Offset of field: cusync_norm::epsilon"][::std::mem::offset_of!(cusync_norm, epsilon) - 8usize];
};
#[doc = " The heads of CUSYNC_ATTENTION, CUSYNC_ATTEND and CUSYNC_ROTATED_GEMM, and where their keys and values are kept."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_heads {
    #[doc = "< CUSYNC_ATTEND: at most 8 query heads share a key/value head"]
    pub query_heads: u32,
    #[doc = "< CUSYNC_ATTEND: at most 8 query heads share a key/value head"]
    pub kv_heads: u32,
    #[doc = "< 64 or 128"]
    pub head_dim: u32,
    #[doc = "< tokens of a sequence that the cache holds; CUSYNC_ROTATED_GEMM: tokens of a sequence"]
    pub capacity: u32,
    #[doc = "< of the pool; 0: the cache is contiguous"]
    pub pages: u32,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_heads"][::std::mem::size_of::<cusync_heads>() - 20usize];
    ["Alignment of cusync_heads"][::std::mem::align_of::<cusync_heads>() - 4usize];
    ["Offset of field: cusync_heads::query_heads"]
        [::std::mem::offset_of!(cusync_heads, query_heads) - 0usize];
    ["Offset of field: cusync_heads::kv_heads"][::std::mem::offset_of!(cusync_heads, kv_heads) - 4usize];
    ["Offset of field: cusync_heads::head_dim"][::std::mem::offset_of!(cusync_heads, head_dim) - 8usize];
    ["Offset of field: cusync_heads::capacity"][::std::mem::offset_of!(cusync_heads, capacity) - 12usize];
    ["Offset of field: cusync_heads::pages"][::std::mem::offset_of!(cusync_heads, pages) - 16usize];
};
#[doc = " One stage. CUSYNC_GEMM: out = act(A B + bias) + residual, or act(A B + bias + residual) where `residual_first` is 1.\n CUSYNC_GATED_GEMM: out = silu(A Bg) * (A Bu), where B holds Bg and Bu interleaved by columns in groups of 8 (g0..g7 u0..u7\n g8..g15 ...), so that its rows are 2 n long. A decode kernel reads B as cusync_repack leaves it. CUSYNC_CONV2D: the same\n as CUSYNC_GEMM, where A is pixels x channels (an NHWC tensor), B is (filter_rows * filter_cols * channels) x n, and the\n rows of `out` are output pixels. Its k-blocks are 64 channels of one tap, channels outermost: block b has the channels\n from 64 * (b / taps) on, of tap b % taps, where taps are ordered by what the strides leave of row and column, then by both.\n CUSYNC_NORM: out = (A - mean) / sqrt(variance + epsilon) * gain + bias, row by\n row, where A, like the output, is m x n. Its tiles have one k-block of n elements. In decode kernels they are\n of one row, of at most CUSYNC_MAX_NORMED elements, and post one slot, m times a run. CUSYNC_POOL: each row of the output is\n the greatest or the mean of the rows of A, pixels x n, that lie under a filter's window; its tiles have all columns, and\n one k-block of as many elements as the window has pixels.\n\n CUSYNC_ATTENTION, of chain kernels, is attention of whole sequences, each of k.most tokens, one after the other in the rows\n of operand A, m x (query_heads + 2 kv_heads) * head_dim: queries, keys, values of all heads. A tile is one head and\n CUSYNC_PROMPT_TOKENS tokens of a sequence, or the whole sequence where that is shorter; with several sequences these are the\n only lengths. Its k-blocks are CUSYNC_PROMPT_TOKENS keys and values. Where k.first = k.step, the rows of a tile, tokens see\n themselves and earlier ones; where k.first = k.most and k.step = 0, all of their sequence. With KEYS and\n VALUES (sequences, kv_heads, capacity, head_dim) keys and values are written there from row 0 on. `pages` is 0.\n\n CUSYNC_ROTATED_GEMM, of chain kernels that attend, makes that operand A: out = A B + bias, where n is (query_heads + 2 kv_heads) *\n head_dim, and queries and keys are rotated before they are rounded: row r by position r % capacity of ROTARY (capacity x head_dim or\n longer; cosines of head_dim / 2 pairs, then sines), elements (i, i + head_dim / 2) of a head together. Its tiles are shared by at\n most half as many parts as they have units, for both elements of a pair are of one part.\n\n CUSYNC_ATTEND, of decode kernels, makes one token of each of m sequences. Operand A is m x (query_heads + 2 kv_heads) *\n head_dim: queries, keys, values of all heads; k says its columns, n is query_heads * head_dim. KEYS and VALUES are\n (m, kv_heads, capacity, head_dim), or `pages` pages of (kv_heads, 64, head_dim), of which PAGES (m x capacity / 64, rounded\n up) says which are whose. LENGTHS are read when the kernel runs: sequence b has lengths[b] tokens in the cache. With ROTARY\n (capacity x head_dim; cosines of head_dim / 2 pairs, then sines) queries and the new key are rotated by that position,\n elements (i, i + head_dim / 2) together. The new key and value are written behind the cached ones, and attended to with them.\n A sequence whose length is negative, or leaves no room, or any of whose pages up to the new token's is not in the pool, gets\n zeros and nothing is appended; the report says so, and the run is otherwise right. All attention stages of a kernel have the\n same LENGTHS, capacity and kv_heads. They post one slot for each key/value head, m times a run."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq)]
pub struct cusync_stage {
    #[doc = "< enum cusync_operation"]
    pub operation: u32,
    #[doc = "< enum cusync_activation"]
    pub activation: u32,
    #[doc = "< 1: the residual is added before the activation; 0: after it, or there is none"]
    pub residual_first: u32,
    #[doc = "< of the stage in the plan, for reports"]
    pub index: u32,
    #[doc = "< of `out`, also when gated"]
    pub m: u32,
    #[doc = "< of `out`, also when gated"]
    pub n: u32,
    pub k: cusync_depth,
    #[doc = "< CUSYNC_CONV2D, CUSYNC_POOL; else zeros"]
    pub images: cusync_images,
    #[doc = "< CUSYNC_NORM; else zeros"]
    pub norm: cusync_norm,
    #[doc = "< CUSYNC_ATTENTION, CUSYNC_ATTEND; else zeros"]
    pub heads: cusync_heads,
    #[doc = "< decode: workers make `rounds` even parts of `out` each, in as many stages that differ in `round` alone;\n< 0 of 1: a part each"]
    pub round: u32,
    #[doc = "< decode: workers make `rounds` even parts of `out` each, in as many stages that differ in `round` alone;\n< 0 of 1: a part each"]
    pub rounds: u32,
    pub operand_count: u32,
    pub wait_count: u32,
    pub post_count: u32,
    pub operands: [cusync_operand; 6usize],
    #[doc = "< m x n"]
    pub out: *mut ::std::os::raw::c_void,
    #[doc = "< each feeds the operand of its role"]
    pub waits: [cusync_edge; 4usize],
    pub posts: [cusync_policy; 4usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    ["Size of cusync_stage"][::std::mem::size_of::<cusync_stage>() - 920usize];
    ["Alignment of cusync_stage"][::std::mem::align_of::<cusync_stage>() - 8usize];
    ["Offset of field: cusync_stage::operation"][::std::mem::offset_of!(cusync_stage, operation) - 0usize];
    ["Offset of field: cusync_stage::activation"][::std::mem::offset_of!(cusync_stage, activation) - 4usize];
    ["Offset of field: cusync_stage::residual_first"]
        [::std::mem::offset_of!(cusync_stage, residual_first) - 8usize];
    ["Offset of field: cusync_stage::index"][::std::mem::offset_of!(cusync_stage, index) - 12usize];
    ["Offset of field: cusync_stage::m"][::std::mem::offset_of!(cusync_stage, m) - 16usize];
    ["Offset of field: cusync_stage::n"][::std::mem::offset_of!(cusync_stage, n) - 20usize];
    ["Offset of field: cusync_stage::k"][::std::mem::offset_of!(cusync_stage, k) - 24usize];
    ["Offset of field: cusync_stage::images"][::std::mem::offset_of!(cusync_stage, images) - 36usize];
    ["Offset of field: cusync_stage::norm"][::std::mem::offset_of!(cusync_stage, norm) - 88usize];
    ["Offset of field: cusync_stage::heads"][::std::mem::offset_of!(cusync_stage, heads) - 100usize];
    ["Offset of field: cusync_stage::round"][::std::mem::offset_of!(cusync_stage, round) - 120usize];
    ["Offset of field: cusync_stage::rounds"][::std::mem::offset_of!(cusync_stage, rounds) - 124usize];
    ["Offset of field: cusync_stage::operand_count"]
        [::std::mem::offset_of!(cusync_stage, operand_count) - 128usize];
    ["Offset of field: cusync_stage::wait_count"]
        [::std::mem::offset_of!(cusync_stage, wait_count) - 132usize];
    ["Offset of field: cusync_stage::post_count"]
        [::std::mem::offset_of!(cusync_stage, post_count) - 136usize];
    ["Offset of field: cusync_stage::operands"][::std::mem::offset_of!(cusync_stage, operands) - 144usize];
    ["Offset of field: cusync_stage::out"][::std::mem::offset_of!(cusync_stage, out) - 240usize];
    ["Offset of field: cusync_stage::waits"][::std::mem::offset_of!(cusync_stage, waits) - 248usize];
    ["Offset of field: cusync_stage::posts"][::std::mem::offset_of!(cusync_stage, posts) - 728usize];
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
#[doc = "< tiles of `order` by a device counter: a worker that starts early takes more"]
pub const CUSYNC_SOURCE_TICKETS: cusync_source = 1;
#[doc = "< a list of items for each worker"]
pub const CUSYNC_SOURCE_LISTS: cusync_source = 2;
#[doc = "< one list of items, by a device counter"]
pub const CUSYNC_SOURCE_DRAWN: cusync_source = 3;
#[doc = "< an equal share of every stage's columns"]
pub const CUSYNC_SOURCE_SHARES: cusync_source = 4;
#[doc = "< one list of items, of which a host or a worker sends each to a worker"]
pub const CUSYNC_SOURCE_MAIL: cusync_source = 5;
#[doc = " How work reaches workers."]
pub type cusync_source = ::std::os::raw::c_uint;
#[doc = "< cusync_item.role: no item"]
pub const CUSYNC_END_OF_LIST: _bindgen_ty_3 = 0;
#[doc = "< the item is a tile over all of k"]
pub const CUSYNC_WHOLE_TILE: _bindgen_ty_3 = 1;
#[doc = "< adds nothing to the output: leaves its float sums in slab `slab`"]
pub const CUSYNC_CONTRIBUTE: _bindgen_ty_3 = 2;
#[doc = "< adds slabs slab ... slab + slabs - 1 to its own sums, then finishes the tile"]
pub const CUSYNC_FINISH: _bindgen_ty_3 = 3;
#[doc = "< part `part` of `slabs` parts, each of which finishes its own columns: leaves the sums\n< of the others' columns in slab `slab + part`, adds theirs of its own"]
pub const CUSYNC_SHARE: _bindgen_ty_3 = 4;
#[doc = "< what a tile adds to its slot, shared evenly among the parts that finish it"]
pub const CUSYNC_POST_WEIGHT: _bindgen_ty_3 = 48;
pub type _bindgen_ty_3 = ::std::os::raw::c_uint;
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
#[doc = " Sizes in shared memory of one CTA of a decode kernel, in bytes but for the slots; 0 takes the default of each."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_tuning {
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
#[doc = "< that a host may be ahead of a session's kernel"]
pub const CUSYNC_COMMANDS: _bindgen_ty_4 = 16;
#[doc = "< sets times stages of a session"]
pub const CUSYNC_MAX_BOUND: _bindgen_ty_4 = 512;
pub type _bindgen_ty_4 = ::std::os::raw::c_uint;
#[doc = " Pinned host memory through which a host and the kernel of a session speak. Command number q, from 1, lies in\n commands[q % CUSYNC_COMMANDS] as q << 32 | next << 20 | set << 8 | m: a run of the stages with the tensors of a set, for the first m\n rows. `next` announces the set of the job after, whose weights then may come in early; 0xfff, or a wrong one, announces nothing. m =\n 0 ends the launch. A command is one store, which releases, and is written when the one that lay there is over."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_mailbox {
    #[doc = "< the host writes"]
    pub commands: [::std::os::raw::c_ulonglong; 16usize],
    #[doc = "< the kernel writes: number of the last job that is over"]
    pub ended: u32,
    #[doc = "< the kernel writes: launches that have left; they take no command any more"]
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
#[doc = " Device memory, zeroed once, by which the workers of a session's kernel hand commands on. What one waits for does not share a\n line with what others write."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_relay {
    pub commands: [::std::os::raw::c_ulonglong; 16usize],
    #[doc = "< number of the last job that is over"]
    pub ended: u32,
    #[doc = "< number of the last job that is over"]
    pub apart: [u32; 31usize],
    #[doc = "< workers that have finished the present one"]
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
#[doc = " A session: a decode kernel that runs job after job, as a host asks for them, and leaves when it has been asked for none for a\n while. Its launches follow each other."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_jobs {
    #[doc = "< as the device addresses it"]
    pub mailbox: *mut cusync_mailbox,
    #[doc = "< device"]
    pub relay: *mut cusync_relay,
    #[doc = "< device, zeroed once: a word for each worker"]
    pub launches: *mut u32,
    #[doc = "< of tensors: cusync_create takes the stages set after set, alike but for pointers. 0: no session"]
    pub sets: u32,
    #[doc = "< without a command after which a launch leaves, 1 to 10^9"]
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
#[doc = "< words of a worker's mailbox"]
pub const CUSYNC_MAIL: _bindgen_ty_5 = 8;
#[doc = "< in place of an item: the launch ends for the worker"]
pub const CUSYNC_NO_ITEM: _bindgen_ty_5 = 1048575;
#[doc = "< the numbers of words wrap here"]
pub const CUSYNC_NUMBERED: _bindgen_ty_5 = 4096;
pub type _bindgen_ty_5 = ::std::os::raw::c_uint;
#[doc = " Mailboxes of the workers of a chain kernel, from which they take items first in, first out. Word number q of worker w, from 1, lies in\n words[w * CUSYNC_MAIL + q % CUSYNC_MAIL] as (q % CUSYNC_NUMBERED) << 52 | item << 32 | epoch, where `item` is its place in the list. It is one\n store, which releases, made when what lay there is done. The first three are memory of a host that sends words, pinned and as the device\n addresses it, or device memory where the kernel has a scheduler; all is zeroed once. Launches follow each other. With idle_ns a launch\n goes on until its workers have had no word for so long, and takes epochs as they come; words that it leaves are the next one's.\n Without, worker 0 takes none and sends all items to the others in the order of the list, as one run, and ends the launch."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_mail {
    #[doc = "< CUSYNC_MAIL for each worker"]
    pub words: *mut ::std::os::raw::c_ulonglong,
    #[doc = "< for each worker: number of the last word that it has done"]
    pub done: *mut u32,
    #[doc = "< for each worker: launches that it has begun"]
    pub here: *mut u32,
    #[doc = "< one word beside them: launches that have left; they take no word any more"]
    pub left: *mut u32,
    #[doc = "< device, two words: workers that are here and have work, of launches in turn"]
    pub awake: *mut u32,
    #[doc = "< 1 to 10^9; 0: worker 0 is a scheduler"]
    pub idle_ns: u32,
    #[doc = "< most words, done ones apart, that a scheduler sends a worker; below CUSYNC_MAIL"]
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
#[doc = " Who computes what."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_work {
    #[doc = "< enum cusync_source"]
    pub source: u32,
    #[doc = "< of the grid. With lists, drawn items or shares all of them must be resident at once; with an\n< order 0 takes as many as are resident, or as there are tiles"]
    pub workers: u32,
    #[doc = "< of the one stage"]
    pub order: cusync_order,
    #[doc = "< device: `workers` lists of `length`, each ended by a CUSYNC_END_OF_LIST; drawn or by mail: one\n< list of `length` items, without"]
    pub items: *const cusync_item,
    pub length: u32,
    pub slab_count: u32,
    #[doc = " Device, never cleared: slab_count * cluster_m * cluster_n * tile_m * tile_n. Of a decode kernel 2 * workers slabs of\n CUSYNC_ATTEND_SLAB for each attention stage"]
    pub slabs: *mut f32,
    #[doc = " Device, zeroed once: 3 * slab_count * cluster_m * cluster_n. Of a decode kernel m * kv_heads for each attention stage"]
    pub slab_flags: *mut u32,
    #[doc = "< of shares"]
    pub tuning: cusync_tuning,
    #[doc = "< of shares, of products alone, in kernels for 8 and 64 tokens"]
    pub jobs: cusync_jobs,
    #[doc = "< of CUSYNC_SOURCE_MAIL: whole tiles of products, in kernels with tiles of 128 x 128 and 128 x 256"]
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
#[doc = " How a kernel deviates from an ordinary run, for tests and measurements; zeros: in nothing."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_test {
    #[doc = "< 1: no stage posts"]
    pub starve: u32,
    #[doc = "< 1: no stage waits (timing only: results are then meaningless)"]
    pub skip_waits: u32,
    #[doc = "< 1: a decode kernel streams its weights and nothing else happens (the read limit)"]
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
#[doc = " What couples a kernel's work, to itself from run to run and to other work. All of it is zeroed once, when the pipeline is\n made, and counts on for ever: epochs come from here, never from the host."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_sync {
    #[doc = "< device: the pipeline's slots; needed where a stage waits or posts"]
    pub semaphores: *mut u32,
    #[doc = "< device: a word for each CTA; needed by lists, drawn items and shares"]
    pub epochs: *mut u32,
    #[doc = " Device: one counter of the kernel's own. A run of T tiles or items by W workers draws exactly T + W tickets, so\n ticket / (T + W) is the epoch. Needed by tickets, by drawn items, and by an ordered stage that waits or posts."]
    pub tickets: *mut ::std::os::raw::c_ulonglong,
    #[doc = "< device pointer of a pinned host record, or NULL"]
    pub report: *mut cusync_report,
    #[doc = "< device, or NULL. Lists, drawn, mail: CTAs * length records; shares: CTAs * stages"]
    pub trace: *mut cusync_trace,
    #[doc = "< of one wait; 0: the default of 1 s"]
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
#[doc = " How to launch. `started_event` (a CUevent, or NULL) is what a concurrently launched consumer's stream waits for. Of kernels for\n sm_90a it is recorded when every CTA has issued its early trigger or has ended; of kernels for sm_80 nothing guarantees when, and a\n gate has to follow. `programmatic` allows the launch to begin when every CTA of the kernel before it\n in the stream has issued its early trigger; a chain or decode kernel then streams weights, and everything else waits\n for that kernel's memory. Kernels for sm_80 do not offer it and are launched ordinarily."]
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
#[doc = " What a gate waits for: that in its run a kernel with a ticket schedule has drawn all of its tiles, which CTAs with an SM then\n have. Gate and kernel run once each in every run of a pipeline."]
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_gate {
    #[doc = "< device: the kernel's counter"]
    pub tickets: *mut ::std::os::raw::c_ulonglong,
    #[doc = "< device: a word of the gate's own, zeroed once"]
    pub runs: *mut ::std::os::raw::c_ulonglong,
    #[doc = "< of a launch of the kernel"]
    pub tiles: u32,
    #[doc = "< of a launch of the kernel"]
    pub workers: u32,
    #[doc = "< for the report: the edge to the waiting stage, and that stage"]
    pub edge: u32,
    #[doc = "< for the report: the edge to the waiting stage, and that stage"]
    pub stage: u32,
    #[doc = "< device pointer of a pinned host record, or NULL"]
    pub report: *mut cusync_report,
    #[doc = "< of one wait; four times that without a draw ends the gate. 0: the default of 1 s"]
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
#[doc = " The Stream-K peer: D = act(A B + bias), CUTLASS's own kernel, one of the benchmark's baselines. `workspace` of\n `workspace_bytes`; call with workspace NULL to learn the size."]
#[repr(C)]
#[derive(Debug)]
pub struct cusync_streamk {
    _unused: [u8; 0],
}
#[doc = " What one worker of an attention stage has of one (sequence, key/value head): units [begin, end), as all units are\n numbered, of the head's [first, last)."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_segment {
    pub sequence: u32,
    pub head: u32,
    pub begin: u32,
    pub end: u32,
    pub first: u32,
    pub last: u32,
    #[doc = "< workers that have some of the head"]
    pub parts: u32,
    #[doc = "< where this part is left, if there are others"]
    pub slab: u32,
    #[doc = "< where the one that adds up looks for this part"]
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
#[doc = " A product in the kernel of so many workers: done in pairs of them or not, and one of its rounds."]
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
#[doc = " A worker's share of it."]
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_share {
    #[doc = "< its features"]
    pub first: u32,
    #[doc = "< its features"]
    pub count: u32,
    #[doc = "< of its k-blocks, which are a pair's where it is one's, and those before its own"]
    pub rows: u32,
    #[doc = "< of its k-blocks, which are a pair's where it is one's, and those before its own"]
    pub lead: u32,
    pub chunks: u32,
    #[doc = "< of its weights, bytes"]
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
    #[doc = " Workers of a kernel that are resident at once on the current device."]
    pub fn cusync_resident(id: *const cusync_kernel_id, workers: *mut u32) -> i32;
    #[doc = " Makes the kernel `id` ready for `count` stages, producers before consumers; of a session, for as many of each set. `table` is device memory of the caller's,\n count * table_bytes of the kernel's info, aligned to CUSYNC_TABLE_ALIGNMENT (NULL where that is 0). This call fills it and\n returns when it is filled; it must outlive the kernel and belongs to it alone. Everything else is copied or only pointed\n to. Must run before any kernel of the pipeline spins.\n\n CUSYNC_ERROR_NOT_BUILT: there is no such kernel for this GPU, a stage's operation is not among the kernel's, or a part\n that a worker of a decode kernel makes in a round has more rows than it has accumulators for."]
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
    #[doc = " Holds back what follows on `stream`. One thread of one SM waits, without shared memory."]
    pub fn cusync_wait_for_start(gate: *const cusync_gate, stream: *mut ::std::os::raw::c_void) -> i32;
    #[doc = " Bytes of a stage's weights as cusync_repack leaves them: `n` columns of its output, gated or not, k rounded up to 64."]
    pub fn cusync_repacked_bytes(operation: u32, k: u32, n: u32) -> ::std::os::raw::c_ulonglong;
    #[doc = " Lays out the k x n row-major `weights` (of a gated stage: the gate's, and `up` the other; else `up` is NULL) for decode\n kernels that make `parts` parts of the output into `out`, part by part in the order of streaming, asynchronously on `stream`."]
    pub fn cusync_repack(
        operation: u32,
        k: u32,
        n: u32,
        parts: u32,
        weights: *const ::std::os::raw::c_void,
        up: *const ::std::os::raw::c_void,
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
    #[doc = " sums = a b with float accumulation on plain CUDA cores, sharing nothing with the kernels above, and at least the largest\n magnitude of each sum's partial sums; a is m x k and b k x n, of `element`, with k and n multiples of 8."]
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
    #[doc = " silu(x[:, gate]) * x[:, up] for a packed m x 2n product, floats when `packed_bits` is 32, else of `element`: the\n separate activation kernel that libraries need."]
    pub fn cusync_gated_activation(
        packed: *const ::std::os::raw::c_void,
        packed_bits: u32,
        d: *mut ::std::os::raw::c_void,
        m: u32,
        n: u32,
        element: u32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
    #[doc = " The first `rotated` columns of an m x n product of heads of `head_dim` columns, rotated into d, and the others as they are: element i of\n a head's first half and of its second are a pair, row r has the position r modulo `tokens`, and a row of `angles` has the cosines\n of all pairs, then the sines. The product has floats when `product_bits` is 32, else `element`, and may then be d."]
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
    #[doc = " What every SM's clock and the global timer (nanoseconds) show now: out[2 * sm] and out[2 * sm + 1], for SMs below `sms`. Two\n readings on both sides of some work give the mean clock that it ran at; an SM that no CTA came to keeps what it had."]
    pub fn cusync_read_clocks(
        out: *mut ::std::os::raw::c_ulonglong,
        sms: u32,
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
    #[doc = " The segments of worker `worker`, of `sequences` sequences with `lengths`; writes up to `capacity`, in\n the order in which the worker takes them, and returns how many there are. `sums`: scratch memory of 2 * sequences + 2 words."]
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
    #[doc = " Whether pairs of workers do a product together in a kernel that attends, for `width` tokens."]
    pub fn cusync_host_decode_in_pairs(operation: u32, k: u32, n: u32, workers: u32, width: u32) -> u32;
    #[doc = " The share of worker `worker`; writes up to `capacity` of its k-blocks, in the order in which it multiplies them, and returns how many there are."]
    pub fn cusync_host_decode_share(
        of: *const cusync_shared_product,
        worker: u32,
        share: *mut cusync_share,
        blocks: *mut u32,
        capacity: u32,
    ) -> u32;
}
