//! Models on the host: logits against a decoder written from its definition in float64, and generation.

mod reference;

use std::path::Path;

use cusync::codegen::graph::Element;
use cusync::device::{Device, kernels};
use cusync_models::{
    Control, End, Event, GivenWeight, Model, Options, Place, Request, Sampling, Tokenizer, WeightType,
    architecture, generate, tiny,
};
use safetensors::SafeTensors;
use serde_json::{Value, json};

use reference::Reference;

fn host(slots: usize, context: usize) -> Options {
    Options { slots, context: Some(context), place: Place::Host, ..Options::default() }
}

fn tiny_model(architecture: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    tiny::write(folder.path(), architecture).expect("written");
    folder
}

#[test]
fn logits_of_every_architecture_are_those_of_its_definition() {
    for architecture in architecture::ALL {
        let folder = tiny_model(architecture.name);
        let tokens: Vec<u32> = "cusync runs tiles".bytes().map(u32::from).collect();
        let want = Reference::open(folder.path()).logits(&tokens);
        let mut model = Model::open(folder.path(), &host(2, 64), |_| ()).expect("opened");
        for (token, want) in tokens.iter().zip(&want) {
            // The other slot stays empty.
            let have = model.step(&[(1, *token)]).expect("a step").row(0);
            assert_eq!(have.len(), want.len());
            let error: f64 = have.iter().zip(want).map(|(h, w)| (f64::from(*h) - w).powi(2)).sum();
            let norm: f64 = want.iter().map(|w| w * w).sum();
            // Rounding to bf16 after each of 15 stages. Norms behind the blocks of Gemma enlarge the errors of small sums.
            let most = if architecture.name.starts_with("Gemma") { 0.03 } else { 0.02 };
            assert!((error / norm).sqrt() < most, "{}: {}", architecture.name, (error / norm).sqrt());
        }
        assert_eq!((model.length(0).expect("a slot"), model.length(1).expect("a slot")), (0, tokens.len()));
    }
}

fn requests(count: usize) -> Vec<Request> {
    let request = |n: usize| Request {
        prompt: (0..3 + 5 * (n as u32 % 4)).map(|i| (i * 37 + 11 * n as u32) % 256).collect(),
        max_tokens: 3 + 7 * (n % 3),
        sampling: match n % 2 {
            0 => Sampling::default(),
            _ => Sampling { temperature: 0.8, top_k: 40, top_p: 0.95 },
        },
        seed: n as u64,
        ends: vec![256],
    };
    (0..count).map(request).collect()
}

fn texts(model: &mut Model, requests: &[Request]) -> Vec<(Vec<u32>, Option<End>)> {
    let mut texts = vec![(Vec::new(), None); requests.len()];
    generate(model, requests, |event| {
        match event {
            Event::Token { request, token } => texts[request].0.push(token),
            Event::End { request, reason } => texts[request].1 = Some(reason),
        }
        Control::Continue
    })
    .expect("generated");
    texts
}

#[test]
fn texts_are_the_same_alone_and_among_others() {
    let folder = tiny_model("LlamaForCausalLM");
    let requests = requests(7);
    let mut shared = Model::open(folder.path(), &host(3, 64), |_| ()).expect("opened");
    let together = texts(&mut shared, &requests);
    assert!(together.iter().zip(&requests).all(|((tokens, end), request)| match end {
        Some(End::Length) => tokens.len() == request.max_tokens,
        Some(End::Stop) => tokens.len() < request.max_tokens,
        Some(End::Context) | None => false,
    }));
    let mut alone = Model::open(folder.path(), &host(1, 64), |_| ()).expect("opened");
    for (request, text) in requests.iter().zip(&together) {
        assert_eq!(texts(&mut alone, std::slice::from_ref(request))[0], *text);
    }
}

#[test]
fn a_text_ends_at_the_context_and_where_the_caller_stops() {
    let folder = tiny_model("LlamaForCausalLM");
    let mut model = Model::open(folder.path(), &host(1, 8), |_| ()).expect("opened");
    let request =
        Request { prompt: vec![1; 5], max_tokens: 100, sampling: Sampling::default(), seed: 0, ends: vec![] };
    let (tokens, end) = texts(&mut model, std::slice::from_ref(&request)).remove(0);
    // The last token is chosen from a full context.
    assert_eq!((tokens.len(), end), (4, Some(End::Context)));
    let mut count = 0;
    let times = generate(&mut model, &[request], |_| {
        count += 1;
        if count == 2 { Control::Stop } else { Control::Continue }
    });
    assert_eq!((times.expect("generated").tokens, count), (2, 2));
}

