//! Models on the host: logits against a decoder written from its definition in float64, and generation.

use std::collections::HashMap;
use std::path::Path;

use cusync::device::{Device, kernels};
use cusync_models::{
    Control, End, Event, GivenWeight, Model, ModelConfig, Options, Place, Request, Rotary, Sampling,
    Tokenizer, WeightType, architecture, generate, tiny,
};
use safetensors::SafeTensors;

fn host(slots: usize, context: usize) -> Options {
    Options { slots, context: Some(context), place: Place::Host, ..Options::default() }
}

/// Keys and values of a layer, token by token.
type Cache = (Vec<Vec<f64>>, Vec<Vec<f64>>);

/// Weights by name, in float64.
struct Reference {
    config: ModelConfig,
    weights: HashMap<String, Vec<f64>>,
}

impl Reference {
    fn open(folder: &Path) -> Reference {
        let bytes = std::fs::read(folder.join("model.safetensors")).expect("it was written");
        let file = SafeTensors::deserialize(&bytes).expect("valid");
        let widen = |data: &[u8]| {
            data.chunks_exact(2)
                .map(|b| f64::from(f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16)))
                .collect()
        };
        let weights = file.tensors().into_iter().map(|(name, view)| (name, widen(view.data()))).collect();
        Reference { config: ModelConfig::read(folder).expect("valid"), weights }
    }

    fn weight(&self, layer: usize, name: &str) -> &[f64] {
        &self.weights[&format!("model.layers.{layer}.{name}")]
    }

    fn norm(&self, x: &[f64], gain: &[f64]) -> Vec<f64> {
        let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + self.config.rms_norm_eps).sqrt();
        x.iter().zip(gain).map(|(v, g)| v * scale * g).collect()
    }

    /// Logits after each token of a text.
    fn logits(&self, tokens: &[u32]) -> Vec<Vec<f64>> {
        let config = &self.config;
        let e = config.hidden_size;
        let columns = config.head_dim.expect("stated");
        let (heads, kv_heads) = (config.num_attention_heads, config.num_key_value_heads.expect("stated"));
        let angles = Rotary::new(config, columns).expect("valid").table(tokens.len());
        let embedding = &self.weights["model.embed_tokens.weight"];
        let mut caches = vec![Cache::default(); config.num_hidden_layers];
        let mut all = Vec::new();
        for (position, token) in tokens.iter().enumerate() {
            let mut x = embedding[*token as usize * e..(*token as usize + 1) * e].to_vec();
            for (layer, (keys, values)) in caches.iter_mut().enumerate() {
                let n = self.norm(&x, self.weight(layer, "input_layernorm.weight"));
                let (q, kv) = (heads * columns, kv_heads * columns);
                let qkv = match self.weights.get(&format!("model.layers.{layer}.self_attn.qkv_proj.weight")) {
                    Some(joined) => product(joined, &n),
                    None => ["q", "k", "v"]
                        .iter()
                        .flat_map(|p| {
                            let mut y =
                                product(self.weight(layer, &format!("self_attn.{p}_proj.weight")), &n);
                            let bias = format!("model.layers.{layer}.self_attn.{p}_proj.bias");
                            if let Some(bias) = self.weights.get(&bias) {
                                y.iter_mut().zip(bias).for_each(|(y, b)| *y += b);
                            }
                            y
                        })
                        .collect(),
                };
                let rotate = |head: &[f64]| -> Vec<f64> {
                    let row = &angles[position * columns..(position + 1) * columns];
                    let half = columns / 2;
                    let angle = |i: usize| (f64::from(row[i % half]), f64::from(row[half + i % half]));
                    (0..columns)
                        .map(|i| match angle(i) {
                            (cos, sin) if i < half => head[i] * cos - head[i + half] * sin,
                            (cos, sin) => head[i] * cos + head[i - half] * sin,
                        })
                        .collect()
                };
                let normed = |head: &[f64], name: &str| match self
                    .weights
                    .get(&format!("model.layers.{layer}.self_attn.{name}.weight"))
                {
                    Some(gain) => self.norm(head, gain),
                    None => head.to_vec(),
                };
                let key = |head: &[f64]| rotate(&normed(head, "k_norm"));
                keys.push(qkv[q..q + kv].chunks(columns).flat_map(key).collect());
                values.push(qkv[q + kv..].to_vec());
                let mut attended = Vec::new();
                let query = |head: &[f64]| rotate(&normed(head, "q_norm"));
                for (head, query) in qkv[..q].chunks(columns).map(query).enumerate() {
                    let first = head / (heads / kv_heads) * columns;
                    let score = |key: &Vec<f64>| {
                        let dot: f64 = query.iter().zip(&key[first..]).map(|(q, k)| q * k).sum();
                        (dot / (columns as f64).sqrt()).exp()
                    };
                    // A token outside the window has no weight.
                    let window = config.sliding_window.unwrap_or(usize::MAX);
                    let seen = |at: usize| position - at < window;
                    let scores: Vec<f64> = keys
                        .iter()
                        .enumerate()
                        .map(|(at, key)| if seen(at) { score(key) } else { 0.0 })
                        .collect();
                    let sum: f64 = scores.iter().sum();
                    let weighted =
                        |i: usize| scores.iter().zip(&*values).map(|(s, v)| s * v[first + i]).sum::<f64>();
                    attended.extend((0..columns).map(|i| weighted(i) / sum));
                }
                add(&mut x, &product(self.weight(layer, "self_attn.o_proj.weight"), &attended));
                let n = self.norm(&x, self.weight(layer, "post_attention_layernorm.weight"));
                let (gate, up) =
                    match self.weights.get(&format!("model.layers.{layer}.mlp.gate_up_proj.weight")) {
                        Some(joined) => {
                            let mut gate = product(joined, &n);
                            let up = gate.split_off(gate.len() / 2);
                            (gate, up)
                        }
                        None => (
                            product(self.weight(layer, "mlp.gate_proj.weight"), &n),
                            product(self.weight(layer, "mlp.up_proj.weight"), &n),
                        ),
                    };
                let act = |g: f64| match config.hidden_act.as_deref() {
                    Some("gelu_pytorch_tanh") => {
                        0.5 * g * (1.0 + (0.7978845608 * (g + 0.044715 * g.powi(3))).tanh())
                    }
                    _ => g / (1.0 + (-g).exp()),
                };
                let y: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| act(*g) * u).collect();
                add(&mut x, &product(self.weight(layer, "mlp.down_proj.weight"), &y));
            }
            let n = self.norm(&x, &self.weights["model.norm.weight"]);
            all.push(product(&self.weights["lm_head.weight"], &n));
        }
        all
    }
}

