// Made by bindgen from csrc/abi/cusync.h and csrc/host/decode.h; `cargo xtask render` makes it anew.

pub const CUSYNC_NOT_SUMMED: u32 = 4294967295;
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_policy {
    pub grid_m: u32,
    pub grid_n: u32,
    pub block_m: u32,
    pub block_n: u32,
    pub stride_n: u32,
    pub slots_n: u32,
    pub slot_base: u32,
    pub slot_count: u32,
    pub width: u32,
    pub columns: u32,
    pub table: *const u32,
    pub table_posts: *const u32,
}
impl Default for cusync_policy {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_axis {
    pub m: i32,
    pub n: i32,
    pub k: i32,
    pub offset: i32,
    pub extent: i32,
}
pub const CUSYNC_OPERAND_A: cusync_role = 0;
pub const CUSYNC_OPERAND_B: cusync_role = 1;
pub const CUSYNC_OPERAND_BIAS: cusync_role = 2;
pub const CUSYNC_OPERAND_RESIDUAL: cusync_role = 3;
pub const CUSYNC_OPERAND_CUSTOM: cusync_role = 4;
pub const CUSYNC_OPERAND_KEYS: cusync_role = 5;
pub const CUSYNC_OPERAND_VALUES: cusync_role = 6;
pub const CUSYNC_OPERAND_LENGTHS: cusync_role = 7;
pub const CUSYNC_OPERAND_PAGES: cusync_role = 8;
pub const CUSYNC_OPERAND_ROTARY: cusync_role = 9;
pub const CUSYNC_OPERAND_GAIN: cusync_role = 10;
pub const CUSYNC_OPERAND_QUERY_GAIN: cusync_role = 11;
pub const CUSYNC_OPERAND_KEY_GAIN: cusync_role = 12;
pub const CUSYNC_OPERAND_UP: cusync_role = 13;
pub const CUSYNC_OPERAND_DOWN: cusync_role = 14;
pub const CUSYNC_OPERAND_ROUTER: cusync_role = 15;
pub type cusync_role = ::std::os::raw::c_uint;
pub const CUSYNC_WAIT_PER_K_BLOCK: cusync_wait_at = 0;
pub const CUSYNC_WAIT_AT_START: cusync_wait_at = 1;
pub type cusync_wait_at = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_edge {
    pub policy: cusync_policy,
    pub id: u32,
    pub operand: u32,
    pub wait_at: u32,
    pub tile_rows: u32,
    pub tile_cols: u32,
    pub tensor_rows: u32,
    pub tensor_cols: u32,
    pub k_blocks: u32,
    pub rows: cusync_axis,
    pub cols: cusync_axis,
}
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
pub const CUSYNC_ORDER_GROUPED_ROWS: cusync_order_kind = 2;
pub const CUSYNC_ORDER_GROUPED_COLUMNS: cusync_order_kind = 3;
pub const CUSYNC_ORDER_TABLE: cusync_order_kind = 4;
pub type cusync_order_kind = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_order {
    pub kind: u32,
    pub grid_m: u32,
    pub grid_n: u32,
    pub group: u32,
    pub table: *const u32,
}
impl Default for cusync_order {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const CUSYNC_REPORT_LATE: cusync_report_kind = 0;
pub const CUSYNC_REPORT_BAD_LENGTH: cusync_report_kind = 1;
pub const CUSYNC_REPORT_BAD_PAGE: cusync_report_kind = 2;
pub const CUSYNC_REPORT_NO_SUMS: cusync_report_kind = 3;
pub type cusync_report_kind = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_report {
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
    pub kind: u32,
}
pub const CUSYNC_OK: cusync_status = 0;
pub const CUSYNC_ERROR_NOT_BUILT: cusync_status = 1;
pub const CUSYNC_ERROR_BAD_ARGUMENT: cusync_status = 2;
pub const CUSYNC_ERROR_NO_MEMORY: cusync_status = 3;
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
pub const CUSYNC_INPUT_NORM: cusync_operation = 8;
pub const CUSYNC_GROUPED_CONV: cusync_operation = 9;
pub const CUSYNC_EXPERTS: cusync_operation = 10;
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
pub type cusync_activation = ::std::os::raw::c_uint;
pub const CUSYNC_MAX_DELAY_NS: _bindgen_ty_1 = 500000;
pub type _bindgen_ty_1 = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_trace {
    pub begin: ::std::os::raw::c_ulonglong,
    pub ready: ::std::os::raw::c_ulonglong,
    pub loaded: ::std::os::raw::c_ulonglong,
    pub math_end: ::std::os::raw::c_ulonglong,
    pub end: ::std::os::raw::c_ulonglong,
    pub sm: u32,
    pub item: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_delays {
    pub seed: u32,
    pub limit_ns: u32,
}
pub const CUSYNC_EVENT_WAIT: cusync_event = 0;
pub const CUSYNC_EVENT_LOAD: cusync_event = 1;
pub const CUSYNC_EVENT_STORE: cusync_event = 2;
pub const CUSYNC_EVENT_POST: cusync_event = 3;
pub const CUSYNC_EVENT_GIVE: cusync_event = 4;
pub const CUSYNC_EVENT_TAKE: cusync_event = 5;
pub type cusync_event = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_note {
    pub event: u32,
    pub stage: u32,
    pub m: u32,
    pub n: u32,
    pub item: u32,
    pub at: u32,
    pub value: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_notes {
    pub list: *mut cusync_note,
    pub count: *mut u32,
    pub capacity: u32,
}
impl Default for cusync_notes {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const CUSYNC_MAX_STAGES: _bindgen_ty_2 = 64;
pub const CUSYNC_MAX_OPERANDS: _bindgen_ty_2 = 8;
pub const CUSYNC_MAX_WAITS: _bindgen_ty_2 = 4;
pub const CUSYNC_MAX_POSTS: _bindgen_ty_2 = 4;
pub const CUSYNC_COLUMN_TILE: _bindgen_ty_2 = 64;
pub const CUSYNC_PAGE_TOKENS: _bindgen_ty_2 = 64;
pub const CUSYNC_PROMPT_TOKENS: _bindgen_ty_2 = 128;
pub const CUSYNC_ATTEND_SLAB: _bindgen_ty_2 = 1040;
pub const CUSYNC_MAX_NORMED: _bindgen_ty_2 = 16384;
pub const CUSYNC_MAX_EXPERTS: _bindgen_ty_2 = 512;
pub const CUSYNC_MAX_TOP_K: _bindgen_ty_2 = 16;
pub const CUSYNC_MAX_DEVICES: _bindgen_ty_2 = 8;
pub const CUSYNC_MAX_PARTS: _bindgen_ty_2 = 1625;
pub const CUSYNC_TABLE_ALIGNMENT: _bindgen_ty_2 = 128;
pub type _bindgen_ty_2 = ::std::os::raw::c_uint;
pub const CUSYNC_FAMILY_GEMM: cusync_family = 0;
pub const CUSYNC_FAMILY_CHAIN: cusync_family = 1;
pub const CUSYNC_FAMILY_DECODE: cusync_family = 2;
pub const CUSYNC_FAMILY_ALONE: cusync_family = 3;
pub type cusync_family = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_kernel_id {
    pub family: u32,
    pub arch: u32,
    pub operations: u32,
    pub element: u32,
    pub tile_m: u32,
    pub tile_n: u32,
    pub cluster_m: u32,
    pub cluster_n: u32,
    pub width: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_kernel_info {
    pub id: cusync_kernel_id,
    pub tile_k: u32,
    pub ring: u32,
    pub stages: u32,
    pub table_bytes: u32,
    pub row_tiles: u32,
    pub threads: u32,
    pub shared_bytes: u32,
    pub registers: u32,
}
pub const CUSYNC_READ_IN_K_LOOP: cusync_read_at = 0;
pub const CUSYNC_READ_IN_EPILOGUE: cusync_read_at = 1;
pub type cusync_read_at = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_operand {
    pub data: *const ::std::os::raw::c_void,
    pub role: u32,
    pub read_at: u32,
}
impl Default for cusync_operand {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_images {
    pub height: u32,
    pub width: u32,
    pub channels: u32,
    pub out_height: u32,
    pub out_width: u32,
    pub filter_rows: u32,
    pub filter_cols: u32,
    pub stride_rows: u32,
    pub stride_cols: u32,
    pub padding_rows: u32,
    pub padding_cols: u32,
    pub mean: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_grouped_conv {
    pub images: cusync_images,
    pub groups: u32,
    pub dilation_rows: u32,
    pub dilation_cols: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_tiles {
    pub rows: u32,
    pub columns: u32,
    pub grid_m: u32,
    pub grid_n: u32,
    pub k_blocks: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct cusync_norm {
    pub centred: u32,
    pub one_plus_gain: u32,
    pub epsilon: f32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct cusync_group_norm {
    pub pixels: u32,
    pub groups: u32,
    pub activation: u32,
    pub epsilon: f32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct cusync_heads {
    pub query_heads: u32,
    pub kv_heads: u32,
    pub head_dim: u32,
    pub tokens: u32,
    pub causal: u32,
    pub capacity: u32,
    pub pages: u32,
    pub norm_epsilon: f32,
    pub scale: f32,
    pub softcap: f32,
    pub window: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_experts {
    pub experts: u32,
    pub top_k: u32,
    pub features: u32,
    pub normalized: u32,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub union cusync_shape {
    pub images: cusync_images,
    pub norm: cusync_norm,
    pub group_norm: cusync_group_norm,
    pub grouped_conv: cusync_grouped_conv,
    pub experts: cusync_experts,
    pub heads: cusync_heads,
}
impl Default for cusync_shape {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct cusync_stage {
    pub operation: u32,
    pub activation: u32,
    pub residual_first: u32,
    pub index: u32,
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub tiles: cusync_tiles,
    pub shape: cusync_shape,
    pub round: u32,
    pub rounds: u32,
    pub operand_count: u32,
    pub wait_count: u32,
    pub post_count: u32,
    pub operands: [cusync_operand; 8usize],
    pub out: *mut ::std::os::raw::c_void,
    pub waits: [cusync_edge; 4usize],
    pub posts: [cusync_policy; 4usize],
}
impl Default for cusync_stage {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const CUSYNC_SOURCE_ORDER: cusync_source = 0;
pub const CUSYNC_SOURCE_TICKETS: cusync_source = 1;
pub const CUSYNC_SOURCE_LISTS: cusync_source = 2;
pub const CUSYNC_SOURCE_DRAWN: cusync_source = 3;
pub const CUSYNC_SOURCE_SHARES: cusync_source = 4;
pub const CUSYNC_SOURCE_MAIL: cusync_source = 5;
pub type cusync_source = ::std::os::raw::c_uint;
pub const CUSYNC_END_OF_LIST: _bindgen_ty_3 = 0;
pub const CUSYNC_WHOLE_TILE: _bindgen_ty_3 = 1;
pub const CUSYNC_CONTRIBUTE: _bindgen_ty_3 = 2;
pub const CUSYNC_FINISH: _bindgen_ty_3 = 3;
pub const CUSYNC_SHARE: _bindgen_ty_3 = 4;
pub const CUSYNC_POST_WEIGHT: _bindgen_ty_3 = 48;
pub type _bindgen_ty_3 = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_item {
    pub m: u16,
    pub n: u16,
    pub k_begin: u16,
    pub k_end: u16,
    pub stage: u8,
    pub role: u8,
    pub slabs: u8,
    pub part: u8,
    pub slab: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_tuning {
    pub chunk_bytes: u32,
    pub ring_bytes: u32,
    pub activation_slots: u32,
    pub in_flight_bytes: u32,
    pub ahead_bytes: u32,
}
pub const CUSYNC_COMMANDS: _bindgen_ty_4 = 16;
pub const CUSYNC_MAX_BOUND: _bindgen_ty_4 = 512;
pub type _bindgen_ty_4 = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_mailbox {
    pub commands: [::std::os::raw::c_ulonglong; 16usize],
    pub ended: u32,
    pub left: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_relay {
    pub commands: [::std::os::raw::c_ulonglong; 16usize],
    pub ended: u32,
    pub apart: [u32; 31usize],
    pub arrived: u32,
}
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_jobs {
    pub mailbox: *mut cusync_mailbox,
    pub relay: *mut cusync_relay,
    pub launches: *mut u32,
    pub sets: u32,
    pub idle_ns: u32,
}
impl Default for cusync_jobs {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
pub const CUSYNC_MAIL: _bindgen_ty_5 = 8;
pub const CUSYNC_NO_ITEM: _bindgen_ty_5 = 1048575;
pub const CUSYNC_NUMBERED: _bindgen_ty_5 = 4096;
pub type _bindgen_ty_5 = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_mail {
    pub words: *mut ::std::os::raw::c_ulonglong,
    pub done: *mut u32,
    pub here: *mut u32,
    pub left: *mut u32,
    pub awake: *mut u32,
    pub idle_ns: u32,
    pub ahead: u32,
}
impl Default for cusync_mail {
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
pub struct cusync_work {
    pub source: u32,
    pub workers: u32,
    pub order: cusync_order,
    pub items: *const cusync_item,
    pub length: u32,
    pub slab_count: u32,
    pub slabs: *mut f32,
    pub slab_flags: *mut u32,
    pub scratch: *mut ::std::os::raw::c_void,
    pub tuning: cusync_tuning,
    pub jobs: cusync_jobs,
    pub mail: cusync_mail,
}
impl Default for cusync_work {
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
pub struct cusync_test {
    pub starve: u32,
    pub skip_waits: u32,
    pub stream_only: u32,
    pub delays: cusync_delays,
    pub notes: cusync_notes,
}
impl Default for cusync_test {
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
pub struct cusync_group {
    pub devices: u32,
    pub device: u32,
    pub areas: [*mut ::std::os::raw::c_ulonglong; 8usize],
    pub epochs: *mut u32,
    pub received: [u32; 64usize],
}
impl Default for cusync_group {
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
pub struct cusync_sync {
    pub semaphores: *mut u32,
    pub epochs: *mut u32,
    pub tickets: *mut ::std::os::raw::c_ulonglong,
    pub report: *mut cusync_report,
    pub trace: *mut cusync_trace,
    pub timeout_ns: ::std::os::raw::c_ulonglong,
    pub test: cusync_test,
    pub group: cusync_group,
}
impl Default for cusync_sync {
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
pub struct cusync_kernel {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_how {
    pub stream: *mut ::std::os::raw::c_void,
    pub started_event: *mut ::std::os::raw::c_void,
    pub programmatic: u32,
}
impl Default for cusync_how {
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
pub struct cusync_gate {
    pub tickets: *mut ::std::os::raw::c_ulonglong,
    pub runs: *mut ::std::os::raw::c_ulonglong,
    pub tiles: u32,
    pub workers: u32,
    pub edge: u32,
    pub stage: u32,
    pub report: *mut cusync_report,
    pub timeout_ns: ::std::os::raw::c_ulonglong,
}
impl Default for cusync_gate {
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
pub struct cusync_streamk {
    _unused: [u8; 0],
}
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_paged_cache {
    pub table: *const i32,
    pub pool: [*mut ::std::os::raw::c_void; 2usize],
    pub rows: [*mut ::std::os::raw::c_void; 2usize],
    pub pages: u32,
    pub heads: u32,
    pub capacity: u32,
    pub columns: u32,
}
impl Default for cusync_paged_cache {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct cusync_sampling {
    pub temperature: f32,
    pub top_p: f32,
    pub top_k: u32,
    pub seed: u32,
}
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_segment {
    pub sequence: u32,
    pub head: u32,
    pub begin: u32,
    pub end: u32,
    pub first: u32,
    pub last: u32,
    pub parts: u32,
    pub slab: u32,
    pub slab_of_part: u32,
}
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
#[repr(C)]
#[derive(Debug, Default, Copy, Clone, PartialEq, Eq)]
pub struct cusync_share {
    pub first: u32,
    pub count: u32,
    pub rows: u32,
    pub lead: u32,
    pub chunks: u32,
    pub offset: ::std::os::raw::c_ulonglong,
}
pub const CUSYNC_CUSTOM_READS: _bindgen_ty_6 = 8;
pub const CUSYNC_CUSTOM_POSTS: _bindgen_ty_6 = 4;
pub type _bindgen_ty_6 = ::std::os::raw::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone, PartialEq, Eq)]
pub struct cusync_custom {
    pub data: [*const ::std::os::raw::c_void; 8usize],
    pub reads: [cusync_edge; 8usize],
    pub posts: [cusync_policy; 4usize],
    pub read_count: u32,
    pub post_count: u32,
    pub waits: u32,
    pub index: u32,
    pub bf16: u32,
    pub rows: u32,
    pub cols: u32,
    pub tile_rows: u32,
    pub tile_cols: u32,
    pub k_blocks: u32,
    pub order: cusync_order,
    pub out: *mut ::std::os::raw::c_void,
    pub semaphores: *mut u32,
    pub tickets: *mut ::std::os::raw::c_ulonglong,
    pub report: *mut cusync_report,
    pub timeout_ns: ::std::os::raw::c_ulonglong,
}
impl Default for cusync_custom {
    fn default() -> Self {
        let mut s = ::std::mem::MaybeUninit::<Self>::uninit();
        unsafe {
            ::std::ptr::write_bytes(s.as_mut_ptr(), 0, 1);
            s.assume_init()
        }
    }
}
unsafe extern "C" {
    pub fn cusync_kernels(out: *mut cusync_kernel_info, capacity: u32) -> u32;
    pub fn cusync_resident(id: *const cusync_kernel_id, workers: *mut u32) -> i32;
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
    pub fn cusync_wait_for_start(gate: *const cusync_gate, stream: *mut ::std::os::raw::c_void) -> i32;
    pub fn cusync_repacked_bytes(operation: u32, k: u32, n: u32) -> ::std::os::raw::c_ulonglong;
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
    pub fn cusync_experts_scratch(
        experts: *const cusync_experts,
        m: u32,
        n: u32,
    ) -> ::std::os::raw::c_ulonglong;
    pub fn cusync_streamk_create(
        stage: *const cusync_stage,
        element: u32,
        workspace: *mut ::std::os::raw::c_void,
        workspace_bytes: *mut ::std::os::raw::c_ulonglong,
        out: *mut *mut cusync_streamk,
    ) -> i32;
    pub fn cusync_streamk_launch(gemm: *mut cusync_streamk, stream: *mut ::std::os::raw::c_void) -> i32;
    pub fn cusync_streamk_destroy(gemm: *mut cusync_streamk);
    pub fn cusync_fill_random(
        data: *mut ::std::os::raw::c_void,
        count: ::std::os::raw::c_ulonglong,
        element: u32,
        scale: f32,
        seed: u32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
    pub fn cusync_compare(
        x: *const ::std::os::raw::c_void,
        y: *const f32,
        count: ::std::os::raw::c_ulonglong,
        element: u32,
        out: *mut f32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
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
    pub fn cusync_pack_gated(
        gate: *const ::std::os::raw::c_void,
        up: *const ::std::os::raw::c_void,
        packed: *mut ::std::os::raw::c_void,
        k: u32,
        n: u32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
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
    pub fn cusync_rotate(
        product: *const ::std::os::raw::c_void,
        product_bits: u32,
        angles: *const ::std::os::raw::c_void,
        positions: u32,
        lengths: *const i32,
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
    pub fn cusync_copy_pages(
        cache: *const cusync_paged_cache,
        first: u32,
        count: u32,
        to_pool: i32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
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
    pub fn cusync_activation_kernel(
        x: *const ::std::os::raw::c_void,
        d: *mut ::std::os::raw::c_void,
        count: ::std::os::raw::c_ulonglong,
        activation: u32,
        element: u32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
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
    pub fn cusync_read_clocks(
        out: *mut ::std::os::raw::c_ulonglong,
        sms: u32,
        stream: *mut ::std::os::raw::c_void,
    ) -> i32;
    pub fn cusync_host_posted_by(
        policy: *const cusync_policy,
        m: u32,
        n: u32,
        begin: *mut u32,
        end: *mut u32,
    );
    pub fn cusync_host_posts_of(policy: *const cusync_policy, slot: u32) -> u32;
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
    pub fn cusync_host_decode_weight(
        operation: u32,
        k: u32,
        n: u32,
        workers: u32,
        feature: u32,
        up: u32,
        at_k: u32,
    ) -> ::std::os::raw::c_ulonglong;
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
    pub fn cusync_host_decode_lead(slots: u32, chunk_shift: u32, max_chunks: u32) -> u32;
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
    pub fn cusync_host_decode_in_pairs(operation: u32, k: u32, n: u32, workers: u32, width: u32) -> u32;
    pub fn cusync_host_decode_share(
        product: *const cusync_shared_product,
        worker: u32,
        share: *mut cusync_share,
        blocks: *mut u32,
        capacity: u32,
    ) -> u32;
}
