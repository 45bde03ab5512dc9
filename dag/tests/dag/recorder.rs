//! The recorder: serial code produces the same program as one built by hand.

use cusync_dag::{
    AccessMode, Argument, BufferId, DagError, Direction, LaunchConfig, NodeId, Recorded, Recording, analyse,
    read, update, write,
};

fn pairs(code: &Recording) -> Vec<(u32, u32)> {
    analyse(code.program()).reduced_edges().map(|e| (e.before.0, e.after.0)).collect()
}

#[test]
fn launches_become_nodes_with_their_accesses() {
    let (x, y, x1, y1, sum) = (vec![1f32; 64], vec![2f32; 64], vec![0f32; 64], vec![0f32; 64], vec![0f32; 1]);
    let config = LaunchConfig::linear(1, 64);
    let mut code = Recording::new("vec");
    code.launch("square", config, 2.0, &[read(&x), write(&x1), 64.into()]).expect("good");
    code.launch("square", config, 2.0, &[read(&y), write(&y1), 64.into()]).expect("good");
    let mut code = code.built_for_programmatic_edges();
    code.launch("reduce", config, 5.0, &[read(&x1), read(&y1), update(&sum)]).expect("good");
    assert_eq!(pairs(&code), [(0, 2), (1, 2)]);
    let program = code.program();
    assert_eq!(program.buffers().len(), 5);
    assert_eq!(program.nodes()[2].us, 5.0);
    let kernel = program.nodes()[2].kernel().expect("a kernel");
    assert_eq!((kernel.traffic_bytes, kernel.programmatic), (256 + 256 + 8, true));
    let before = program.nodes()[1].kernel().expect("a kernel");
    assert!(!before.programmatic, "only what is declared fit");
    let Recorded::Kernel { arguments, .. } = &code.recorded()[0] else { panic!("a kernel") };
    assert_eq!(arguments[2], Argument::U32(64));
    assert_eq!(code.addresses()[0], Some(x.as_ptr() as u64));
    let plain = |kernel: &mut cusync_dag::Kernel| (kernel.programmatic, kernel.ctas_per_sm) = (false, 3);
    let id = code.launch_with("plain", config, 1.0, &[read(&x)], plain).expect("good");
    let kernel = code.program().node(id).kernel().expect("a kernel");
    assert_eq!((kernel.programmatic, kernel.ctas_per_sm), (false, 3));
}

#[test]
fn slices_depend_on_each_other_as_their_bytes_do() {
    let x = [0u8; 100];
    let config = LaunchConfig::linear(1, 32);
    let mut code = Recording::new("slices");
    code.memory(&x[..]).expect("nothing else is known");
    for argument in [write(&x[..50]), write(&x[50..]), read(&x[49..51]), update(&x[60..]), write(&x[..0])] {
        code.launch("fill", config, 2.0, &[argument]).expect("good");
    }
    assert_eq!(pairs(&code), [(0, 2), (1, 2), (1, 3)]);
}

#[test]
fn memory_of_which_only_a_part_is_known_is_refused() {
    let x = [0u8; 100];
    let config = LaunchConfig::linear(1, 32);
    let mut code = Recording::new("parts");
    code.launch("fill", config, 2.0, &[write(&x[20..50])]).expect("good");
    for part in [&x[..], &x[..21], &x[49..]] {
        let fault = code.launch("fill", config, 2.0, &[read(part)]).expect_err("overlaps");
        assert!(matches!(fault, DagError::Overlap { .. }), "{fault}");
    }
    code.launch("fill", config, 2.0, &[write(&x[..20]), write(&x[50..])]).expect("apart");
}

#[test]
fn copies_and_zones_are_recorded() {
    let (host, device) = (vec![1f32; 64], vec![0f32; 64]);
    let mut code = Recording::new("copies");
    code.copy_memory(Direction::HostToDevice, &host, &device, 4.0).expect("good");
    code.begin_zone("urgent", 3);
    let config = LaunchConfig::linear(1, 64);
    code.launch("use", config, 2.0, &[update(&device)]).expect("good");
    assert_eq!(pairs(&code), [(0, 1)]);
    assert_eq!(code.program().priority(NodeId(1)), 3);
    let nothing = code.launch("nothing", LaunchConfig::linear(0, 64), 2.0, &[]);
    assert_eq!(
        nothing.expect_err("no CTA").to_string(),
        "`nothing` launches nothing: grid and block are at least 1"
    );
    for (grid, block) in [
        ([1, 65536, 1], [32, 1, 1]),
        ([u32::MAX; 3], [32, 1, 1]),
        ([1; 3], [1025, 1, 1]),
        ([1; 3], [u32::MAX; 3]),
    ] {
        let config = LaunchConfig { grid, block, shared_bytes: 0 };
        let many = code.launch("many", config, 2.0, &[]);
        assert!(matches!(many, Err(DagError::Launch { .. })), "{grid:?} {block:?}: {many:?}");
    }
}

/// y = f(x), z = g(y), recorded with two words each.
fn two_kernels(name: &str) -> (Recording, BufferId) {
    let mut code = Recording::new(name);
    let (x, y, z) = (code.filled("x", vec![1, 2]), code.zeros("y", 2), code.zeros("z", 2));
    let launch = LaunchConfig::linear(1, 32);
    code.launch("f", launch, 1.0, &[code.read(x), code.write(y)]).expect("good");
    code.launch("g", launch, 1.0, &[code.read(y), code.write(z), Argument::U32(2)]).expect("good");
    (code, z)
}

#[test]
fn copies_stand_before_the_first_use_and_after_the_last() {
    let (plain, z) = two_kernels("plain");
    let copied = plain.with_copies(&[z]).expect("good");
    let names: Vec<_> = copied.program().nodes().iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["upload", "f", "g", "download"]);
    assert_eq!(pairs(&copied), [(0, 1), (1, 2), (2, 3)]);
    assert_eq!((copied.initial(BufferId(0)), copied.initial(z)), (vec![1, 2], vec![0, 0]));
}

#[test]
fn appended_tasks_are_independent_and_keep_their_priorities() {
    let mut both = Recording::new("both");
    for (name, priority) in [("first", 5), ("second", 2)] {
        let first = both.append(&two_kernels(name).0, priority).expect("good");
        // An end of the task: it reads z, which is not an argument.
        let end = [Argument::Null, both.read(BufferId(first + 2)).unpassed()];
        both.launch("end", LaunchConfig::linear(1, 32), 1.0, &end).expect("good");
    }
    assert_eq!(pairs(&both), [(0, 1), (1, 2), (3, 4), (4, 5)]);
    let priorities: Vec<_> = both.program().ids().map(|id| both.program().priority(id)).collect();
    assert_eq!(priorities, [5, 5, 5, 2, 2, 2]);
    let arguments: Vec<_> = both.launches().map(|(_, arguments)| arguments[0].clone()).collect();
    let x = Argument::Bytes {
        buffer: BufferId(3),
        first: 0,
        bytes: 8,
        mode: Some(AccessMode::Read),
        passed: true,
    };
    assert_eq!(arguments[3], x, "the second task's x");
}
