//! Which CTAs fit on an SM together decides whether kernels without a start guarantee can deadlock.

use cusync_gen::check::fault::progress_ways;
use cusync_gen::check::{
    Axiom, Candidate, CtaResources, Generated, How, Launch, Obligation, StartGuarantee, judge,
};
use cusync_gen::device::Profile;

/// One producer, then stages that read its output, and from the fifth on also the output of the first reader: one CTA
/// each, launched concurrently on one SM.
fn fan(consumers: usize, kernels: &[(u32, Option<CtaResources>)]) -> Candidate {
    let mut stages = String::from(r#"Gemm(name: "p", a: "X(M,K)", b: "W(K,N)", out: "Y(M,N)"),"#);
    for s in 0..consumers {
        let read = if s < 4 { "Y" } else { "Z0" };
        stages += &format!(r#"Gemm(name: "c{s}", a: "{read}(M,N)", b: "W{s}(N,N)", out: "Z{s}(M,N)"),"#);
    }
    let source =
        format!(r#"Pipeline(name: "fan", dims: {{ "M": 128, "N": 128, "K": 128 }}, stages: [{stages}])"#);
    let graph = cusync_gen::graph::graph_with_tile(&source, (128, 128, 64)).expect("a sound spec");
    let device = Profile { sms: 1, ..Profile::named("h200").expect("shipped").clone() };
    let mut c = Candidate::new(graph, device, How::Streams(StartGuarantee::None));
    assert_eq!(c.launch.kernels().len(), kernels.len());
    for (kernel, (fit, takes)) in c.launch.kernels_mut().iter_mut().zip(kernels) {
        (kernel.ctas_per_sm, kernel.takes) = (*fit, *takes);
    }
    c
}

/// CTAs limited only by shared memory, in KiB; an SM has 227 KiB for them.
fn shared(kib: &[u32]) -> Vec<(u32, Option<CtaResources>)> {
    let sized =
        |kib: &u32| (227 / kib, Some(CtaResources { shared: kib << 10, registers: 32 * 128, threads: 128 }));
    kib.iter().map(sized).collect()
}

fn stands_still(c: &Candidate) -> bool {
    let refuted = judge(c).refutation(Obligation::Progress).is_some();
    let ways = progress_ways(c, &Generated::new(c)).expect("kernels that semaphores couple");
    assert!(!ways.condition, "the condition alone decides nothing here");
    assert_eq!(ways.explored, Some(!refuted), "few states");
    refuted
}

#[test]
fn consumers_that_fit_together_and_shut_the_producer_out() {
    // Shares of 1/2, 1/3 and 1/4 of an SM do not fit together, but 95 + 68 + 54 KiB of 227 do.
    assert!(stands_still(&fan(3, &shared(&[32, 95, 68, 54]))));
}

#[test]
fn occupancies_alone_do_not_say_what_fits_together() {
    let unknown: Vec<_> = shared(&[32, 95, 68, 54]).into_iter().map(|(fit, _)| (fit, None)).collect();
    assert!(stands_still(&fan(3, &unknown)));
}

#[test]
fn consumers_that_do_not_fit_together_leave_room() {
    assert!(!stands_still(&fan(3, &shared(&[32, 95, 80, 70]))));
    // Each of two CTAs is limited by a different resource, so both fit together; without register limits they do not.
    let kernel = |shared: u32, registers: u32, fit| {
        (fit, Some(CtaResources { shared: shared << 10, registers: registers << 10, threads: 128 }))
    };
    assert!(stands_still(&fan(2, &[kernel(20, 8, 8), kernel(200, 8, 1), kernel(8, 60, 1)])));
    assert!(!stands_still(&fan(2, &[kernel(20, 8, 8), kernel(150, 8, 1), kernel(79, 8, 2)])));
}

#[test]
fn many_kernels_of_many_ctas_are_reckoned_without_overflow() {
    let kernels: Vec<_> = std::iter::once((1, None)).chain([(32, None); 7]).collect();
    assert!(stands_still(&fan(7, &kernels)));
}

#[test]
fn more_ctas_than_fit_are_refuted() {
    let mut c = fan(2, &shared(&[32, 95, 68]));
    c.launch.kernels_mut()[1].ctas_per_sm = 3;
    let report = judge(&c);
    let text = report.refutation(Obligation::Progress).expect("refuted").to_string();
    assert!(text.contains("3 CTAs of `c0` are stated to fit an SM, and 2 fit"), "{text}");
    c.launch.kernels_mut()[1].takes = None;
    c.launch.kernels_mut()[1].ctas_per_sm = 33;
    let report = judge(&c);
    let text = report.refutation(Obligation::Progress).expect("refuted").to_string();
    assert!(text.contains("33 CTAs of `c0` are stated to fit an SM, and 32 fit"), "{text}");
}

/// A gate is a thread that waits on an SM: if every SM has one, there may be no room for the CTAs it waits for.
#[test]
fn gates_leave_an_sm_free() {
    let gated = |arch, sms| {
        let mut c = fan(3, &[(1, None); 4]);
        *c.launch.how_mut().expect("stages") = How::STREAMS;
        (c.device.arch, c.device.sms) = (arch, sms);
        c.contract = c.launch.contract(arch);
        judge(&c).refutation(Obligation::Progress).map(|refutation| refutation.to_string())
    };
    assert_eq!(gated(80, 4), None);
    let message = gated(80, 3).expect("three consumers have gates");
    assert!(message.contains("3 gates can take each of 3 SMs"), "{message}");
    // Triggers need no SM.
    assert_eq!(gated(90, 1), None);
}

#[test]
fn a_start_guarantee_rests_on_triggers_or_on_gates() {
    let mut c = fan(3, &[(1, None); 4]);
    let graph = c.graph.clone();
    let trigger = |launch: &Launch, arch| Axiom::for_launch(&graph, launch, arch).contains(&Axiom::Trigger);
    assert!(!trigger(&c.launch, 90) && !c.launch.has_gates(80), "no guarantee is asked for");
    *c.launch.how_mut().expect("stages") = How::STREAMS;
    assert!(trigger(&c.launch, 90) && !c.launch.has_gates(90));
    assert!(!trigger(&c.launch, 80) && c.launch.has_gates(80));
}
