//! Stated configurations: they round-trip, and invalid ones are refused.

use cusync_gen::check::{Candidate, Executor, judge};
use cusync_gen::choose::{self, Config, EdgeConfig, StageConfig, StageExecutor};
use cusync_gen::device::Profile;
use cusync_gen::graph::{OperandKind, Resolved};
use cusync_gen::schedule::Hand;
use cusync_gen::spec;
use cusync_gen::sync::{Order, Policy, Tile, WaitAt};

/// A shipped spec at a given size, or at its default size.
fn resolved(name: &str, m: Option<u64>) -> Resolved {
    let file = format!("{}/../policies/{name}.ron", env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{file}: {e}"));
    let dims: Vec<_> = m.map(|m| ("M".to_owned(), m)).into_iter().collect();
    let resolved = spec::parse(&source, name).and_then(|s| s.resolve(&dims));
    resolved.unwrap_or_else(|d| panic!("{name}: {}", d.message))
}

fn h200() -> &'static Profile {
    Profile::named("h200").expect("the profile ships")
}

/// The configuration of a launch on a GPU.
fn of_gpu(c: &Candidate) -> Config {
    Config::from_candidate(c).expect("it is not for host threads")
}

/// States a configuration and proves it.
fn proved(config: &Config, resolved: &Resolved) -> Candidate {
    let c = config.candidate(resolved, h200()).unwrap_or_else(|d| panic!("{config}: {}", d.message));
    let report = judge(&c);
    assert!(report.proved(), "{config}: {:?}", report.refutations);
    c
}

#[test]
fn what_was_chosen_comes_back_when_it_is_stated() {
    // The last two have stages without kernels of their own.
    for (name, m) in [
        ("gpt3_mlp", Some(512)),
        ("diamond", Some(200)),
        ("chain3", Some(37)),
        ("llama65_mlp", Some(8)),
        ("llama65_norm_mlp", Some(300)),
        ("llama65_prompt_layer", None),
    ] {
        let resolved = resolved(name, m);
        let runs = |e: &Executor| choose::obstacle(&resolved, h200(), *e).is_none();
        for executor in Executor::GPU.into_iter().filter(runs) {
            let chosen = choose::candidate(&resolved, h200(), executor).expect("every spec has a choice");
            let config = of_gpu(&chosen);
            assert!(config.answers(executor) && config.executor() == chosen.launch.executor(), "{config}");
            let text = serde_json::to_string(&config).expect("plain values");
            let read: Config = serde_json::from_str(&text).expect("its own text");
            assert_eq!(read, config);
            let again = proved(&read, &resolved);
            assert_eq!(of_gpu(&again), config, "{name} {m:?} {executor:?}");
            assert_eq!((again.launch, again.edges), (chosen.launch, chosen.edges), "{name} {executor:?}");
        }
    }
}

#[test]
fn no_configuration_gives_a_gpu_a_stage_without_a_kernel() {
    for name in ["resnet_layer", "llama65_attention"] {
        let resolved = resolved(name, None);
        let host = choose::candidate(&resolved, h200(), Executor::Cpu).expect("a choice");
        assert_eq!(Config::from_candidate(&host), None);
        let stages: Vec<StageConfig> = (host.graph.stages.iter().zip(host.launch.kernels()))
            .map(|(stage, kernel)| StageConfig {
                stage: stage.name.clone(),
                tile: Some(stage.mma_tile),
                order: kernel.order.clone(),
            })
            .collect();
        for executor in [
            StageExecutor::Serial,
            StageExecutor::Library,
            StageExecutor::Streams,
            StageExecutor::Programmatic,
        ] {
            let config = Config::Stages { executor, stages: stages.clone(), edges: Vec::new() };
            let stated = config.candidate(&resolved, h200());
            let why = stated.map(|c| c.launch).expect_err("no kernel").message;
            let says = [
                "has no kernel of its own",
                "neither waits nor posts",
                "does not run such kernels",
                "no chain kernel has the stated tile",
            ];
            assert!(says.iter().any(|part| why.contains(part)), "{why}");
        }
    }
}

