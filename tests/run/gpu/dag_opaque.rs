//! Opaque nodes on a GPU: callbacks that queue two kernels, beside kernels over memory of the caller. Results equal those
//! of serial order in every form, because each lane has a workspace; calls that share one where nothing orders them race.

use std::ffi::c_void;
use std::sync::Arc;

use cusync::device::{Arg, Device, DeviceBuffer, Function, KernelCall, Module, Shape, Stream};
use cusync::programs::{BoundRecording, Executable, Lent, Workspace};
use cusync_dag::{
    Argument, Form, GraphPlan, LaunchConfig, LaunchPlan, NodeId, Recording, ScheduleOptions, StreamPlan,
    read, schedule, write,
};

use crate::common::{Gpu, gpu};

const CTAS: u32 = 6;
const THREADS: u32 = 128;
const WORDS: usize = (CTAS * THREADS) as usize;
const BYTES: u64 = 4 * WORDS as u64;
/// How long every third CTA of a delayed kernel sleeps, nanoseconds.
const DELAY: u32 = 3_000_000;

type Words = Arc<DeviceBuffer<u32>>;

/// The kernel `spin` of the suite: what it writes at word `i`, from one or two inputs.
fn spun(seed: u32, inputs: &[&[u32]]) -> Vec<u32> {
    let mix = |h: u32, with: u32| {
        let h = (h ^ with).wrapping_mul(0x9e37_79b1);
        h ^ (h >> 15)
    };
    let word = |i: usize| inputs.iter().fold(mix(seed, i as u32), |h, input| mix(h, input[WORDS - 1 - i]));
    (0..WORDS).map(word).collect()
}

/// Memory of the caller: `x`, `y` are made by kernels, `a`, `b` by opaque nodes from these, and `end` from both.
struct World {
    _gpu: Gpu,
    device: Device,
    spin: Function,
    main: Arc<Stream>,
    memory: [Words; 5],
    delay: Words,
    code: Recording,
    opaque: [NodeId; 2],
}

fn world() -> Option<World> {
    let gpu = gpu()?;
    let device = gpu.device.clone();
    let spin =
        Module::suite(&device).expect("built with the other kernels").function("spin").expect("a kernel");
    let main = Arc::new(Stream::new(&device).expect("a stream"));
    let buffer =
        |name: &str| Arc::new(DeviceBuffer::from_slice(&device, &vec![0; WORDS], name).expect("memory"));
    let memory = ["x", "y", "a", "b", "end"].map(buffer);
    let delay = Arc::new(DeviceBuffer::from_slice(&device, &[DELAY], "the delay").expect("memory"));
    let [x, y, a, b, end] = &memory;
    let (launch, mut code) = (LaunchConfig::linear(CTAS, THREADS), Recording::new("world"));
    let spins = |inputs: &[&Words], out: &Words, seed: u32| {
        let mut operands: Vec<Argument> = inputs.iter().map(|input| read(&***input)).collect();
        operands.resize(4, Argument::Null);
        operands.extend([write(&**out), Argument::Null]);
        // Numbers by their bytes, as a caller of the C ABI gives them.
        let numbers = [WORDS as u32, inputs.len() as u32, 1, 0, seed, 0];
        operands.extend(numbers.map(|number| Argument::Value(number.to_ne_bytes().into())));
        operands.extend([Argument::Null, Argument::Null]);
        operands
    };
    code.launch("spin", launch, 20.0, &spins(&[], x, 1)).expect("good");
    code.launch("spin", launch, 20.0, &spins(&[], y, 2)).expect("good");
    let opaque = [(x, a), (y, b)].map(|(from, to)| {
        code.opaque("two kernels", launch, 40.0, &[read(&**from), write(&**to)], BYTES).expect("good")
    });
    code.launch("spin", launch, 20.0, &spins(&[a, b], end, 5)).expect("good");
    Some(World { _gpu: gpu, device, spin, main, memory, delay, code, opaque })
}

/// An address as an argument.
fn address(pointer: *mut c_void) -> Arg {
    Arg::Value((pointer as u64).to_ne_bytes().into())
}