#[test]
fn weights_in_memory_give_the_logits_of_their_folder() {
    let folder = tiny_model("Qwen3ForCausalLM");
    let config = std::fs::read_to_string(folder.path().join("config.json")).expect("it was written");
    let file = std::fs::read(folder.path().join("model.safetensors")).expect("it was written");
    let given = || -> Vec<GivenWeight> {
        let tensors = SafeTensors::deserialize(&file).expect("valid").tensors();
        let given = |(name, view): (String, safetensors::tensor::TensorView<'_>)| GivenWeight {
            name,
            kind: WeightType::Bf16,
            shape: view.shape().to_vec(),
            bytes: Box::new(view.data().to_vec()),
        };
        tensors.into_iter().map(given).collect()
    };
    let mut from_folder = Model::open(folder.path(), &host(1, 32), |_| ()).expect("opened");
    let mut in_memory = Model::from_given(&config, given(), &host(1, 32), |_| ()).expect("opened");
    for token in [1, 77, 200] {
        let expected = from_folder.step(&[(0, token)]).expect("stepped").row(0);
        assert_eq!(in_memory.step(&[(0, token)]).expect("stepped").row(0), expected);
    }
    let few = given().into_iter().filter(|weight| !weight.name.contains("layers.1.mlp"));
    let refused = Model::from_given(&config, few.collect(), &host(1, 32), |_| ()).err().expect("refused");
    assert!(refused.to_string().contains("is not among the weights"), "{refused}");
    let short = given().into_iter().map(|weight| GivenWeight { bytes: Box::new(vec![0; 3]), ..weight });
    assert!(Model::from_given(&config, short.collect(), &host(1, 32), |_| ()).is_err());
}

#[test]
fn a_text_that_its_caller_finishes_leaves_the_others_alone() {
    let folder = tiny_model("LlamaForCausalLM");
    let mut model = Model::open(folder.path(), &host(2, 64), |_| ()).expect("opened");
    let requests = requests(3).into_iter().map(|r| Request { max_tokens: 9, ends: vec![], ..r });
    let requests: Vec<Request> = requests.collect();
    let whole = texts(&mut model, &requests);
    let mut found = vec![(Vec::new(), None); requests.len()];
    generate(&mut model, &requests, |event| {
        match event {
            Event::Token { request, token } => found[request].0.push(token),
            Event::End { request, reason } => found[request].1 = Some(reason),
        }
        if found[1].0.len() == 4 && found[1].1.is_none() { Control::Finish } else { Control::Continue }
    })
    .expect("generated");
    assert_eq!((found[1].0.as_slice(), found[1].1), (&whole[1].0[..4], Some(End::Stop)));
    assert_eq!((&found[0], &found[2]), (&whole[0], &whole[2]));
}

#[test]
fn bytes_go_through_the_tokenizer_and_back() {
    let folder = tiny_model("LlamaForCausalLM");
    let text = Tokenizer::open(folder.path()).expect("a tokenizer");
    let tokens = text.tokens("grüße, 世界").expect("tokens");
    assert_eq!(tokens.len(), "grüße, 世界".len());
    assert_eq!(text.text(&tokens).expect("text"), "grüße, 世界");
    let mut pieces = cusync_models::Pieces::default();
    let streamed: String = tokens.iter().map(|token| pieces.push(&text, *token).expect("a piece")).collect();
    assert_eq!(streamed, "grüße, 世界");
}

/// Changes a field of a model's configuration.
fn change(folder: &Path, field: &str, value: serde_json::Value) {
    let path = folder.join("config.json");
    let mut config: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&path).expect("written")).expect("JSON");
    config[field] = value;
    std::fs::write(&path, config.to_string()).expect("written");
}

/// A tiny model with changed fields: the largest error of a token's logits, in norm.
fn largest_error(architecture: &str, fields: &[(&str, serde_json::Value)], element: Element) -> f64 {
    let folder = tiny_model(architecture);
    fields.iter().for_each(|(field, value)| change(folder.path(), field, value.clone()));
    let tokens: Vec<u32> = "a window moves along".bytes().map(u32::from).collect();
    let want = Reference::open(folder.path()).logits(&tokens);
    let options = Options { element: Some(element), ..host(1, 64) };
    let mut model = Model::open(folder.path(), &options, |_| ()).expect("opened");
    let error = |(token, want): (&u32, &Vec<f64>)| {
        let have = model.step(&[(0, *token)]).expect("a step").row(0);
        let error: f64 = have.iter().zip(want).map(|(h, w)| (f64::from(*h) - w).powi(2)).sum();
        (error / want.iter().map(|w| w * w).sum::<f64>()).sqrt()
    };
    tokens.iter().zip(&want).map(error).fold(0.0, f64::max)
}

