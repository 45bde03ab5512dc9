//! Caches: sequences take pages from a pool and give them back, and none sees what another one wrote.

use cusync::device::{Device, kernels};
use cusync_models::{Control, Event, Model, Next, Options, PAGE, Place, Request, Sampling, generate, tiny};

fn tiny_model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    tiny::write(folder.path(), "LlamaForCausalLM").expect("written");
    folder
}

fn opened(folder: &tempfile::TempDir, place: Place, slots: usize, context: usize, pages: usize) -> Model {
    let cache_tokens = Some(pages * PAGE);
    let options = Options { slots, context: Some(context), cache_tokens, place, ..Options::default() };
    Model::open(folder.path(), &options, |_| ()).expect("opened")
}

fn request(number: usize, prompt: usize, max_tokens: usize) -> Request {
    Request {
        prompt: (0..prompt as u32).map(|token| (token * 37 + number as u32 * 11) % 256).collect(),
        max_tokens,
        sampling: Sampling::default(),
        seed: number as u64,
        ends: vec![],
    }
}

fn texts(model: &mut Model, requests: &[Request]) -> Vec<Vec<u32>> {
    let mut texts = vec![Vec::new(); requests.len()];
    generate(model, requests, |event| {
        if let Event::Token { request, token } = event {
            texts[request].push(token);
        }
        Control::Continue
    })
    .expect("generated");
    texts
}

#[test]
fn texts_wait_for_pages_and_are_the_same_as_alone() {
    let folder = tiny_model();
    let requests: Vec<Request> =
        (0..7).map(|n| request(n, [5, 130, 64, 65, 1, 100, 63][n], [70, 3, 2, 20, 64, 30, 1][n])).collect();
    // Four slots and three pages: at most three texts at once.
    let mut shared = opened(&folder, Place::Host, 4, 150, 3);
    let together = texts(&mut shared, &requests);
    assert_eq!((shared.pages(), shared.free_pages()), (3, 3));
    let mut alone = opened(&folder, Place::Host, 1, 150, 3);
    for (request, text) in requests.iter().zip(&together) {
        assert_eq!(texts(&mut alone, std::slice::from_ref(request))[0], *text);
        assert_eq!(text.len(), request.max_tokens);
    }
}

#[test]
fn logits_do_not_depend_on_the_pages_of_a_sequence() {
    let folder = tiny_model();
    let mut used = opened(&folder, Place::Host, 3, 200, 7);
    // Slots that come and go leave the free pages in another order, with other tokens on them.
    for (slot, tokens) in [(0, 70), (1, 130), (2, 60), (0, 0), (2, 10), (1, 0), (0, 65), (2, 0)] {
        let (length, given) = (used.length(slot).expect("a slot"), request(slot, tokens, 1).prompt);
        match tokens {
            0 => used.clear(slot).expect("a slot"),
            _ => used.append(slot, &given).expect("it fits"),
        }
        assert_eq!(used.length(slot).expect("a slot"), if tokens == 0 { 0 } else { length + tokens });
    }
    let mut fresh = opened(&folder, Place::Host, 3, 200, 12);
    for model in [&mut used, &mut fresh] {
        model.append(1, &request(3, 140, 1).prompt).expect("it fits");
    }
    for token in 0..3 {
        let [used, fresh] =
            [&mut used, &mut fresh].map(|model| model.step(&[(1, token)]).expect("a step").row(0));
        assert!(used == fresh, "token {token}");
    }
}

#[test]
fn a_slot_without_a_free_page_is_named_and_nothing_changes() {
    let folder = tiny_model();
    let mut model = opened(&folder, Place::Host, 3, 128, 3);
    model.append(0, &request(0, 64, 1).prompt).expect("a page");
    model.append(2, &request(2, 100, 1).prompt).expect("two pages");
    let refused = model.append(1, &[1, 2]).expect_err("no page").to_string();
    assert!(
        refused.contains("slot 1: its next tokens need 1 more pages of 64 tokens, and 0 of 3 are free"),
        "{refused}"
    );
    let next = |slot| Next { slot, token: Some(1), sampling: Sampling::default(), seed: 0 };
    let refused = model.queue(&[next(2), next(0)]).expect_err("no page").to_string();
    assert!(refused.contains("slot 0: its next tokens need 1 more"), "{refused}");
    let lengths = [0, 1, 2].map(|slot| model.length(slot).expect("a slot"));
    assert_eq!((lengths, model.free_pages()), ([64, 0, 100], 0));
    // The other sequence has room on its page, and goes on.
    let logits = model.step(&[(2, 1)]).expect("a step").row(0);
    model.clear(0).expect("a slot");
    model.append(1, &[1, 2]).expect("a page");
    assert_eq!(model.free_pages(), 0);
    let mut alone = opened(&folder, Place::Host, 3, 128, 3);
    alone.append(2, &request(2, 100, 1).prompt).expect("two pages");
    assert!(logits == alone.step(&[(2, 1)]).expect("a step").row(0));
    let small = Options {
        slots: 3,
        context: Some(128),
        cache_tokens: Some(100),
        place: Place::Host,
        ..Options::default()
    };
    let refused = Model::open(folder.path(), &small, |_| ()).err().expect("refused").to_string();
    assert!(refused.contains("caches of 100 tokens have no room for a context of 128"), "{refused}");
}

#[test]
fn texts_of_a_gpu_come_and_go_in_a_small_pool() {
    let gpu = Device::open(0).ok().filter(|gpu| gpu.capability() == (9, 0) && !kernels().is_empty());
    let Some(gpu) = gpu else {
        println!("skipped: needs a GPU with kernels");
        return;
    };
    let folder = tiny_model();
    let requests: Vec<Request> = (0..170).map(|n| request(n, 1 + n * 97 % 300, 20 + n * 31 % 80)).collect();
    let wanted: usize = requests.iter().map(|request| request.max_tokens).sum();
    assert!(wanted > 10_000);
    // Most texts need four to six pages, so about twenty run at once.
    let mut model = opened(&folder, Place::Gpu(0), 32, 400, 100);
    let found = texts(&mut model, &requests);
    assert_eq!(model.free_pages(), 100);
    let free = gpu.memory().expect("known").0;
    assert!(texts(&mut model, &requests) == found, "other pages, other texts");
    assert_eq!(gpu.memory().expect("known").0, free, "memory grows");
    // Text by text, no other token is likelier but for roundings.
    let mut alone = opened(&folder, Place::Gpu(0), 1, 400, 7);
    let mut largest = 0f32;
    for (request, text) in requests.iter().zip(&found) {
        let (last, first) = request.prompt.split_last().expect("a token");
        alone.clear(0).expect("a slot");
        alone.append(0, first).expect("it fits");
        let mut token = *last;
        for next in text {
            let logits = alone.step(&[(0, token)]).expect("a step").row(0);
            let best = logits.iter().copied().fold(f32::MIN, f32::max);
            let spread = logits.iter().map(|logit| logit * logit).sum::<f32>() / logits.len() as f32;
            largest = largest.max((best - logits[*next as usize]) / spread.sqrt());
            token = *next;
        }
        assert_eq!(text.len(), request.max_tokens);
    }
    println!("largest difference to the likeliest token: {largest:.4} of a standard deviation");
    assert!(largest < 0.1, "{largest}");
}