#[test]
fn a_stated_configuration_is_kept_to_the_letter() {
    let resolved = resolved("gpt3_mlp", Some(512));
    let stage = |stage: &str, tile, order| StageConfig { stage: stage.into(), tile: Some(tile), order };
    let edge = EdgeConfig {
        from: "up".into(),
        to: "down".into(),
        operand: OperandKind::A,
        policy: Policy::Batched { rows: 1, cols: 2 },
        wait_at: WaitAt::Start,
    };
    let stages = vec![
        stage("up", (128, 128, 64), Order::ColumnMajor),
        stage("down", (64, 256, 64), Order::GroupedRows(2)),
    ];
    let config = Config::Stages { executor: StageExecutor::Programmatic, stages, edges: vec![edge] };
    let c = proved(&config, &resolved);
    let orders: Vec<_> = c.launch.kernels().iter().map(|kernel| kernel.order.clone()).collect();
    assert_eq!(orders, [Order::ColumnMajor, Order::GroupedRows(2)]);
    assert_eq!(c.edges[0].policy, Policy::Batched { rows: 1, cols: 2 });
    assert_eq!(c.edges[0].wait_at, WaitAt::Start);
    assert!(c.launch.has_semaphores());
    let text = "programmatic: up 128 x 128 ColumnMajor, down 64 x 256 GroupedRows(2); Batched(rows: 1, cols: 2), waits at the start";
    assert_eq!(config.to_string(), text);
}

#[test]
fn what_a_spec_states_as_a_table_comes_from_the_spec() {
    let source = r#"Pipeline(name: "tables", dims: { "M": 256 }, stages: [
        Gemm(name: "up", a: "X(M,512)", b: "W1(512,512)", out: "Y(M,512)"),
        Gemm(name: "down", a: "Y(M,512)", b: "W2(512,512)", out: "Z(M,512)"),
    ], tiles: { "up": (128, 256) }, orders: { "up": Table([(1, 1), (1, 0), (0, 1), (0, 0)]) },
    sync: [ Edge(from: "up", to: "down", policy: Table([0, 1, 0, 1])) ])"#;
    let resolved = spec::parse(source, "tables.ron").and_then(|s| s.resolve(&[]));
    let resolved = resolved.unwrap_or_else(|e| panic!("{}", e.message));
    let chosen = choose::candidate(&resolved, h200(), Executor::Programmatic).expect("tables fit");
    let config = of_gpu(&chosen);
    let c = proved(&config, &resolved);
    assert_eq!(c.edges[0].policy, Policy::Table(vec![0, 1, 0, 1]));
    assert!(matches!(&c.launch.kernels()[0].order, Order::Table(tiles) if tiles.len() == 4));
}