#[test]
fn windows_and_other_gates_have_the_logits_of_their_definition() {
    for (architecture, window) in
        [("MistralForCausalLM", 5), ("Phi3ForCausalLM", 1), ("LlamaForCausalLM", 64)]
    {
        let fields = [("hidden_act", "gelu_pytorch_tanh".into()), ("sliding_window", window.into())];
        let error = largest_error(architecture, &fields, Element::Bf16);
        assert!(error < 0.02, "{architecture}: {error}");
    }
}

/// Weights in bf16 are exact in fp16, which rounds eight times as finely.
#[test]
fn bounds_and_scales_of_gemma_have_the_logits_of_their_definition() {
    // Bounds that change much, none, and a short window.
    let cases: [&[(&str, Value)]; 3] = [
        &[
            ("final_logit_softcapping", json!(1.5)),
            ("attn_logit_softcapping", json!(0.5)),
            ("query_pre_attn_scalar", json!(4)),
        ],
        &[("final_logit_softcapping", Value::Null), ("attn_logit_softcapping", Value::Null)],
        &[("sliding_window", json!(3))],
    ];
    for fields in cases {
        let error = largest_error("Gemma2ForCausalLM", fields, Element::F16);
        assert!(error < 0.004, "{fields:?}: {error}");
    }
}

#[test]
fn rotations_and_factors_have_the_logits_of_their_definition() {
    let factors = |value: f64, pairs: usize| vec![json!(value); pairs];
    let long = |pairs| json!({"type": "longrope", "short_factor": factors(1.5, pairs), "long_factor": factors(9.0, pairs)});
    let yarn = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128});
    let cases: [(&str, &[(&str, Value)]); 7] = [
        ("Phi3ForCausalLM", &[("partial_rotary_factor", json!(0.75))]),
        ("Qwen2ForCausalLM", &[("partial_rotary_factor", json!(0.25))]),
        (
            "Phi3ForCausalLM",
            &[
                ("partial_rotary_factor", json!(0.5)),
                ("original_max_position_embeddings", json!(64)),
                ("rope_scaling", long(16)),
            ],
        ),
        ("LlamaForCausalLM", &[("rope_scaling", yarn)]),
        ("SmolLM3ForCausalLM", &[("no_rope_layers", json!([0, 1]))]),
        (
            "Gemma3ForCausalLM",
            &[("sliding_window", json!(3)), ("rope_scaling", json!({"type": "linear", "factor": 8.0}))],
        ),
        ("GraniteForCausalLM", &[("residual_multiplier", json!(0.22)), ("embedding_multiplier", json!(12))]),
    ];
    for (architecture, fields) in cases {
        let error = largest_error(architecture, fields, Element::F16);
        assert!(error < 0.004, "{architecture}, {fields:?}: {error}");
    }
}

/// Changes a field of a configuration and returns the error.
fn refused(architecture: &str, field: &str, value: serde_json::Value) -> String {
    let folder = tiny_model(architecture);
    change(folder.path(), field, value);
    let error = Model::open(folder.path(), &host(1, 64), |_| ()).err().expect("refused");
    error.to_string()
}

#[test]
fn mistakes_are_named_before_weights_are_loaded() {
    let cases = [
        ("architectures", json!(["GptNeoForCausalLM"]), "LlamaForCausalLM, MistralForCausalLM"),
        ("intermediate_size", json!(512), "gate_proj.weight`: has the shape [256, 128]"),
        ("num_hidden_layers", json!(3), "`model.layers.2.input_layernorm.weight`: is in no safetensors file"),
        ("hidden_act", json!("mish"), "there are silu, swish, gelu,"),
        ("rope_scaling", json!({"rope_type": "dynamic", "factor": 4.0}), "rope scaling dynamic"),
        ("num_key_value_heads", json!(3), "evenly"),
        ("torch_dtype", json!("float8"), "float8"),
        ("max_position_embeddings", json!(32), "at most 32"),
    ];
    for (field, value, message) in cases {
        let error = refused("LlamaForCausalLM", field, value);
        assert!(error.contains(message), "{error}");
    }
    let cases = [
        ("final_logit_softcapping", json!(-1.0), "final_logit_softcapping is -1"),
        ("query_pre_attn_scalar", json!(0), "query_pre_attn_scalar is 0"),
        ("use_bidirectional_attention", json!(true), "attention to tokens behind"),
        ("tie_word_embeddings", json!(false), "`lm_head.weight`: is in no safetensors file"),
    ];
    for (field, value, message) in cases {
        let error = refused("Gemma2ForCausalLM", field, value);
        assert!(error.contains(message), "{error}");
    }
    let cases = [
        ("SmolLM3ForCausalLM", "no_rope_layers", json!([1]), "no_rope_layers has 1 entries for 2 layers"),
        ("SmolLM3ForCausalLM", "use_sliding_window", json!(true), "windows of SmolLM3"),
        ("GraniteForCausalLM", "residual_multiplier", json!(0.0), "residual_multiplier is 0"),
        ("Gemma3ForCausalLM", "layer_types", json!(["full_attention"]), "layer_types has 1 entries"),
    ];
    for (architecture, field, value, message) in cases {
        let error = refused(architecture, field, value);
        assert!(error.contains(message), "{error}");
    }
    let folder = tiny_model("LlamaForCausalLM");
    let open = || Model::open(folder.path(), &host(1, 64), |_| ()).err().expect("refused").to_string();
    let weights = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&weights).expect("written");
    std::fs::write(&weights, &bytes[..bytes.len() - 100]).expect("written");
    assert!(open().contains("cut short"), "{}", open());
    std::fs::remove_file(&weights).expect("removed");
    assert!(open().contains("model.safetensors: No such file"), "{}", open());
}

