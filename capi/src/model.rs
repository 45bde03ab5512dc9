//! Language models: exactly the functions declared in `include/cusync/model.h`. Every function wraps a method
//! of [`cusync_models::Model`].

use std::ffi::c_char;
use std::path::Path;

use cusync_models::{Model, Next, Options, Place, Sampling};

use super::{Failure, call, null, slice, text};

/// `CUSYNC_MODEL_BEST` of the header.
const BEST: i32 = -1;
/// `CUSYNC_MODEL_HOST` of the header.
const HOST: i32 = -2;

/// `cusync_model_options` of the header.
#[repr(C)]
pub struct CModelOptions {
    slots: u32,
    context: u32,
    place: i32,
    cache_tokens: u32,
}

/// `cusync_model_next` of the header.
#[repr(C)]
pub struct CNext {
    slot: u32,
    token: i32,
    temperature: f32,
    top_p: f32,
    top_k: u32,
    seed: u32,
}

/// `cusync_model` of the header.
pub struct CModel(Model);

/// # Safety
/// `model` is null or created by this library, and not used concurrently.
unsafe fn opened<'a>(model: *mut CModel) -> Result<&'a mut Model, Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { model.as_mut() }.map(|model| &mut model.0).ok_or_else(|| null("model"))
}

/// The caller's memory for results.
///
/// # Safety
/// `values` is null or points to `count` values.
unsafe fn results<'a, T>(values: *mut T, count: usize, argument: &str) -> Result<&'a mut [T], Failure> {
    match (values.is_null(), count) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(null(argument)),
        // SAFETY: guaranteed by the caller.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts_mut(values, count) }),
    }
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_model_open(
    folder: *const c_char,
    options: *const CModelOptions,
    out: *mut *mut CModel,
) -> i32 {
    call(|| {
        if out.is_null() {
            return Err(null("out"));
        }
        // SAFETY: not null; guaranteed by the caller.
        let (folder, options) = unsafe {
            out.write(std::ptr::null_mut());
            (text(folder, "folder")?, options.as_ref().ok_or_else(|| null("options"))?)
        };
        let place = match options.place {
            BEST => Place::Best,
            HOST => Place::Host,
            number => Place::Gpu(u32::try_from(number).map_err(|_| {
                Failure::Argument(format!("`place` is {number}: give a GPU's number, {BEST} or {HOST}"))
            })?),
        };
        let context = (options.context > 0).then_some(options.context as usize);
        let cache_tokens = (options.cache_tokens > 0).then_some(options.cache_tokens as usize);
        let slots = options.slots as usize;
        let options = Options { slots, context, cache_tokens, place, ..Options::default() };
        let model = Model::open(Path::new(folder), &options, |_| ())?;
        // SAFETY: not null.
        unsafe { out.write(Box::into_raw(Box::new(CModel(model)))) };
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_model_vocabulary(model: *const CModel) -> usize {
    // SAFETY: guaranteed by the caller.
    unsafe { model.as_ref() }.map_or(0, |model| model.0.decoder().vocabulary)
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_model_free_pages(model: *const CModel) -> usize {
    // SAFETY: guaranteed by the caller.
    unsafe { model.as_ref() }.map_or(0, |model| model.0.free_pages())
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_model_append(
    model: *mut CModel,
    slot: u32,
    tokens: *const u32,
    count: usize,
) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (model, tokens) = unsafe { (opened(model)?, slice(tokens, count, "tokens")?) };
        Ok(model.append(slot as usize, tokens)?)
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_model_step(
    model: *mut CModel,
    slots: *const u32,
    tokens: *const u32,
    count: usize,
    logits: *mut f32,
) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (model, slots, tokens) =
            unsafe { (opened(model)?, slice(slots, count, "slots")?, slice(tokens, count, "tokens")?) };
        let vocabulary = model.decoder().vocabulary;
        // SAFETY: guaranteed by the caller.
        let out = unsafe { results(logits, count * vocabulary, "logits") }?;
        let named: Vec<(usize, u32)> =
            slots.iter().zip(tokens).map(|(slot, token)| (*slot as usize, *token)).collect();
        let made = model.step(&named)?;
        for (row, out) in out.chunks_mut(vocabulary).enumerate() {
            out.copy_from_slice(&made.row(row));
        }
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_model_queue(model: *mut CModel, next: *const CNext, count: usize) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (model, next) = unsafe { (opened(model)?, slice(next, count, "next")?) };
        let next = next.iter().map(|next| Next {
            slot: next.slot as usize,
            token: u32::try_from(next.token).ok(),
            sampling: Sampling { temperature: next.temperature, top_k: next.top_k, top_p: next.top_p },
            seed: next.seed,
        });
        Ok(model.queue(&next.collect::<Vec<_>>())?)
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_model_drawn(model: *mut CModel, tokens: *mut u32, count: usize) -> i32 {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (model, out) = unsafe { (opened(model)?, results(tokens, count, "tokens")?) };
        let drawn = model.drawn()?;
        if drawn.len() != count {
            let have = drawn.len();
            return Err(Failure::Argument(format!(
                "the oldest step in flight drew {have} tokens, not {count}"
            )));
        }
        out.copy_from_slice(&drawn);
        Ok(())
    })
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_model_clear(model: *mut CModel, slot: u32) -> i32 {
    // SAFETY: guaranteed by the caller.
    call(|| Ok(unsafe { opened(model) }?.clear(slot as usize)?))
}

/// See the header.
///
/// # Safety
/// The header's contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusync_model_close(model: *mut CModel) {
    if !model.is_null() {
        let closed = call(|| {
            // SAFETY: created by `cusync_model_open`, closed once.
            drop(unsafe { Box::from_raw(model) });
            Ok(())
        });
        debug_assert_eq!(closed, 0);
    }
}
