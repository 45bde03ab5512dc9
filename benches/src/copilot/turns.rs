//! Timing for all parts: jobs of several ways in turns, in one process, each from the host's decision until
//! it sees the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::super::{Error, Result, percentile};
use cusync::device::{Device, GraphExec, PinnedBuffer, Stream};

/// Times of jobs, microseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct JobTimes {
    /// Median.
    pub p50_us: f64,
    /// Tenth percentile.
    pub p10_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Longest.
    pub max_us: f64,
    /// Number of jobs.
    pub jobs: usize,
    /// Number of jobs by whole microseconds.
    pub histogram: BTreeMap<u32, usize>,
}

impl JobTimes {
    pub(super) fn from_times(mut us: Vec<f64>) -> JobTimes {
        let mut histogram = BTreeMap::new();
        us.iter().for_each(|us| *histogram.entry(*us as u32).or_default() += 1);
        let mut at = |part| percentile(&mut us, part);
        let (p50_us, p10_us, p99_us, max_us) = (at(0.5), at(0.1), at(0.99), at(1.0));
        JobTimes { p50_us, p10_us, p99_us, max_us, jobs: us.len(), histogram }
    }
}

/// Work that can be run in several ways.
pub(super) trait Ways {
    /// Untimed work before each job.
    fn before(&mut self) -> Result<()> {
        Ok(())
    }

    /// One job, from the decision until the host sees its end.
    fn job(&mut self, index: usize) -> Result<()>;

    /// Untimed work after the turn of a way.
    fn after(&mut self, _way: usize) {}
}

impl<F: FnMut(usize) -> Result<()>> Ways for F {
    fn job(&mut self, index: usize) -> Result<()> {
        self(index)
    }
}

/// Number of jobs between changes of the way. The first round is not timed, nor are the first jobs of each
/// turn: other ways have changed the caches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    pub(super) rounds: usize,
    pub(super) jobs: usize,
    pub(super) untimed: usize,
}

impl Turns {
    /// Calls `one` for each job, with its way and whether it is timed, in one order of the ways and then in
    /// the reverse.
    pub(super) fn each<C: Ways>(
        self,
        ways: usize,
        contest: &mut C,
        one: &mut dyn FnMut(&mut C, usize, bool) -> Result<()>,
    ) -> Result<()> {
        for round in 0..=self.rounds {
            for place in 0..ways {
                let index = if round % 2 == 0 { place } else { ways - 1 - place };
                for job in 0..self.untimed + self.jobs {
                    contest.before()?;
                    one(contest, index, round > 0 && job >= self.untimed)?;
                }
                contest.after(index);
            }
        }
        Ok(())
    }

    /// Microseconds of the jobs of each way.
    pub(super) fn timed<C: Ways>(self, ways: usize, contest: &mut C) -> Result<Vec<Vec<f64>>> {
        let mut times = vec![Vec::with_capacity(self.rounds * self.jobs); ways];
        self.each(ways, contest, &mut |contest, index, counts| {
            let begin = Instant::now();
            contest.job(index)?;
            if counts {
                times[index].push(begin.elapsed().as_secs_f64() * 1e6);
            }
            Ok(())
        })?;
        Ok(times)
    }
}

/// Runs on a stream, each followed by the stream's write to a word of page-locked memory: captured in a
/// graph, or queued each time.
pub(super) struct Flagged {
    pub(super) stream: Arc<Stream>,
    graph: Option<GraphExec>,
    flag: PinnedBuffer,
}

impl Flagged {
    /// Runs that are queued each time.
    pub(super) fn queued(device: &Device, stream: Arc<Stream>) -> Result<Flagged> {
        Ok(Flagged { flag: PinnedBuffer::new(device, 1)?, stream, graph: None })
    }

    /// Captures the work that `run` queues into a graph.
    pub(super) fn captured(
        device: &Device,
        stream: Arc<Stream>,
        run: &mut dyn FnMut(&Stream) -> Result<()>,
    ) -> Result<Flagged> {
        let mut flagged = Flagged::queued(device, stream)?;
        let Flagged { stream, flag, .. } = &flagged;
        let graph = stream.capture::<Error>(|| {
            run(stream)?;
            Ok(stream.write_word(flag, 0, 1)?)
        })?;
        graph.upload(stream)?;
        stream.synchronize()?;
        flagged.graph = Some(graph);
        Ok(flagged)
    }

    /// Replays the graph, or lets `run` queue the work.
    pub(super) fn begin(&self, run: &mut dyn FnMut(&Stream) -> Result<()>) -> Result<()> {
        self.flag.set_word(0, 0)?;
        match &self.graph {
            Some(graph) => Ok(graph.launch(&self.stream)?),
            None => {
                run(&self.stream)?;
                Ok(self.stream.write_word(&self.flag, 0, 1)?)
            }
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.flag.word(0) == Some(1)
    }

    /// Runs once and waits until the host sees the word.
    pub(super) fn job(&self, run: &mut dyn FnMut(&Stream) -> Result<()>) -> Result<()> {
        self.begin(run)?;
        let begin = Instant::now();
        while !self.is_over() {
            std::hint::spin_loop();
            if begin.elapsed() > Duration::from_secs(5) {
                return Err(Error::Argument("a run was not over within 5 s".into()));
            }
        }
        Ok(())
    }

    /// Begins a replay of the graph.
    pub(super) fn restart(&self) -> Result<()> {
        self.begin(&mut |_| Err(Error::Argument("nothing was captured".into())))
    }

    /// Replays the graph and waits until the host sees the word.
    pub(super) fn replay(&self) -> Result<()> {
        self.job(&mut |_| Err(Error::Argument("nothing was captured".into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Noted {
        jobs: Vec<usize>,
        before: usize,
        after: Vec<usize>,
    }

    impl Ways for Noted {
        fn before(&mut self) -> Result<()> {
            self.before += 1;
            Ok(())
        }

        fn job(&mut self, index: usize) -> Result<()> {
            self.jobs.push(index);
            Ok(())
        }

        fn after(&mut self, index: usize) {
            self.after.push(index);
        }
    }

    #[test]
    fn ways_have_their_turns_in_both_orders_and_some_jobs_are_nobodys() {
        let mut noted = Noted::default();
        let times = Turns { rounds: 2, jobs: 2, untimed: 1 }.timed(2, &mut noted).expect("nothing fails");
        assert_eq!(times.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4]);
        assert_eq!(noted.jobs, [0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1]);
        assert_eq!((noted.before, noted.after), (18, vec![0, 1, 1, 0, 0, 1]));
    }

    #[test]
    fn times_are_counted_by_whole_microseconds() {
        let times = JobTimes::from_times(vec![1.0, 2.0, 3.5, 5.0, 5.25]);
        assert_eq!((times.jobs, times.p50_us, times.max_us), (5, 3.5, 5.25));
        assert_eq!(times.histogram, [(1, 1), (2, 1), (3, 1), (5, 2)].into());
    }
}