impl World {
    /// Queues `spin` from one address to another. `delayed`: some CTAs sleep before they read.
    fn queue(
        &self,
    ) -> impl Fn(&Stream, *mut c_void, *mut c_void, u32, bool) -> Result<(), String> + Send + use<> {
        let (spin, delay) = (self.spin.clone(), self.delay.clone());
        move |stream, from, to, seed, delayed| {
            let mut args = vec![address(from), Arg::Null, Arg::Null, Arg::Null, address(to), Arg::Null];
            args.extend([WORDS as u32, 1, 1, 0, seed, 0].map(Arg::U32));
            args.extend([if delayed { Arg::Words(delay.clone(), 0) } else { Arg::Null }, Arg::Null]);
            let call =
                KernelCall::new(&spin, Shape::linear(CTAS, THREADS), &args).map_err(|e| e.to_string())?;
            stream.launch(&call, false).map_err(|e| e.to_string())
        }
    }

    /// The recording with callbacks that write `scratch` of their workspace and read it again, late.
    fn bound(&self, scratch: impl Fn(&Workspace) -> u64 + Clone + Send + 'static) -> BoundRecording {
        let mut bound =
            BoundRecording::with_functions(&self.code, &self.device, |_, _| Ok(self.spin.clone()))
                .expect("the GPU knows the memory");
        for (k, node) in self.opaque.into_iter().enumerate() {
            let (from, to) = (self.memory[k].clone(), self.memory[2 + k].clone());
            let (queue, scratch) = (self.queue(), scratch.clone());
            let enqueue = move |stream: &Stream, workspace: &Workspace| {
                assert!(workspace.bytes >= BYTES);
                let scratch = scratch(workspace) as *mut c_void;
                queue(stream, from.pointer(), scratch, 3, false)?;
                queue(stream, scratch, to.pointer(), 4, true)
            };
            bound.set_opaque(node, enqueue).expect("an opaque node");
        }
        bound
    }

    /// The results of one run over poisoned memory.
    fn run(&self, exec: &Executable) -> Vec<Vec<u32>> {
        self.memory.iter().for_each(|buffer| buffer.upload(&vec![u32::MAX; WORDS]).expect("poisoned"));
        exec.launch().expect("launched");
        exec.synchronize().expect("ended");
        let words = |buffer: &Words| {
            let mut words = vec![0; WORDS];
            buffer.download(&mut words).expect("downloaded");
            words
        };
        self.memory.iter().map(words).collect()
    }

    /// What serial code leaves in memory.
    fn expected(&self) -> Vec<Vec<u32>> {
        let (x, y) = (spun(1, &[]), spun(2, &[]));
        let [a, b] = [&x, &y].map(|from| spun(4, &[&spun(3, &[from])]));
        let end = spun(5, &[&a, &b]);
        vec![x, y, a, b, end]
    }
}

/// The opaque nodes on two lanes, which nothing orders.
fn two_lanes() -> StreamPlan {
    StreamPlan {
        order: vec![(0, 0), (1, 1), (2, 0), (3, 1), (4, 0)],
        waits: vec![(3, 4)],
        ..StreamPlan::default()
    }
}

