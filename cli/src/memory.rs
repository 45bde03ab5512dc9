//! The dims with which a pipeline would fit into memory.

use cusync::runtime::cpu::{self, CpuError};

use super::fault::Fault;
use super::prove::resolve;
use super::target::Target;

/// Adds smaller dims that would fit to the error of a pipeline that does not fit into memory.
pub(crate) fn too_large(error: CpuError, target: &Target) -> Fault {
    let CpuError::NoMemory { free_mib, .. } = error else { return error.into() };
    let bytes = |dims: &[(String, u64)]| {
        let resolved = resolve(&Target { dims: dims.to_vec(), ..target.clone() }).ok()?;
        Some(cpu::tensor_bytes(&resolved.tensors))
    };
    let dims =
        resolve(target).map(|r| r.dims.into_iter().map(|(name, value)| (name, value.into())).collect());
    // The reference holds wider copies of the matrices in addition to the run's.
    let smaller = dims.ok().and_then(|dims: Vec<(String, u64)>| smaller(&dims, (free_mib << 20) / 4, bytes));
    let mut fault = Fault::from(error);
    if let Some(smaller) = smaller {
        let words: Vec<_> = smaller.iter().map(|(name, value)| format!("--dim {name}={value}")).collect();
        fault.help = Some(format!("`{}` would fit", words.join(" ")));
    }
    fault
}

/// Dims to reduce, with new values, so that at most the given number of bytes is needed: always halves the
/// dim that leaves the fewest bytes. `None`: no halving helps. `bytes`: bytes needed for such dims, `None` if
/// the pipeline does not exist.
fn smaller(
    dims: &[(String, u64)],
    most: u64,
    bytes: impl Fn(&[(String, u64)]) -> Option<u64>,
) -> Option<Vec<(String, u64)>> {
    let (mut now, mut need) = (dims.to_vec(), bytes(dims)?);
    while need > most {
        let halved = |i: usize| {
            let mut next = now.clone();
            next[i].1 /= 2;
            bytes(&next).filter(|_| next[i].1 > 0).map(|need| (need, std::cmp::Reverse(now[i].1), next))
        };
        let (least, _, next) = (0..now.len()).filter_map(halved).min()?;
        if least >= need {
            return None;
        }
        (now, need) = (next, least);
    }
    Some(now.into_iter().zip(dims).filter(|(new, old)| new != *old).map(|(new, _)| new).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dims_that_make_a_pipeline_large_are_halved_until_it_fits() {
        let dims = |m, h, i| [("M", m), ("H", h), ("I", i)].map(|(name, value)| (name.to_owned(), value));
        let mlp = |d: &[(String, u64)]| {
            let [m, h, i] = [d[0].1, d[1].1, d[2].1];
            Some(2 * (2 * m * h + m * i + 2 * h * i))
        };
        let named = |found: Option<Vec<(String, u64)>>| {
            found.map(|f| f.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>())
        };
        let words = |words: &[&str]| Some(words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>());
        // Two weights of 16 GiB: the number of tokens is not the problem.
        let large = dims(8, 65536, 131072);
        assert_eq!(named(smaller(&large, 6 << 30, mlp)), words(&["H=32768", "I=32768"]));
        // Many tokens: here it is.
        let long = dims(1 << 28, 1024, 2048);
        assert_eq!(named(smaller(&long, 6 << 30, mlp)), words(&["M=524288"]));
        // A pipeline that fits needs no change; a pipeline with a size that no dim controls cannot be made to
        // fit.
        assert_eq!(named(smaller(&dims(8, 64, 64), 6 << 30, mlp)), words(&[]));
        assert_eq!(named(smaller(&dims(8, 64, 64), 10, |_| Some(100))), None);
        // Dims that the pipeline does not accept are skipped.
        let odd = |d: &[(String, u64)]| mlp(d).filter(|_| d[2].1 == 131072);
        assert_eq!(named(smaller(&large, 6 << 30, odd)), words(&["H=8192"]));
    }
}
