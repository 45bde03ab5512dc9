//! Sequences that a run cannot append to: no room for their length, pages outside the pool, or pages shared
//! with other sequences.

use cusync_gen::graph::{Cache, Op, PAGE, Stage};

/// A sequence, and its fault.
pub(crate) type SequenceFault = (usize, String);

/// Sequences of a stage with a cache, as described by its integer tables when a run begins.
pub(crate) struct Sequences<'a> {
    cache: Cache,
    /// Cached tokens of each sequence; `None` for a prompt that fills its cache from the first row on.
    lengths: Option<&'a [i32]>,
    pages: Option<&'a [i32]>,
    /// Tokens per sequence that a run appends.
    tokens: u32,
    count: usize,
}

/// Sequences of an attention, and tokens per sequence that a run may append to a cache; `None` for other
/// operations.
pub(crate) fn appended(stage: &Stage) -> Option<(u32, u32)> {
    match &stage.op {
        Op::Attention(shape) => Some((shape.sequences, shape.tokens)),
        Op::Attend(_) => Some((stage.m, 1)),
        Op::Gemm(_)
        | Op::GatedGemm(_)
        | Op::NormedGemm(_)
        | Op::RotatedGemm(_)
        | Op::Conv2d(_)
        | Op::GroupedConv(_)
        | Op::Norm(_)
        | Op::GroupNorm(_)
        | Op::Pool(_)
        | Op::Experts(_)
        | Op::Custom => None,
    }
}

/// A page that a run appends to although another sequence also uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedPage {
    pub(crate) sequence: usize,
    pub(crate) other: usize,
    pub(crate) page: i32,
}

impl<'a> Sequences<'a> {
    /// `None` for a stage that appends to no cache.
    pub(crate) fn new(stage: &Stage, lengths: Option<&'a [i32]>, pages: Option<&'a [i32]>) -> Option<Self> {
        let (cache, (count, tokens)) = (stage.op.cache()?, appended(stage)?);
        Some(Sequences { cache, lengths, pages, tokens, count: count as usize })
    }

    /// Tokens before the appended ones; an error if there is no room for these.
    fn cached(&self, sequence: usize) -> Result<u32, String> {
        let Some(lengths) = self.lengths else { return Ok(0) };
        let (length, tokens) = (lengths[sequence], self.tokens);
        let most = self.cache.capacity.saturating_sub(tokens);
        u32::try_from(length).ok().filter(|length| *length <= most).ok_or_else(|| {
            let new = if tokens == 1 { "a token".to_owned() } else { format!("{tokens} tokens") };
            format!("its length is {length}, and the cache has room for {new} behind 0 to {most}")
        })
    }

    /// Pages of a sequence up to the last appended token, and the number of pages that are only read.
    fn pages(&self, sequence: usize) -> Result<(&[i32], usize), String> {
        let cached = self.cached(sequence)?;
        let (Some(table), Some(pool)) = (self.pages, self.cache.pages) else { return Ok((&[], 0)) };
        let of_each = (self.cache.capacity / PAGE) as usize;
        let used = (cached + self.tokens).div_ceil(PAGE) as usize;
        let pages = &table[sequence * of_each..][..used.min(of_each)];
        match pages.iter().position(|page| !(0..i64::from(pool)).contains(&i64::from(*page))) {
            Some(at) => Err(format!("its page {at} is number {} of a pool of {pool}", pages[at])),
            None => Ok((pages, (cached / PAGE) as usize)),
        }
    }

    /// All sequences that a run skips.
    pub(crate) fn left_out(&self) -> Vec<SequenceFault> {
        (0..self.count).filter_map(|sequence| Some((sequence, self.pages(sequence).err()?))).collect()
    }

    /// First page that a run appends to for one sequence although another uses it. The proof assumes that
    /// there is none.
    pub(crate) fn shared(&self) -> Option<SharedPage> {
        let good = || (0..self.count).filter_map(|sequence| Some((sequence, self.pages(sequence).ok()?)));
        good().find_map(|(sequence, (pages, read))| {
            pages.iter().enumerate().skip(read).find_map(|(at, page)| {
                let again = |other: usize, has: &[i32]| {
                    has.iter().enumerate().any(|(i, p)| p == page && (other, i) != (sequence, at))
                };
                let (other, _) = good().find(|(other, (has, _))| again(*other, has))?;
                Some(SharedPage { sequence, other, page: *page })
            })
        })
    }
}

