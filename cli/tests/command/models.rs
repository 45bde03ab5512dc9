//! `cusync generate` and `cusync model` on a small random checkpoint, on the host.

use std::path::Path;

use serde_json::Value;

use super::{cusync, file, folder, json};

/// A checkpoint in a folder of its own.
pub(crate) fn tiny(name: &str) -> String {
    let folder = folder(name).display().to_string();
    let made = json(&cusync(&["model", "tiny", &folder, "--json"]));
    assert_eq!(made["files"].as_array().map(Vec::len), Some(3));
    folder
}

fn generated(args: &[&str]) -> Value {
    let output = cusync(&[&["generate"], args, &["--cpu", "--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    json(&output)
}

#[test]
fn texts_are_continued_alone_and_side_by_side() {
    let model = tiny("models_generate");
    let one = generated(&[&model, "--prompt", "Once upon", "--max-tokens", "9", "--ignore-end"]);
    assert_eq!((&one["device"], &one["element"]), (&Value::from("host"), &Value::from("bf16")));
    let text = &one["texts"][0];
    assert_eq!((&text["prompt_tokens"], &text["end"]), (&Value::from(9), &Value::from("length")));
    assert_eq!(text["tokens"].as_array().map(Vec::len), Some(9));
    assert_eq!(one["tokens"], 9);
    let two =
        generated(&[&model, "--prompt", "Once upon", "--max-tokens", "9", "--ignore-end", "--devices", "2"]);
    assert_eq!((&two["device"], &two["tokens"]), (&Value::from("host"), &Value::from(9)));
    let lines = file("models_batch.txt", "Once upon\n\nanother text\nOnce upon\n");
    let batch = generated(&[&model, "--batch", &lines, "--max-tokens", "9", "--ignore-end", "--slots", "2"]);
    let texts = batch["texts"].as_array().expect("a list");
    assert_eq!(texts.len(), 3, "empty lines are left out");
    assert!(texts[0]["tokens"] == text["tokens"] && texts[2]["tokens"] == text["tokens"]);
    // The caches have room for one text at a time.
    let options = ["--max-tokens", "9", "--ignore-end", "--cache-tokens", "64"];
    let small = generated(&[&[model.as_str(), "--batch", &lines], &options[..]].concat());
    assert_eq!(small["texts"], batch["texts"]);
    let drawn = |seed: &str| {
        let options =
            ["--max-tokens", "9", "--ignore-end", "--temperature", "1.2", "--top-k", "50", "--seed", seed];
        generated(&[&[model.as_str(), "--tokens", "1,2,3"], &options[..]].concat())["texts"][0]["tokens"]
            .clone()
    };
    assert!(drawn("1") == drawn("1") && drawn("1") != drawn("2"));
}

#[test]
fn a_text_is_printed_with_its_prompt_and_its_rate() {
    let model = tiny("models_printed");
    let output = cusync(&["generate", &model, "--prompt", "Once upon", "--max-tokens", "4", "--cpu"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.starts_with("Once upon"), "{text}");
    assert!(text.contains("host: ") && text.contains("tokens/s"), "{text}");
}

#[test]
fn the_pipelines_of_a_model_are_proved_and_run() {
    let model = tiny("models_spec");
    let pages: [(&str, &[&str]); 4] = [
        ("launch", &["--launch", "0"]),
        ("prompt", &["--prompt", "32"]),
        ("layer", &["--prompt", "64", "--layer", "1"]),
        ("continued", &["--prompt", "64", "--continues"]),
    ];
    for (name, more) in pages {
        let spec = cusync(&[&["model", "spec", &model, "--context", "100"], more].concat());
        let page = file(&format!("models_{name}.ron"), &String::from_utf8_lossy(&spec.stdout));
        let ran = json(&cusync(&["run", &page, "--executor", "cpu", "--json"]));
        assert_eq!(ran["verified"], true, "{ran}");
    }
    let spec = cusync(&["model", "spec", &model, "--context", "100", "--devices", "2"]);
    let page = String::from_utf8_lossy(&spec.stdout).into_owned();
    assert!(page.contains("devices: 2") && page.matches("all_reduce: true").count() == 4, "{page}");
    let checked = cusync(&["check", &file("models_devices.ron", &page), "--device", "h200"]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    for (more, words) in
        [(&["--launch", "7"][..], "1 launches"), (&["--prompt", "64", "--layer", "7"], "2 layers")]
    {
        let none = cusync(&[&["model", "spec", &model], more].concat());
        assert_eq!(none.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&none.stderr).contains(words), "{none:?}");
    }
}

#[test]
fn logits_are_rows_of_the_vocabulary() {
    let model = tiny("models_logits");
    let out = Path::new(&model).join("logits").display().to_string();
    let output =
        cusync(&["model", "logits", &model, "--tokens", "7,8,9", "--prompt", "1", "-o", &out, "--cpu"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read(&out).expect("written").len(), 2 * 264 * 4);
}

#[test]
fn mistakes_have_codes_and_ways_out() {
    let model = tiny("models_mistakes");
    let cases: [(&[&str], &str, &str); 9] = [
        (
            &["generate", &model, "--tokens", "1", "--devices", "4"],
            "request",
            "do not divide among 4 devices",
        ),
        (&["generate", &model, "--tokens", "1", "--devices", "0"], "usage", "1..=8"),
        (&["generate", "/none", "--prompt", "x"], "model-file", "tokenizer.json"),
        (&["generate", &model, "--prompt", "x", "--context", "1000"], "request", "at most 512"),
        (
            &["generate", &model, "--prompt", "x", "--cache-tokens", "64"],
            "request",
            "no room for a context of 129",
        ),
        (&["generate", &model, "--tokens", "264"], "request", "there is no token 264"),
        (&["generate", &model, "--tokens", "1", "--temperature", "-1"], "usage", "at least 0"),
        (&["generate", &model], "usage", "--prompt"),
        (&["model", "tiny", "/tmp", "--architecture", "Gpt"], "architecture", "LlamaForCausalLM"),
    ];
    for (args, code, words) in cases {
        let cpu: &[&str] = if args[0] == "generate" { &["--cpu", "--json"] } else { &["--json"] };
        let output = cusync(&[args, cpu].concat());
        let fault: Value = serde_json::from_slice(&output.stderr).expect("an error as JSON");
        assert_eq!((&fault["code"], output.status.code()), (&Value::from(code), Some(2)), "{fault}");
        assert!(fault["error"].as_str().is_some_and(|text| text.contains(words)), "{fault}");
    }
}