#[test]
fn slots_and_tokens_out_of_range_are_refused() {
    let folder = tiny_model("LlamaForCausalLM");
    let mut model = Model::open(folder.path(), &host(2, 4), |_| ()).expect("opened");
    let mut error = |tokens: &[(usize, u32)]| model.step(tokens).expect_err("refused").to_string();
    assert!(error(&[(2, 0)]).contains("slot 2: the model has 2 slots"));
    assert!(error(&[(0, 0), (0, 1)]).contains("named twice"));
    assert!(error(&[(0, 264)]).contains("slot 0: there is no token 264"));
    model.append(1, &[1, 2, 3, 4]).expect("room");
    let full = model.step(&[(1, 0)]).expect_err("full").to_string();
    assert!(full.contains("slot 1: the sequence has 4 of 4 tokens"), "{full}");
    model.step(&[(0, 0)]).expect("the other slot goes on");
    model.clear(1).expect("a slot");
    model.step(&[(1, 0)]).expect("there is room again");
}

#[test]
fn a_request_that_cannot_be_served_is_named_before_anything_runs() {
    let folder = tiny_model("LlamaForCausalLM");
    let mut model = Model::open(folder.path(), &host(2, 16), |_| ()).expect("opened");
    let request = |prompt: Vec<u32>| Request {
        prompt,
        max_tokens: 4,
        sampling: Sampling::default(),
        seed: 0,
        ends: vec![],
    };
    let cases: [(Vec<u32>, &str); 3] = [
        (vec![], "request 1 has an empty prompt"),
        (vec![1; 16], "request 1 has 16 tokens, and the context has 16"),
        (vec![1, 264], "request 1: there is no token 264"),
    ];
    for (prompt, words) in cases {
        let requests = [request(vec![1, 2, 3]), request(prompt)];
        let error = generate(&mut model, &requests, |event| panic!("{event:?}")).expect_err("refused");
        assert!(error.to_string().contains(words), "{error}");
    }
    // Steps that nobody read do not disturb later texts.
    let alone = texts(&mut model, &[request(vec![1, 2, 3])]);
    let next = cusync_models::Next { slot: 1, token: Some(9), sampling: Sampling::default(), seed: 0 };
    model.clear(1).expect("a slot");
    model.queue(&[next]).expect("queued");
    assert_eq!(texts(&mut model, &[request(vec![1, 2, 3])]), alone);
}