/// Faults of all sequences that a run skips: the first such stage, the first sequence, and a description of
/// its fault and the others. A fault of several stages is reported for the first.
pub(crate) fn named(stages: &[(String, Vec<SequenceFault>)]) -> Option<(String, usize, String)> {
    let all = stages.iter().flat_map(|(stage, faults)| faults.iter().map(move |fault| (stage, fault)));
    let (stage, (sequence, fault)) = all.clone().next()?;
    let mut said = vec![(sequence, fault)];
    let mut words = fault.clone();
    for (other, (sequence, fault)) in all {
        if !said.contains(&(sequence, fault)) {
            said.push((sequence, fault));
            let place = if other == stage { String::new() } else { format!("stage {other}, ") };
            words += &format!("; {place}sequence {sequence}: {fault}");
        }
    }
    Some((stage.clone(), *sequence, words))
}

#[cfg(test)]
mod tests {
    use cusync_gen::spec;

    use super::*;

    fn stage(source: &str) -> Stage {
        let resolved = spec::parse(source, "test").and_then(|s| s.resolve(&[])).expect("valid");
        resolved.graph(&[(1, 64, 128)]).expect("it has a graph").stages[0].clone()
    }

    fn paged() -> Stage {
        stage(
            r#"Pipeline(name: "p", dims: {}, stages: [Attention(name: "a", qkv: "QKV(4,192)", heads: "1",
                cache: Cache(keys: "K(9,1,64,64)", values: "V(9,1,64,64)", lengths: "n(4)"), pages: "P(4,2)", out: "A(4,64)")])"#,
        )
    }

    #[test]
    fn every_sequence_that_is_left_out_is_named() {
        let (stage, pages) = (paged(), [0, 1, 2, 3, 4, -1, 9, 7]);
        let sequences =
            Sequences::new(&stage, Some(&[-1, 128, 63, 64]), Some(&pages)).expect("it has a cache");
        let faults = sequences.left_out();
        assert_eq!(faults.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(), [0, 1, 3]);
        let stages =
            [("a".to_owned(), faults.clone()), ("b".to_owned(), vec![faults[2].clone(), (2, "x".into())])];
        let (stage, first, text) = named(&stages).expect("there are some");
        assert!(
            stage == "a"
                && first == 0
                && text.contains("length is -1")
                && text.contains("sequence 1: its length is 128"),
            "{text}"
        );
        assert!(text.contains("sequence 3: its page 0 is number 9 of a pool of 9"), "{text}");
        // Faults repeated by another stage are reported once.
        assert!(
            text.ends_with("; stage b, sequence 2: x") && text.matches("sequence 3").count() == 1,
            "{text}"
        );
        assert_eq!((named(&[]), named(&[("a".into(), vec![])])), (None, None));
    }

    #[test]
    fn a_page_is_shared_where_one_appends_to_it() {
        let stage = paged();
        let shared = |lengths: [i32; 4], pages: [i32; 8]| {
            Sequences::new(&stage, Some(&lengths), Some(&pages)).expect("it has a cache").shared()
        };
        // Sequences 1 and 2 share a page that both have filled: a prefix.
        assert_eq!(shared([0, 64, 70, 3], [0, 8, 1, 2, 1, 3, 4, 8]), None);
        // Sequence 2 appends to it.
        let found = shared([0, 64, 63, 3], [0, 8, 1, 2, 1, 3, 4, 8]);
        assert_eq!(found, Some(SharedPage { sequence: 2, other: 1, page: 1 }));
        // No sequence reads page 8 yet, and a skipped sequence has no page.
        assert_eq!(shared([0, -1, 63, 3], [0, 8, 1, 2, 1, 3, 4, 8]), None);
        // A sequence that uses a page twice.
        let found = shared([0, 64, 64, 64], [0, 8, 1, 2, 3, 3, 4, 5]);
        assert_eq!(found, Some(SharedPage { sequence: 2, other: 2, page: 3 }));
        // Two sequences that append to one page.
        let found = shared([5, 64, 70, 3], [4, 8, 1, 2, 1, 3, 4, 8]);
        assert_eq!(found, Some(SharedPage { sequence: 0, other: 3, page: 4 }));
    }
}
