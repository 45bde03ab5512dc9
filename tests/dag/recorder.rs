//! The recorder: serial code in, the same program as by hand out.

use cusync::args;
use cusync::dag::{
    Argument, Dag, DagError, Direction, KernelInfo, LaunchConfig, Launched, analyse, read, update, write,
};

fn pairs<H: Clone>(dag: &Dag<H>) -> Vec<(u32, u32)> {
    analyse(&dag.program().expect("small")).edges.iter().map(|e| (e.before.0, e.after.0)).collect()
}

#[test]
fn launches_become_nodes_with_their_accesses() {
    let (x, y, x1, y1, sum) = (vec![1f32; 64], vec![2f32; 64], vec![0f32; 64], vec![0f32; 64], vec![0f32; 1]);
    let (square, reduce) = (KernelInfo::new("square"), KernelInfo { us: 5.0, ..KernelInfo::new("reduce") });
    let config = LaunchConfig::linear(1, 64);
    let mut dag = Dag::new("vec");
    dag.launch(&square, config, args![read(&x), write(&x1), 64u32]).expect("good");
    dag.launch(&square, config, args![read(&y), write(&y1), 64u32]).expect("good");
    dag.launch(&reduce, config, args![read(&x1), read(&y1), update(&sum)]).expect("good");
    assert_eq!(pairs(&dag), [(0, 2), (1, 2)]);
    let program = dag.program().expect("small");
    assert_eq!(program.buffers().len(), 5);
    assert_eq!(program.nodes()[2].us, 5.0);
    assert_eq!(program.nodes()[2].kernel().map(|k| k.traffic_bytes), Some(256 + 256 + 8));
    let Launched::Kernel { arguments, .. } = &dag.launched()[0] else { panic!("a kernel") };
    assert_eq!(arguments[2], Argument::Value(64u32.to_ne_bytes().to_vec()));
}

#[test]
fn slices_depend_on_each_other_as_their_bytes_do() {
    let x = [0u8; 100];
    let (fill, config) = (KernelInfo::new("fill"), LaunchConfig::linear(1, 32));
    let mut dag = Dag::new("slices");
    dag.launch(&fill, config, args![write(&x[..50])]).expect("good");
    dag.launch(&fill, config, args![write(&x[50..])]).expect("good");
    dag.launch(&fill, config, args![read(&x[49..51])]).expect("good");
    dag.launch(&fill, config, args![update(&x[60..])]).expect("good");
    dag.launch(&fill, config, args![write(&x[..0])]).expect("good");
    assert_eq!(pairs(&dag), [(0, 2), (1, 2), (1, 3)]);
}

#[test]
fn copies_and_zones_are_recorded() {
    let (host, device) = (vec![1f32; 64], vec![0f32; 64]);
    let mut dag = Dag::new("copies");
    dag.copy(Direction::HostToDevice, &host, &device, 4.0).expect("good");
    dag.zone("urgent", 3);
    let config = LaunchConfig::linear(1, 64);
    dag.launch(&KernelInfo::new("use"), config, args![update(&device)]).expect("good");
    assert_eq!(pairs(&dag), [(0, 1)]);
    let program = dag.program().expect("small");
    assert_eq!(program.zones()[program.nodes()[1].zone.index()].priority, 3);
    let nothing = dag.launch(&KernelInfo::new("nothing"), LaunchConfig::linear(0, 64), args![]);
    assert_eq!(nothing, Err(DagError::EmptyLaunch { node: "nothing".into() }));
}
