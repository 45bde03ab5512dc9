//! Sessions of jobs: the host submits runs of a decode plan, one after another.

use std::time::Instant;

use cusync_gen::check::Plan;
use cusync_gen::graph::Graph;

use super::notes::{Noting, SessionNotes};
use super::{CHECK_EVERY, Job, Runner, Settings, gpu, host, idle_ns};
use crate::device::{COMMANDS, Command};
use crate::inputs::Inputs;
use crate::runtime::cpu::CpuOptions;
use crate::runtime::error::{Error, Result};
use crate::runtime::pipeline::Pipeline;
use crate::runtime::traced::ItemTrace;

/// A kernel, or a thread, that takes jobs until it is closed. Nothing else may run the pipeline meanwhile.
pub struct JobSession<'a> {
    runner: Box<dyn Runner + 'a>,
    sets: usize,
    rows: u32,
    settings: Settings,
    submitted: u32,
    launches: u32,
    checked: Instant,
    noting: Noting,
    closed: bool,
}

impl std::fmt::Debug for JobSession<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session of {} sets, {} jobs submitted", self.sets, self.submitted)
    }
}

/// Whether number `have` is `want` or later; numbers wrap.
fn reached(have: u32, want: u32) -> bool {
    have.wrapping_sub(want) as i32 >= 0
}

impl<'a> JobSession<'a> {
    /// Opens a session on a GPU, for all sets of a pipeline. The first job launches the kernel.
    ///
    /// # Errors
    /// The plan does not use a decode kernel for products, there are more sets than the kernel has parameters
    /// for, or memory is short.
    pub fn open(pipeline: &'a mut Pipeline, settings: Settings) -> Result<JobSession<'a>> {
        let (sets, rows) = (pipeline.sets().max(1), rows_of(pipeline.plan())?);
        let gpu = gpu::GpuRunner::new(pipeline, idle_ns(settings)?)?;
        JobSession::new(Box::new(gpu), sets, rows, settings, Instant::now())
    }

    /// Opens a session on the host: one thread runs the jobs on as many threads as the plan has workers. Each
    /// set takes its values from its inputs.
    ///
    /// # Errors
    /// As [`JobSession::open`].
    pub fn on_host(
        plan: &Plan,
        sets: &[Inputs],
        options: CpuOptions,
        settings: Settings,
    ) -> Result<JobSession<'static>> {
        let rows = rows_of(plan)?;
        idle_ns(settings)?;
        let opened = Instant::now();
        let host = host::HostRunner::new(plan, sets, options, (opened, settings.idle))?;
        JobSession::new(Box::new(host), sets.len(), rows, settings, opened)
    }

