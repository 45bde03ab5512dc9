//! The command's JSON and exit statuses, as docs/json.md documents them.

use serde_json::Value;

use super::{OVERWRITES, cusync, file, json};

#[test]
fn check_proves_a_shipped_spec() {
    let output = cusync(&["check", "gpt3_mlp", "--dim", "M=37", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let value = json(&output);
    assert_eq!(value["verdict"], "proved");
    assert_eq!(value["dims"]["M"], 37);
    let obligations = value["obligations"].as_array().expect("a list");
    assert_eq!(obligations.len(), 9);
    for obligation in obligations {
        assert_eq!(obligation["verdict"], "proved");
        assert!(obligation["id"].is_string() && obligation.get("counterexample").is_none());
    }
}

#[test]
fn check_refutes_with_a_counterexample() {
    // Z reuses the memory of Y while `two` still reads Y: a tile of `two` overwrites data that its neighbors read.
    let file = file("cli_contract_reuse.ron", OVERWRITES);
    let output = cusync(&["check", &file, "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let value = json(&output);
    assert_eq!(value["verdict"], "refuted");
    let refuted: Vec<_> = value["obligations"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|o| o["verdict"] == "refuted")
        .collect();
    assert_eq!(refuted[0]["id"], "reuse");
    assert!(refuted[0]["counterexample"].as_str().is_some_and(|c| c.contains("two")));
    let run = cusync(&["run", &file, "--executor", "cpu"]);
    assert_eq!(run.status.code(), Some(1), "nothing refuted is run");
}

/// An attention with narrower heads than any kernel supports.
const ROTATES: &str = r#"Pipeline(name: "rotates", dims: { "M": 24, "HQ": 2, "HKV": 1 }, stages: [
        Attention(name: "attend", qkv: "QKV(M,(HQ+2*HKV)*32)", heads: "HQ", kv_heads: "HKV", rotary: "cs(M,32)", out: "A(M,HQ*32)"),
    ])"#;

#[test]
fn a_stage_without_a_kernel_is_named_where_a_gpu_is_asked_for_and_runs_on_the_host_otherwise() {
    let file = file("attend.ron", ROTATES);
    for (executor, specs) in [("serial", 1), ("fused", 2), ("streams", 3), ("programmatic", 3)] {
        // Attentions that rotate nothing have a launch to themselves; chain kernels run convolutions.
        let all = [
            (file.as_str(), "`attend`", "cpu"),
            ("gpt3_attention", "`attend`", "serial"),
            ("resnet_layer", "`first`", "fused"),
        ];
        for (spec, stage, other) in all.into_iter().take(specs) {
            let output = cusync(&["run", spec, "--executor", executor]);
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{text}");
            assert!([stage, executor, other].iter().all(|part| text.contains(part)), "{text}");
        }
    }
    let output = cusync(&["run", &file, "--json"]);
    let value = json(&output);
    assert_eq!((output.status.code(), value["verified"].as_bool()), (Some(0), Some(true)), "{value}");
    assert!(value["note"].as_str().is_some_and(|note| note.contains("`attend`")), "{value}");
    let small = ["--dim", "B=1", "--dim", "HW=9", "--dim", "C=16"];
    let output = cusync(&[&["run", "resnet_layer", "--json"][..], &small].concat());
    let value = json(&output);
    assert_eq!((output.status.code(), value["verified"].as_bool()), (Some(0), Some(true)), "{value}");
}

#[test]
fn no_command_offers_a_gpu_what_no_kernel_runs() {
    let (file, stage) = (file("unoffered.ron", ROTATES), "`attend`");
    let spec = file.as_str();
    for command in [
        &["simulate", spec][..],
        &["tune", spec],
        &["trace", spec, "--simulate"],
        &["check", spec, "--executor", "programmatic"],
        &["explain", spec, "--executor", "serial", "--device", "a100"],
    ] {
        let output = cusync(command);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {text}");
        let ampere = command.contains(&"a100");
        let why = if ampere { "has no kernel of its own on a100" } else { "rotates what it reads" };
        let says = [stage, why, "help"];
        assert!(says.iter().all(|part| text.contains(part)), "{command:?}: {text}");
    }
    for command in ["check", "explain"] {
        let output = cusync(&[command, spec, "--json"]);
        let value = json(&output);
        assert_eq!((output.status.code(), value["executor"].as_str()), (Some(0), Some("cpu")), "{value}");
        let note = value["note"].as_str().expect("why not the GPU");
        assert!(note.contains(stage) && note.contains("rotates what it reads"), "{note}");
        assert!(value["predicted"].is_null(), "{value}");
    }
}

#[test]
fn convolutions_go_to_the_fused_executor_on_hopper_and_have_kernels_of_their_own_on_ampere() {
    for command in [
        &["check", "resnet_layer", "--executor", "programmatic"][..],
        &["explain", "vgg_layer", "--executor", "streams"],
    ] {
        let output = cusync(command);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {text}");
        let says = ["is Conv2d, which has no kernel of its own on h200", "fused executor runs it"];
        assert!(says.iter().all(|part| text.contains(part)), "{command:?}: {text}");
    }
    let value = json(&cusync(&["check", "resnet_layer", "--json"]));
    assert_eq!(
        (value["verdict"].as_str(), value["executor"].as_str()),
        (Some("proved"), Some("fused")),
        "{value}"
    );
    let a100 = json(&cusync(&["check", "resnet_layer", "--device", "a100", "--json"]));
    assert_eq!(a100["executor"].as_str(), Some("streams"), "{a100}");
}

#[test]
fn bad_input_ends_with_status_2_and_a_way_out() {
    let cases: &[&[&str]] = &[
        &["check", "gtp3_mlp"],
        &["check", "gpt3_mlp", "--dim", "M=0"],
        &["check", "gpt3_mlp", "--dim", "M"],
        &["check", "gpt3_mlp", "--dim", "M=99999999999999999999"],
        &["check", "gpt3_mlp", "--dim", "Q=1"],
        &["check", "gpt3_mlp", "--device", "h2000"],
        &["run", "gpt3_mlp", "--executor", "warp"],
        &["run", "gpt3_mlp", "--threads", "0"],
        &["check", "/"],
        &["bench", "mlp", "--pipeline", "nothing"],
        &["gen", "two_gemms", "-o", "/dev/null/x"],
        &["frobnicate"],
    ];
    for case in cases {
        let output = cusync(case);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{case:?}: {text}");
        assert!(output.stdout.is_empty(), "{case:?}");
        assert!(text.starts_with("error") && !text.contains("panicked"), "{case:?}: {text}");
    }
}

#[test]
fn run_verifies_on_the_cpu() {
    for pipeline in ["two_gemms", "diamond", "chain3"] {
        let output = cusync(&["run", pipeline, "--dim", "M=37", "--executor", "cpu", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let value = json(&output);
        assert_eq!((&value["executor"], &value["verified"]), (&"cpu".into(), &true.into()));
        assert!(value["max_rel_err"].as_f64().is_some_and(|e| e < 2e-3));
        assert!(value["time_us"].as_f64().is_some_and(|t| t > 0.0));
        for list in ["obligations", "stages", "edges", "outputs"] {
            assert!(value[list].as_array().is_some_and(|l| !l.is_empty()), "{pipeline} {list}");
        }
    }
}

#[test]
fn a_schedule_is_run_on_the_cpu_where_there_is_no_gpu() {
    if cusync::device::Device::open(0).is_ok() {
        println!("skipped: there is a GPU, and it would run the schedule");
        return;
    }
    let args = ["run", "llama65_mlp", "--dim", "M=37", "--dim", "H=1032", "--dim", "I=776", "--json"];
    let output = cusync(&[&args[..], &["--executor", "fused"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let value = json(&output);
    assert_eq!((&value["executor"], &value["verified"]), (&"cpu".into(), &true.into()));
    assert!(value["note"].as_str().is_some_and(|n| n.contains("running on the CPU")));
}

#[test]
fn run_prints_one_plain_table_into_a_pipe() {
    let output = cusync(&["run", "two_gemms", "--executor", "cpu"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("right: off by at most"), "{text}");
    assert!(text.contains("9 of 9") && !text.contains('\u{1b}'), "{text}");
    assert!(output.stderr.is_empty(), "no progress where there is no terminal");
}

#[test]
fn simulate_predicts_every_executor_of_the_device() {
    for (device, executors) in [("h200", 5), ("a100", 2)] {
        let value = json(&cusync(&["simulate", "gpt3_mlp", "--device", device, "--json"]));
        let times = value["times"].as_array().expect("a list");
        assert_eq!(times.len(), executors);
        assert_eq!((&times[0]["executor"], &times[0]["speedup"]), (&"serial".into(), &1.0.into()));
        assert!(times.iter().all(|t| t["time_us"].as_f64().is_some_and(|t| t > 0.0)));
    }
}

#[test]
fn a_fused_plan_tells_its_schedule() {
    for command in ["check", "explain"] {
        let value =
            json(&cusync(&[command, "llama65_mlp", "--executor", "fused", "--dim", "M=256", "--json"]));
        let schedule = &value["schedule"];
        let number = |field: &str| {
            schedule[field].as_u64().unwrap_or_else(|| panic!("{command}: {field} in {schedule}"))
        };
        let cluster = schedule["cluster"].as_array().expect("a list");
        let ctas: u64 = cluster.iter().filter_map(|c| c.as_u64()).product();
        assert!(ctas > 0 && number("workers") * ctas <= 132, "{schedule}");
        assert!(number("items") >= number("workers") && number("parts") >= 2 * number("split_tiles"));
        assert!(schedule["predicted_us"].as_f64().is_some_and(|us| us > 0.0));
    }
    let few = json(&cusync(&["explain", "llama65_mlp", "--executor", "fused", "--dim", "M=8", "--json"]));
    assert_eq!((&few["decode"]["width"], &few["decode"]["workers"]), (&8.into(), &132.into()));
    assert_eq!(few["edges"][0]["policy"], "Columns(width: 64, columns: 2752)");
    assert!(few["schedule"].is_null());
    let refused = cusync(&["check", "llama65_mlp", "--executor", "fused", "--device", "a100"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no kernels for a100"));
}

/// A tensor that a stage reads under another shape: the dependence says so.
#[test]
fn views_are_explained() {
    let text = r#"Pipeline(name: "views", dims: { "M": 64 }, stages: [
        Gemm(name: "up", a: "X(M,64)", b: "W1(64,128)", out: "Y(M,128)"),
        Gemm(name: "down", a: "Y(2*M,64)", b: "W2(64,64)", residual: "Y(2*M,64)", out: "Z(2*M,64)"),
    ])"#;
    let spec = file("views.ron", text);
    let explained = json(&cusync(&["explain", &spec, "--json"]));
    for edge in explained["edges"].as_array().expect("a list") {
        assert_eq!(edge["view"], serde_json::json!([128, 64]), "{edge}");
    }
    let page = String::from_utf8(cusync(&["explain", &spec]).stdout).expect("text");
    assert!(page.contains("A, read as 128 x 64") && page.contains("Residual, read as 128 x 64"), "{page}");
    let plain = json(&cusync(&["explain", "two_gemms", "--json"]));
    assert!(plain["edges"][0].get("view").is_none(), "{plain}");
}

#[test]
fn explain_gen_and_doctor_answer() {
    let explained = json(&cusync(&["explain", "chain3", "--executor", "programmatic", "--json"]));
    assert_eq!(explained["edges"][1]["policy"], "Batched(rows: 1, cols: 2)");
    let dir = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("generated");
    let generated = cusync(&["gen", "two_gemms", "-o", &dir.display().to_string(), "--json"]);
    assert_eq!(generated.status.code(), Some(0));
    let header = std::fs::read_to_string(dir.join("two_gemms.h")).expect("the header was written");
    assert!(header.contains("cusync"));
    assert_eq!(json(&generated)["files"].as_array().map(Vec::len), Some(2));
    let doctor = cusync(&["doctor", "--json"]);
    assert!(matches!(doctor.status.code(), Some(0 | 2)));
    for finding in json(&doctor)["findings"].as_array().expect("a list") {
        assert_eq!(finding["ok"] == false, finding["fix"].is_string(), "a fault has a way out: {finding}");
    }
}

/// A saved report for one size: a fused time and a competitor's time.
fn saved(name: &str, m: u32, fused_us: f64, wrong: &[&str]) -> String {
    let record = |variant: &str, role: &str, us: f64| {
        serde_json::json!({
            "pipeline": "gpt3_mlp", "dims": [["M", m]], "element": "f16", "variant": variant, "role": role,
            "joint": "plain", "tiles": [], "policies": [], "regime": "rested", "median_us": us, "p10_us": us,
            "p90_us": us, "samples": 15, "floor_us": 60.0, "baseline": "serial graph", "baseline_us": 130.0,
            "speedup": 130.0 / us, "max_rel_err": 1e-4
        })
    };
    let rates = serde_json::json!({ "matrix_tflops": 790.0, "read_tbs": 4.3 });
    let report = serde_json::json!({
        "device": "H200", "ceilings": { "rested": rates, "sustained": rates },
        "records": [record("fused graph", "fused", fused_us), record("serial graph", "peer", 130.0)],
        "skipped": [], "wrong": wrong, "fault": null
    });
    file(name, &cusync_gen::columns::write(&report).expect("JSON"))
}

#[test]
fn saved_benchmarks_are_joined_and_judged_without_a_gpu() {
    let (old, new) = (saved("old.json", 512, 125.0, &[]), saved("new.json", 512, 100.0, &[]));
    let pytorch = file(
        "pytorch.json",
        r#"{ "records": [{ "pipeline": "gpt3_mlp", "dims": { "M": 512 }, "element": "f16", "layout": "NxK", "regime": "rested",
             "median_us": 108.0, "p10_us": 107.0, "p90_us": 109.0, "samples": 15 }] }"#,
    );
    let all = file("all.json", "");
    let args = ["bench", "mlp", "--from", &old, "--from", &new, "--pytorch", &pytorch, "--save", &all];
    let output = cusync(&args);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let line = "| gpt3_mlp | 512 | 60.0 | 100.0 | fused graph |  | pytorch graph | 108.0 | 1.080 | 0.600 |";
    assert!(text.contains(line), "{text}");
    assert!(text.contains("0 of 1 checks met"), "1.08 is below the goal of this size: {text}");
    let joined: Value =
        cusync_gen::columns::read(&std::fs::read_to_string(&all).expect("saved")).expect("JSON");
    assert_eq!(joined["records"].as_array().map(Vec::len), Some(3));
    // An error in an earlier run is kept.
    let wrong = saved("wrong.json", 256, 100.0, &["fused graph is wrong"]);
    let output = cusync(&["bench", "mlp", "--from", &all, "--from", &wrong]);
    assert_eq!(output.status.code(), Some(1));
    let output = cusync(&["bench", "mlp", "--from", &pytorch]);
    assert_eq!(output.status.code(), Some(2), "not a saved report");
}

#[test]
fn schedule_counts_edges_and_waits_of_a_program() {
    for (name, figures) in [("vec", [3, 2, 2, 2, 1]), ("hits", [7, 14, 8, 2, 3]), ("img", [11, 14, 11, 4, 4])]
    {
        let output = cusync(&["schedule", name, "--json"]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let value = json(&output);
        let found = ["kernels", "edges", "reduced_edges", "streams", "waits"].map(|key| value[key].as_u64());
        assert_eq!(found, figures.map(Some), "{name}");
        let order: Vec<_> =
            value["order"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        assert_eq!(order.len() as u64, figures[0]);
        let at = |id: &Value| value["nodes"].as_array().and_then(|n| n.iter().position(|n| n["id"] == *id));
        for edge in value["dependences"].as_array().expect("a list") {
            let first = edge["before"].as_u64().expect("an id");
            let mut run = first..=edge.get("through").and_then(Value::as_u64).unwrap_or(first);
            let early = run.all(|before| at(&before.into()) < at(&edge["after"]));
            assert!(early, "{name}: {edge} is issued the wrong way round");
        }
        let (chosen, forms) = (&value["chosen"], value["forms"].as_array().expect("a list"));
        let listed = forms.iter().find(|form| form["form"] == chosen["form"]).expect("the chosen form");
        assert_eq!(listed["us"], chosen["predicted_us"], "{name}");
        let us = |form: &Value| form["us"].as_f64().expect("a time");
        assert!(forms.iter().all(|form| us(form) * 1.3 >= us(listed)), "{name}: {chosen}");
    }
    let limited = json(&cusync(&["schedule", "bs", "--streams", "2", "--json"]));
    assert_eq!((&limited["streams"], &limited["waits"]), (&2.into(), &0.into()));
    assert_eq!(json(&cusync(&["schedule", "hits", "--repeat", "5", "--json"]))["kernels"], 35);
    let text = cusync(&["schedule", "ml"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("12 dependences, 9 after reduction\n"));
    for bad in [
        &["schedule", "imgg"][..],
        &["schedule", "/"],
        &["schedule", "vec", "--streams", "0"],
        &["schedule", "vec", "--dim", "Q=1"],
    ] {
        let output = cusync(bad);
        assert_eq!(output.status.code(), Some(2), "{bad:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).starts_with("error") && output.stdout.is_empty(),
            "{bad:?}"
        );
    }
}

#[test]
fn devices_are_counted_with_their_words_and_run_together_on_the_host() {
    let dims = [
        "--dim", "E=256", "--dim", "I=192", "--dim", "HQ=2", "--dim", "HKV=1", "--dim", "S=128", "--dim",
        "B=3",
    ];
    let command =
        |name: &str, more: &[&str]| cusync(&[&[name, "llama3_8b_halves"], &dims[..], more].concat());
    // Two stages of 3 x 256 sums; each device sends them to one other.
    let line = "2 devices sum project, down: each sends 1536 words to each other a run, 12288 bytes in all";
    for name in ["check", "explain"] {
        let page = command(name, &[]);
        assert!(String::from_utf8_lossy(&page.stdout).contains(line), "{page:?}");
        let devices = &json(&command(name, &["--json"]))["devices"];
        assert_eq!(
            (&devices["count"], &devices["words"], &devices["bytes"]),
            (&2.into(), &1536.into(), &12288.into())
        );
    }
    for executor in ["cpu", "fused"] {
        let output = command("run", &["--executor", executor, "--threads", "2", "--json"]);
        // Where a GPU has kernels for `fused`, the command does not take several.
        if executor == "fused" && output.status.code() == Some(2) {
            assert!(String::from_utf8_lossy(&output.stderr).contains("2 devices"), "{output:?}");
            continue;
        }
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let value = json(&output);
        assert_eq!((&value["verified"], &value["device"]), (&true.into(), &"host".into()));
        let tensors = value["outputs"].as_array().expect("a list").iter().map(|o| o["tensor"].as_str());
        let tensors: Vec<_> = tensors.flatten().collect();
        assert!(tensors.contains(&"Z of device 0") && tensors.contains(&"Z of device 1"), "{tensors:?}");
    }
    let page = command("run", &["--executor", "cpu"]);
    assert!(String::from_utf8_lossy(&page.stdout).contains(line), "{page:?}");
    let alone = json(&cusync(&["check", "two_gemms", "--dim", "M=16", "--json"]));
    assert!(alone.get("devices").is_none(), "one device");
}