#[test]
fn every_form_equals_serial_order() {
    let Some(world) = world() else { return };
    let bound = world.bound(|workspace| workspace.address);
    let want = world.expected();
    let forms =
        Form::ALL.into_iter().filter(|form| world.device.capability().0 >= 9 || !form.is_programmatic());
    let options = ScheduleOptions { forms: forms.clone().collect(), ..ScheduleOptions::default() };
    let found = schedule(bound.program(), &options).expect("no limit");
    let form_plans = forms.map(|form| (format!("{form:?}"), found.plan(bound.program(), form)));
    let streams = two_lanes();
    let by_hand: [(&str, LaunchPlan, usize); 4] = [
        ("serial by hand", StreamPlan::serial(0..5).into(), 1),
        ("two streams", streams.clone().into(), 2),
        ("two streams, captured", streams.clone().captured().into(), 2),
        ("a graph", GraphPlan::from(&streams).into(), 2),
    ];
    for (name, plan) in form_plans.chain(by_hand.iter().map(|(name, plan, _)| ((*name).into(), plan.clone())))
    {
        let proved = plan.prove(bound.program()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let exec = bound.calls().executable(&world.main, &proved).unwrap_or_else(|e| panic!("{name}: {e}"));
        for run in 0..3 {
            assert!(world.run(&exec) == want, "{name}, run {run}: not as serial code");
        }
    }
    for (name, plan, workspaces) in by_hand {
        let proved = plan.prove(bound.program()).expect("proved");
        assert_eq!(proved.workspaces().bytes(), vec![BYTES; workspaces], "{name}");
    }
}

/// If lanes are ignored, the nodes race: otherwise the test above could not fail. The memory that both use is not known
/// to the program, so nothing can refuse it.
#[test]
fn one_scratch_for_two_lanes_races() {
    let Some(world) = world() else { return };
    let hidden = DeviceBuffer::<u32>::zeroed(&world.device, WORDS, "hidden scratch").expect("memory");
    let place = hidden.pointer() as u64;
    let bound = world.bound(move |_| place);
    let exec = bound.calls().planned(&world.main, two_lanes()).expect("nothing is known of the scratch");
    assert!(world.run(&exec) != world.expected(), "two lanes with one scratch ran in order by chance");
    let exec = bound.calls().planned(&world.main, StreamPlan::serial(0..5)).expect("built");
    assert!(world.run(&exec) == world.expected(), "in serial order one scratch is enough");
}

#[test]
fn what_callbacks_must_not_use_is_refused() {
    let Some(world) = world() else { return };
    let fault = |bound: &BoundRecording| {
        bound.calls().planned(&world.main, two_lanes()).expect_err("refused").to_string()
    };
    let first = Arc::new(std::sync::OnceLock::new());
    let stale = world.bound(move |workspace| *first.get_or_init(|| workspace.address));
    let text = fault(&stale);
    assert!(text.contains("in workspace 0, which is not its own"), "{text}");
    let end = world.memory[4].pointer() as u64;
    let text = fault(&world.bound(move |_| end));
    assert!(text.contains("declare what it accesses there"), "{text}");

    let mut bound = world.bound(|workspace| workspace.address);
    let [node, _] = world.opaque;
    bound.set_opaque(node, |_, _| Ok(())).expect("opaque");
    assert!(fault(&bound).contains("queued nothing"));
    bound.set_opaque(node, |_, _| Err("no such algorithm".into())).expect("opaque");
    assert!(fault(&bound).contains("its callback failed: no such algorithm"));
    let text = bound.set_opaque(NodeId(0), |_, _| Ok(())).expect_err("a kernel").to_string();
    assert!(text.contains("node 0 is no opaque node"), "{text}");
    let without = BoundRecording::with_functions(&world.code, &world.device, |_, _| Ok(world.spin.clone()));
    assert!(fault(&without.expect("bound")).contains("it has no callback"));
    let mut host = Recording::new("host memory");
    let there = vec![0u32; WORDS];
    host.launch("spin", LaunchConfig::linear(1, 32), 1.0, &[read(&there)]).expect("good");
    let text = BoundRecording::with_functions(&host, &world.device, |_, _| Ok(world.spin.clone()))
        .expect_err("host memory");
    assert!(text.to_string().contains("which the GPU does not know"), "{text}");
}

#[test]
fn streams_and_workspaces_can_be_lent() {
    let Some(world) = world() else { return };
    let bound = world.bound(|workspace| workspace.address);
    let proved = LaunchPlan::from(two_lanes()).prove(bound.program()).expect("proved");
    let memory = |bytes: u64| {
        Arc::new(DeviceBuffer::<u8>::new(&world.device, bytes as usize, "lent").expect("memory"))
    };
    let streams = [Arc::new(Stream::new(&world.device).expect("a stream"))];
    let workspaces = [memory(BYTES), memory(2 * BYTES)];
    let lent = Lent { streams: &streams, workspaces: &workspaces };
    let exec = bound.calls().executable_with(&world.main, &proved, &lent).expect("built");
    assert!(world.run(&exec) == world.expected(), "not as serial code");
    let one = Lent { workspaces: &workspaces[..1], ..lent };
    let text = bound.calls().executable_with(&world.main, &proved, &one).expect_err("two lanes").to_string();
    assert!(text.contains("needs 2 workspaces and 1 are lent"), "{text}");
}