    fn new(
        runner: Box<dyn Runner + 'a>,
        sets: usize,
        rows: u32,
        settings: Settings,
        checked: Instant,
    ) -> Result<JobSession<'a>> {
        let noting = Noting::new(checked);
        Ok(JobSession {
            runner,
            sets,
            rows,
            settings,
            submitted: 0,
            launches: 0,
            checked,
            noting,
            closed: false,
        })
    }

    /// Submits a job: a run with the tensors of `set`, for the first `m` rows. The job sees all earlier
    /// writes of the host and of copies that the host has waited for. Returns at once, unless the kernel is
    /// [`COMMANDS`] jobs behind.
    ///
    /// # Errors
    /// There is no such set, it has fewer rows, or the session failed.
    pub fn submit(&mut self, set: usize, m: u32) -> Result<Job> {
        // With one set, the next job must use it.
        self.hand_over(set, m, (self.sets == 1).then_some(set))
    }

    /// [`JobSession::submit`], which also announces the set of the next job, if the host knows it: a GPU then
    /// loads the first of its weights before that job is submitted. A wrong announcement wastes that load.
    ///
    /// # Errors
    /// As [`JobSession::submit`].
    pub fn submit_announcing(&mut self, set: usize, m: u32, next: usize) -> Result<Job> {
        self.hand_over(set, m, Some(next))
    }

    fn hand_over(&mut self, set: usize, m: u32, next: Option<usize>) -> Result<Job> {
        let unknown = |set: &usize| *set >= self.sets;
        if let Some(set) = [Some(set), next].into_iter().flatten().find(unknown) {
            let help = "bind the set before the session is opened";
            let known = self.sets;
            return Err(Error::Unsupported(format!(
                "a job with set {set}: this session has {known} sets, numbered from 0\n  help: {help}"
            )));
        }
        if m == 0 || m > self.rows {
            let rows = self.rows;
            return Err(Error::Unsupported(format!(
                "a job of {m} rows: the plan of this session has {rows}, and a job 1 to {rows} of them\n  help: plan for as many rows as the largest job has, at most 64"
            )));
        }
        if self.unfinished() >= COMMANDS {
            self.wait(Job(self.submitted.wrapping_sub(COMMANDS - 1)))?;
        }
        self.submitted = self.submitted.wrapping_add(1);
        // All fit: there are at most CUSYNC_MAX_BOUND sets, and 64 rows.
        let next = next.map(|next| next as u16);
        let command = Command { sequence: self.submitted, set: set as u16, next, m: m as u8 };
        self.noting.submitted(self.submitted, set, Some(m));
        self.runner.words().post(command);
        self.keep_running()?;
        Ok(Job(self.submitted))
    }

    /// Whether a job is over, so that its results can be read. Relaunches the kernel if it left before it saw
    /// the job.
    ///
    /// # Errors
    /// The kernel failed; the error names the unfinished jobs.
    pub fn poll(&mut self, job: Job) -> Result<bool> {
        if self.is_over(job) {
            return Ok(true);
        }
        self.keep_running()?;
        if self.checked.elapsed() > CHECK_EVERY {
            self.checked = Instant::now();
            self.runner.check().map_err(|e| self.stopped(&e.to_string()))?;
        }
        Ok(self.is_over(job))
    }

    fn is_over(&mut self, job: Job) -> bool {
        let ended = self.runner.words().ended();
        let over = reached(ended, job.0);
        if over {
            self.noting.seen(|number| reached(ended, number));
        }
        over
    }

    /// Polls until a job is over.
    ///
    /// # Errors
    /// As [`JobSession::poll`]; also if the job takes longer than [`Settings::patience`].
    pub fn wait(&mut self, job: Job) -> Result<()> {
        let begin = Instant::now();
        loop {
            for _ in 0..64 {
                if self.poll(job)? {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            if begin.elapsed() > self.settings.patience {
                let limit = self.settings.patience.as_secs_f64();
                return Err(self.stopped(&format!("waited {limit} s for job {}", job.0)));
            }
        }
    }

    /// Number of unfinished jobs.
    pub fn unfinished(&self) -> u32 {
        self.submitted.wrapping_sub(self.runner.words().ended())
    }

    /// Number of kernel launches: more than one if it ended for lack of work.
    pub fn launches(&self) -> u32 {
        self.launches
    }

    /// Starts recording launches and jobs, and returns the notes since the previous call.
    pub fn take_notes(&mut self) -> SessionNotes {
        self.noting.take()
    }

    /// Records of the last job, once the kernel has left. A pipeline made with
    /// [`crate::runtime::Options::trace`] records each worker's share of each stage on the GPU's clock; a
    /// thread records the job as a whole, in nanoseconds since the session was opened.
    ///
    /// # Errors
    /// As [`Pipeline::take_trace`].
    pub fn take_trace(&mut self) -> Result<Vec<ItemTrace>> {
        self.runner.take_trace()
    }

    /// A tensor of a set, row-major, widened to float32. Wait for the job that writes it first. A job does
    /// not change the rows of a result beyond its own.
    ///
    /// # Errors
    /// There is no such tensor.
    pub fn read_f32(&self, set: usize, name: &str) -> Result<Vec<f32>> {
        self.runner.read_f32(set, name)
    }

    /// Waits for all jobs, ends the kernel and returns when it has ended.
    ///
    /// # Errors
    /// Jobs are not over within [`Settings::patience`]; the error names them.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        if self.unfinished() > 0 {
            self.wait(Job(self.submitted))?;
        }
        if self.runner.words().left() != self.launches {
            let sequence = self.submitted.wrapping_add(1);
            self.runner.words().post(Command { sequence, set: 0, next: None, m: 0 });
        }
        self.runner.finish()
    }

    /// Relaunches the kernel if it has left and a job is unfinished. The jobs that it took are over by then,
    /// and a launch that has reported leaving reads no more commands, so no job is lost and none runs twice.
    fn keep_running(&mut self) -> Result<()> {
        // In this order: a kernel finishes its last job before it leaves.
        if self.runner.words().left() == self.launches && self.unfinished() > 0 {
            self.launches = self.launches.wrapping_add(1);
            let begin = self.noting.now();
            self.runner.launch(self.launches)?;
            self.noting.launched(begin);
        }
        Ok(())
    }

    /// Error for a session that cannot continue.
    fn stopped(&mut self, why: &str) -> Error {
        self.closed = true;
        let first = self.runner.words().ended().wrapping_add(1);
        Error::Unfinished { first, last: self.submitted, why: why.into() }
    }
}