/// A matrix of the checkpoint, (N, K), times a vector.
fn product(matrix: &[f64], x: &[f64]) -> Vec<f64> {
    matrix.chunks(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
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
            // Rounding to bf16 after each of 15 stages.
            assert!((error / norm).sqrt() < 0.02, "{}: {}", architecture.name, (error / norm).sqrt());
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

#[test]
fn windows_and_other_gates_have_the_logits_of_their_definition() {
    for (architecture, window) in
        [("MistralForCausalLM", 5), ("Phi3ForCausalLM", 1), ("LlamaForCausalLM", 64)]
    {
        let folder = tiny_model(architecture);
        change(folder.path(), "hidden_act", "gelu_pytorch_tanh".into());
        change(folder.path(), "sliding_window", window.into());
        let tokens: Vec<u32> = "a window moves along".bytes().map(u32::from).collect();
        let want = Reference::open(folder.path()).logits(&tokens);
        let mut model = Model::open(folder.path(), &host(1, 64), |_| ()).expect("opened");
        for (token, want) in tokens.iter().zip(&want) {
            let have = model.step(&[(0, *token)]).expect("a step").row(0);
            let error: f64 = have.iter().zip(want).map(|(h, w)| (f64::from(*h) - w).powi(2)).sum();
            let norm: f64 = want.iter().map(|w| w * w).sum();
            assert!((error / norm).sqrt() < 0.02, "{architecture}: {}", (error / norm).sqrt());
        }
    }
}

/// Changes a field of a configuration and returns the error.
fn refused(field: &str, value: serde_json::Value) -> String {
    let folder = tiny_model("LlamaForCausalLM");
    change(folder.path(), field, value);
    let error = Model::open(folder.path(), &host(1, 64), |_| ()).err().expect("refused");
    error.to_string()
}

#[test]
fn mistakes_are_named_before_weights_are_loaded() {
    use serde_json::json;
    let cases = [
        ("architectures", json!(["GptNeoForCausalLM"]), "LlamaForCausalLM, MistralForCausalLM"),
        ("intermediate_size", json!(512), "gate_proj.weight`: has the shape [256, 128]"),
        ("num_hidden_layers", json!(3), "`model.layers.2.input_layernorm.weight`: is in no safetensors file"),
        ("hidden_act", json!("mish"), "there are silu, swish, gelu,"),
        ("rope_scaling", json!({"rope_type": "yarn", "factor": 4.0}), "yarn"),
        ("num_key_value_heads", json!(3), "evenly"),
        ("torch_dtype", json!("float8"), "float8"),
        ("max_position_embeddings", json!(32), "at most 32"),
    ];
    for (field, value, message) in cases {
        let error = refused(field, value);
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

/// Logits after steps behind a prompt, of random weights for nine layers, which are two launches.
fn logits_of_nine_layers(place: Place) -> Vec<Vec<f32>> {
    let folder = tempfile::tempdir().expect("a folder");
    tiny::write(folder.path(), "LlamaForCausalLM").expect("written");
    let path = folder.path().join("config.json");
    let config = std::fs::read_to_string(&path).expect("written");
    let nine = config.replace("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 9");
    assert_ne!(config, nine);
    std::fs::write(&path, nine).expect("writable");
    let options = Options { place, random: true, ..host(3, 100) };
    let mut model = Model::open(folder.path(), &options, |_| ()).expect("opened");
    let prompt: Vec<u32> = (0..40).map(|token| token * 5 % 256).collect();
    model.append(0, &prompt).expect("it fits");
    model.append(2, &prompt[..3]).expect("it fits");
    let mut all = Vec::new();
    for token in [7, 99, 200] {
        let logits = model.step(&[(0, token), (2, token + 1)]).expect("it runs");
        all.extend([logits.row(0), logits.row(1)]);
    }
    all
}

#[test]
fn a_gpu_has_the_logits_of_the_host() {
    // A model needs sm_90a.
    let gpu = Device::open(0).ok().filter(|gpu| gpu.capability() == (9, 0) && !kernels().is_empty());
    if gpu.is_none() {
        println!("skipped: needs a GPU with kernels");
        return;
    }
    let found = logits_of_nine_layers(Place::Gpu(0));
    let expected = logits_of_nine_layers(Place::Host);
    for (row, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let norm =
            |values: &mut dyn Iterator<Item = f32>| values.map(|v| f64::from(v).powi(2)).sum::<f64>().sqrt();
        let error =
            norm(&mut found.iter().zip(expected).map(|(a, b)| a - b)) / norm(&mut expected.iter().copied());
        // Both round nine layers of bf16.
        assert!(error < 0.05, "row {row}: {error}");
    }
}