/// Logits after steps behind prompts, one whole and one in two parts, of random weights for nine layers, which are two
/// launches, or two a layer with experts, with heads of `columns` columns, and with `fields` in the configuration.
/// Prompts have 2/5 of the tokens that there is room for.
fn logits_of_nine_layers(
    architecture: &str,
    columns: u32,
    fields: &[(&str, Value)],
    (place, devices, context): (Place, usize, usize),
) -> Vec<Vec<f32>> {
    let folder = tempfile::tempdir().expect("a folder");
    tiny::write(folder.path(), architecture).expect("written");
    let path = folder.path().join("config.json");
    let config = std::fs::read_to_string(&path).expect("written");
    let nine = config.replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 9");
    assert_ne!(config, nine);
    let heads = format!("\"head_dim\": {columns}");
    let nine = nine.replace("\"head_dim\": 64", &heads);
    assert!(nine.contains(&heads), "{nine}");
    // Scores of random routers are often nearly equal, and the other expert would change a result beyond all rounding.
    let nine = nine.replace("\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 8");
    std::fs::write(&path, nine).expect("writable");
    for (field, value) in fields {
        change(folder.path(), field, value.clone());
    }
    let options = Options { place, devices, random: true, ..host(3, context) };
    let mut model = Model::open(folder.path(), &options, |_| ()).expect("opened");
    let prompt: Vec<u32> = (0..context as u32 * 2 / 5).map(|token| token * 5 % 256).collect();
    model.append(0, &prompt).expect("it fits");
    model.append(2, &prompt[..3]).expect("it fits");
    model.append(1, &prompt[..17]).expect("it fits");
    model.append(1, &prompt[17..]).expect("it fits");
    let mut all = Vec::new();
    for token in [7, 99, 200] {
        let logits = model.step(&[(0, token), (2, token + 1), (1, token)]).expect("it runs");
        all.extend([logits.row(0), logits.row(1), logits.row(2)]);
    }
    all
}

/// The largest relative error of a row of logits on GPUs, by the host's; `None`: there are not that many GPUs with
/// kernels.
fn error_of_logits(
    architecture: &str,
    columns: u32,
    fields: &[(&str, Value)],
    devices: usize,
    context: usize,
) -> Option<f64> {
    // A model needs sm_90a.
    Device::open(devices as u32 - 1)
        .ok()
        .filter(|gpu| gpu.capability() == (9, 0) && !kernels().is_empty())?;
    let found = logits_of_nine_layers(architecture, columns, fields, (Place::Gpu(0), devices, context));
    let expected = logits_of_nine_layers(architecture, columns, fields, (Place::Host, 1, context));
    let norm =
        |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v).powi(2)).sum::<f64>().sqrt();
    let error = |(found, expected): (&Vec<f32>, &Vec<f32>)| {
        norm(&mut found.iter().zip(expected).map(|(a, b)| a - b)) / norm(&mut expected.iter().copied())
    };
    // A row that is not a number is no row that is right.
    let largest = found.iter().zip(&expected).map(error).fold(0.0, |a: f64, b| if b <= a { a } else { b });
    Some(largest)
}

#[test]
fn a_gpu_has_the_logits_of_the_host() {
    let half_rotated = [("partial_rotary_factor", json!(0.5))];
    let kind = |layer: usize| if layer % 3 == 2 { "full_attention" } else { "sliding_attention" };
    let kinds = [("layer_types", json!((0..9).map(kind).collect::<Vec<_>>()))];
    let rotated = [("no_rope_layers", json!([1, 1, 0, 1, 1, 0, 1, 1, 0]))];
    for (architecture, columns, fields) in [
        ("LlamaForCausalLM", 64, &[][..]),
        ("Qwen3MoeForCausalLM", 64, &[]),
        ("GemmaForCausalLM", 256, &[]),
        ("Gemma2ForCausalLM", 256, &[]),
        ("Gemma3ForCausalLM", 256, &kinds),
        ("GraniteForCausalLM", 64, &[]),
        ("SmolLM3ForCausalLM", 128, &rotated),
        ("Phi3ForCausalLM", 96, &[]),
        ("Phi3ForCausalLM", 128, &half_rotated),
    ] {
        let Some(error) = error_of_logits(architecture, columns, fields, 1, 100) else {
            println!("skipped: needs a GPU with kernels");
            return;
        };
        println!("{architecture}: {error:.4}");
        // Both round nine layers of bf16.
        assert!(error < 0.05, "{architecture}: {error}");
    }
}

#[test]
fn two_gpus_have_the_logits_of_the_host() {
    let rotated = [("no_rope_layers", json!([1, 1, 0, 1, 1, 0, 1, 1, 0]))];
    let window = [("sliding_window", json!(50))];
    for (architecture, columns, fields, context) in [
        ("LlamaForCausalLM", 64, &[][..], 500),
        ("Qwen2ForCausalLM", 128, &[], 500),
        ("Qwen3ForCausalLM", 128, &[], 500),
        ("MistralForCausalLM", 128, &window, 500),
        ("SmolLM3ForCausalLM", 64, &rotated, 500),
        // Norms follow its sums, so the tokens of a prompt are steps, however many they are.
        ("Gemma2ForCausalLM", 256, &[], 100),
    ] {
        let Some(error) = error_of_logits(architecture, columns, fields, 2, context) else {
            println!("skipped: needs two GPUs with kernels");
            return;
        };
        println!("{architecture}: {error:.4}");
        // Both round nine layers of bf16.
        assert!(error < 0.05, "{architecture}: {error}");
    }
}