#[test]
fn policies_and_orders_have_one_notation() {
    let policies = [
        (Policy::Row, "Row", r#""Row""#),
        (
            Policy::Batched { rows: 1, cols: 4 },
            "Batched(rows: 1, cols: 4)",
            r#"{"Batched":{"rows":1,"cols":4}}"#,
        ),
        (Policy::Strided(8), "Strided(8)", r#"{"Strided":8}"#),
        (Policy::Table(vec![0, 1]), "Table([0, 1])", r#"{"Table":[0,1]}"#),
    ];
    let spec = |policy: &str, order: &str| {
        format!(
            r#"Pipeline(name: "two", dims: {{ "M": 256 }}, stages: [
            Gemm(name: "up", a: "X(M,512)", b: "W1(512,512)", out: "Y(M,512)"),
            Gemm(name: "down", a: "Y(M,512)", b: "W2(512,512)", out: "Z(M,512)"),
        ], orders: {{ "up": {order} }}, sync: [ Edge(from: "up", to: "down", policy: {policy}) ])"#
        )
    };
    let stated = |policy: &str, order: &str| {
        let resolved = spec::parse(&spec(policy, order), "two.ron").and_then(|s| s.resolve(&[]));
        resolved.unwrap_or_else(|e| panic!("{policy} {order}: {}", e.message))
    };
    for (policy, ron, json) in policies {
        let said = stated(ron, "Auto").edges[0].policy.as_ref().map(|p| p.value.clone());
        assert_eq!(said.as_ref(), Some(&policy));
        assert_eq!(serde_json::to_string(&policy).expect("plain values"), json);
        assert_eq!(serde_json::from_str::<Policy>(json).expect("its own text"), policy);
        let listed = matches!(policy, Policy::Table(_));
        assert!(listed || policy.to_string() == ron, "{policy}");
    }
    let orders = [
        (Order::ColumnMajor, "ColumnMajor", r#""ColumnMajor""#),
        (Order::GroupedRows(4), "GroupedRows(4)", r#"{"GroupedRows":4}"#),
        (Order::Table(vec![Tile { m: 0, n: 1 }]), "Table([(0, 1)])", r#"{"Table":[[0,1]]}"#),
    ];
    for (order, ron, json) in orders {
        let said = stated("Auto", ron).stages[0].stated_order.as_ref().map(|o| o.value.clone());
        assert_eq!(said.as_ref(), Some(&order));
        assert_eq!(serde_json::to_string(&order).expect("plain values"), json);
        assert_eq!(serde_json::from_str::<Order>(json).expect("its own text"), order);
    }
    let open = stated("Auto", "ForConsumer");
    assert!(open.edges[0].policy.is_none() && open.stages[0].stated_order.is_none());
}

#[test]
fn what_makes_no_sense_is_refused_and_never_panics() {
    let resolved = resolved("gpt3_mlp", Some(512));
    let chosen = choose::candidate(&resolved, h200(), Executor::Programmatic).expect("a choice");
    let Some(Config::Stages { stages, edges, .. }) = Config::from_candidate(&chosen) else {
        panic!("{chosen:?}")
    };
    let programmatic =
        |stages, edges| Config::Stages { executor: StageExecutor::Programmatic, stages, edges };
    let good = serde_json::to_string(&programmatic(stages.clone(), edges.clone())).expect("plain values");
    let chain = |tile, cluster| Config::chain((tile, cluster), Hand::Fixed, true);
    let mut wrong: Vec<Config> = vec![
        chain((0, 0), (1, 1)),
        chain((128, 256), (7, 9)),
        Config::chain(((128, 256), (2, 1)), Hand::Drawn, true),
        Config::Decode,
    ];
    let replacements = [
        ("\"up\",\"tile\"", "\"other\",\"tile\""),
        ("\"operand\":\"A\"", "\"operand\":\"Bias\""),
        ("\"to\":\"down\"", "\"to\":\"up\""),
        ("\"to\":\"down\"", "\"to\":\"nowhere\""),
    ];
    for (have, bad) in replacements {
        assert!(good.contains(have), "{good}");
        wrong.push(serde_json::from_str(&good.replace(have, bad)).expect("still a configuration"));
    }
    let with = |change: &dyn Fn(&mut Vec<StageConfig>, &mut Vec<EdgeConfig>)| {
        let (mut stages, mut edges) = (stages.clone(), edges.clone());
        change(&mut stages, &mut edges);
        programmatic(stages, edges)
    };
    wrong.push(with(&|stages, _| stages[0].order = Order::GroupedRows(0)));
    wrong.push(with(&|stages, _| stages[0].order = Order::GroupedColumns(0)));
    // Multiplied by a long grid, these would overflow the kernels' integers.
    wrong.push(with(&|stages, _| stages[0].order = Order::GroupedRows(u32::MAX)));
    wrong.push(with(&|stages, _| stages[0].order = Order::Table(vec![Tile { m: 0, n: 0 }])));
    wrong.push(with(&|stages, _| stages[0].tile = Some((128, 256, 0))));
    wrong.push(with(&|stages, _| stages[0].tile = Some((96, 96, 64))));
    wrong.push(with(&|stages, _| stages.truncate(1)));
    wrong.push(with(&|_, edges| edges[0].policy = Policy::Batched { rows: 0, cols: 1 }));
    wrong.push(with(&|_, edges| edges[0].policy = Policy::Strided(0)));
    wrong.push(with(&|_, edges| edges[0].policy = Policy::Table(vec![0, u32::MAX])));
    // An executor runs only its own kernels, so other pairs have no text either.
    for bad in ["fused", "cpu", "copilot"] {
        let text = good.replace("\"programmatic\"", &format!("\"{bad}\""));
        assert!(text != good && serde_json::from_str::<Config>(&text).is_err(), "{text}");
    }
    for config in wrong {
        let refused = config.candidate(&resolved, h200());
        let why = refused.map(|c| c.launch).expect_err(&config.to_string());
        assert!(!why.message.is_empty(), "{config}");
    }
}