impl Drop for JobSession<'_> {
    fn drop(&mut self) {
        // The error was already reported, or the caller did not ask for it.
        let _ = self.end();
    }
}

/// Rows of a plan that a session can run.
fn rows_of(plan: &Plan) -> Result<u32> {
    let graph: &Graph = plan.graph();
    let refuse = |why: String| {
        Err(Error::Unsupported(format!(
            "`{}` cannot be run as a session: {why}\n  help: plan it with `--executor copilot`, for 64 rows at most",
            graph.name
        )))
    };
    if let Some(stage) = graph.stages.iter().find(|s| !s.op.is_gemm()) {
        return refuse(format!("stage {} is {}, and sessions are of products", stage.name, stage.op.name()));
    }
    if plan.launch().shares().is_none() {
        return refuse("its plan is none of a decode kernel".into());
    }
    Ok(graph.stages.iter().map(|s| s.m).min().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cusync_gen::check::Executor;
    use cusync_gen::device::Profile;

    use super::*;
    use crate::runtime::cpu::CpuPipeline;
    use crate::runtime::{Overrides, plan_text};

    const SPEC: &str = r#"Pipeline(name: "p", dims: { "M": 24, "H": 72 }, stages: [
        GatedGemm(name: "up", a: "X(M,H)", gate: "W(H,H)", up: "U(H,H)", out: "Y(M,H)"),
        Gemm(name: "down", a: "Y(M,H)", b: "V(H,H)", residual: "X(M,H)", out: "Z(M,H)"),
    ])"#;
    const COLS: usize = 72;

    /// A plan with three workers, and two sets of values.
    fn planned() -> (Plan, [Inputs; 2]) {
        let h200 = Profile::named("h200").expect("it ships");
        let few = Profile { sms: 3, ..h200.clone() };
        let plan = plan_text(SPEC, "p", &Overrides::default(), &few, Executor::Copilot).expect("planned");
        let sets = [1, 2].map(|seed| Inputs::random(plan.graph(), seed));
        (plan, sets)
    }

    fn results(plan: &Plan, sets: &[Inputs]) -> Vec<Vec<f32>> {
        let one = |inputs: &Inputs| {
            let mut pipeline = CpuPipeline::new(plan, inputs, CpuOptions::default()).expect("made");
            pipeline.run().expect("right");
            pipeline.tensor("Z").expect("a result")
        };
        sets.iter().map(one).collect()
    }

    fn open(plan: &Plan, sets: &[Inputs], idle: Duration) -> JobSession<'static> {
        let settings = Settings { idle, ..Settings::default() };
        JobSession::on_host(plan, sets, CpuOptions::default(), settings).expect("opened")
    }

    #[test]
    fn jobs_have_their_rows_and_sets_and_touch_no_others() {
        let (plan, sets) = planned();
        let want = results(&plan, &sets);
        let mut session = open(&plan, &sets, Duration::from_millis(1));
        for (number, m) in [24, 1, 7, 23, 2, 16].into_iter().enumerate() {
            let set = number % 2;
            let job = session.submit(set, m).expect("taken");
            assert_eq!(job.number() as usize, number + 1);
            session.wait(job).expect("over");
            let z = session.read_f32(set, "Z").expect("a result");
            let rows = m as usize * COLS;
            assert_eq!(z[..rows], want[set][..rows], "{m} rows of set {set}");
            assert!(z[rows..].iter().all(|x| x.is_nan()), "rows behind the job's were written");
        }
        session.close().expect("all over");
    }

    #[test]
    fn a_launch_leaves_without_work_and_the_next_job_launches_again() {
        let (plan, sets) = planned();
        let want = results(&plan, &sets);
        let mut session = open(&plan, &sets, Duration::from_micros(50));
        for round in 0..40 {
            let job = session.submit(round % 2, 3).expect("taken");
            session.wait(job).expect("over");
            let z = session.read_f32(round % 2, "Z").expect("a result");
            assert_eq!(z[..3 * COLS], want[round % 2][..3 * COLS]);
            // Close to the time at which it leaves.
            std::thread::sleep(Duration::from_micros(round as u64 * 5));
        }
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(session.runner.words().left(), session.launches(), "nobody asked: it has left by itself");
        assert!((1..=40).contains(&session.launches()));
        session.close().expect("all over");
    }

    #[test]
    fn a_host_may_be_ahead_by_as_many_jobs_as_there_are_places() {
        let (plan, sets) = planned();
        let mut session = open(&plan, &sets, Duration::from_millis(1));
        let jobs: Vec<_> = (0..3 * COMMANDS).map(|i| session.submit(0, 1 + i % 24).expect("taken")).collect();
        assert!(session.unfinished() <= COMMANDS);
        for job in jobs.iter().rev() {
            session.wait(*job).expect("over");
        }
        assert_eq!(session.unfinished(), 0);
        session.close().expect("all over");
    }

    #[test]
    fn mistakes_are_errors_that_say_what_to_do() {
        let (plan, sets) = planned();
        let mut session = open(&plan, &sets, Duration::from_millis(1));
        let text_of = |e: Error| e.to_string();
        assert!(
            text_of(session.submit(2, 1).expect_err("no set"))
                .starts_with("a job with set 2: this session has 2 sets")
        );
        for m in [0, 25] {
            let text = text_of(session.submit(0, m).expect_err("no rows"));
            assert!(text.contains("the plan of this session has 24") && text.contains("help"), "{text}");
        }
        assert_eq!(session.launches(), 0, "nothing was launched for them");
        session.close().expect("nothing to do");
        for idle in [Duration::ZERO, Duration::from_secs(2)] {
            let settings = Settings { idle, ..Settings::default() };
            let refused =
                JobSession::on_host(&plan, &sets, CpuOptions::default(), settings).err().map(text_of);
            assert!(refused.is_some_and(|text| text.contains("choose 1 ns to 1 s")));
        }
        let h200 = Profile::named("h200").expect("it ships");
        let lists = plan_text(SPEC, "p", &Overrides::default(), h200, Executor::Serial).expect("planned");
        let refused =
            JobSession::on_host(&lists, &sets, CpuOptions::default(), Settings::default()).err().map(text_of);
        assert!(refused.is_some_and(|text| text.contains("--executor copilot")));
    }

    #[test]
    fn a_session_that_stands_still_says_which_jobs_are_not_over() {
        let (plan, sets) = planned();
        let options =
            CpuOptions { starve: Some(0), timeout: Duration::from_millis(20), ..CpuOptions::default() };
        let mut session = JobSession::on_host(&plan, &sets, options, Settings::default()).expect("opened");
        session.submit(0, 1).expect("taken");
        let last = session.submit(1, 2).expect("taken");
        let text = session.wait(last).expect_err("starved").to_string();
        assert!(text.starts_with("jobs 1 to 2 of this session were submitted and are not over"), "{text}");
        assert!(text.contains("up -> down (Y)"), "{text}");
    }

    #[test]
    fn a_host_that_stops_leaves_nothing_running() {
        let (plan, sets) = planned();
        let mut session = open(&plan, &sets, Duration::from_millis(1));
        let job = session.submit(0, 24).expect("taken");
        let begin = Instant::now();
        // The host neither polls nor submits from here on.
        while session.runner.words().left() == 0 && begin.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        assert_eq!((session.runner.words().left(), session.unfinished()), (1, 0));
        assert!(session.poll(job).expect("over"));
        session.close().expect("all over");
    }
}
