//! Custom stages of pipelines: functions on the host, kernels on GPUs. `include/cusync/pipeline.h` documents both.

use std::ffi::{c_char, c_void};
use std::path::Path;

use cusync::codegen::sync::Tile;
use cusync::device::KernelCode;
use cusync::runtime::cpu::{CustomKernel, Region};

use crate::{CPipeline, Failure, call, opened_mut, text};

/// `cusync_region` of the header.
#[repr(C)]
pub struct CRegion {
    data: *mut f32,
    row: usize,
    col: usize,
    rows: usize,
    cols: usize,
}

/// `cusync_custom_function` of the header.
type Function = unsafe extern "C" fn(*mut c_void, u32, u32, u32, *const CRegion, usize, *const CRegion);

/// A function of a C caller, and its data.
struct Arithmetic {
    function: Function,
    user: *mut c_void,
}

// SAFETY: the header requires that the function may be called from any thread, also at once.
unsafe impl Send for Arithmetic {}
// SAFETY: as above.
unsafe impl Sync for Arithmetic {}

fn region(data: *mut f32, place: &Region) -> CRegion {
    CRegion { data, row: place.row, col: place.col, rows: place.rows, cols: place.cols }
}

impl CustomKernel for Arithmetic {
    fn k_block(&self, tile: Tile, k: u32, reads: &[Region], out: &mut Region) {
        let reads: Vec<CRegion> =
            reads.iter().map(|read| region(read.data.as_ptr().cast_mut(), read)).collect();
        let out = region(out.data.as_mut_ptr(), out);
        // SAFETY: the header's contract: the function writes `out` only, and keeps no pointer.
        unsafe { (self.function)(self.user, tile.m, tile.n, k, reads.as_ptr(), reads.len(), &out) };
    }
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_pipeline_custom(
    pipeline: *mut CPipeline,
    stage: *const c_char,
    function: Option<Function>,
    user: *mut c_void,
) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (pipeline, stage) = unsafe { (opened_mut(pipeline)?, text(stage, "stage")?) };
        let function = function.ok_or_else(|| Failure::Argument("`function` is null".into()))?;
        Ok(pipeline.session.custom(stage, Arithmetic { function, user })?)
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_pipeline_kernel(
    pipeline: *mut CPipeline,
    stage: *const c_char,
    file: *const c_char,
) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (pipeline, stage, file) =
            unsafe { (opened_mut(pipeline)?, text(stage, "stage")?, text(file, "file")?) };
        Ok(pipeline.session.set_kernel(stage, &KernelCode::read(Path::new(file))?)?)
    })
}
