//! Prompts that continue sequences on the host: behind caches of any length, with and without pages, in parts that
//! equal the whole, and with sequences that have no room.

use crate::cpu_generate::{grow, id, pipeline, plan};
use cusync::element::Bits;
use cusync::inputs::Inputs;
use cusync::runtime::cpu::CpuError;

/// Two heads of queries for each of two of keys, `tokens` tokens of `sequences` sequences.
fn block(sequences: usize, tokens: usize, form: &str, element: &str) -> String {
    let rows = sequences * tokens;
    format!(
        r#"Pipeline(name: "block", element: {element}, dims: {{ "B": {sequences}, "T": {rows}, "S": 320 }}, stages: [
            RotatedGemm(name: "qkv", a: "X(T,136)", b: "W(136,512)", heads: 4, kv_heads: 2, sequences: "B",
                rotary: "cs(S,64)", lengths: "n(B)", out: "QKV(T,512)"),
            Attention(name: "attend", qkv: "QKV(T,512)", heads: 4, kv_heads: 2, sequences: "B", {form}
                out: "A(T,256)"),
            Gemm(name: "project", a: "A(T,256)", b: "Wo(256,136)", out: "Z(T,136)"),
        ])"#
    )
}

const CACHE: &str = r#"cache: Cache(keys: "K(B,2,S,64)", values: "V(B,2,S,64)", lengths: "n(B)"),"#;
const PAGES: &str =
    r#"pages: "P(B,S/64)", cache: Cache(keys: "K(16,2,64,64)", values: "V(16,2,64,64)", lengths: "n(B)"),"#;

#[test]
fn prompts_behind_caches_of_any_length_are_right() {
    let ragged = [vec![0, 62, 256], vec![1, 126, 200], vec![64, 250, 3]];
    for element in ["F16", "Bf16"] {
        for form in ["", "window: 50,", "window: 100, softcap: 5.0,"] {
            for cache in [CACHE, PAGES] {
                grow(&plan(&block(3, 64, &format!("{form} {cache}"), element)), &ragged);
            }
        }
        // Tiles end anywhere.
        grow(&plan(&block(2, 100, CACHE, element)), &[vec![0, 220], vec![7, 65]]);
    }
}

/// A prompt in two parts, the second behind the first, has the results of the whole.
#[test]
fn parts_of_a_prompt_are_the_whole() {
    let [whole, part] = [128, 64].map(|tokens| plan(&block(1, tokens, CACHE, "F16")));
    let inputs = Inputs::random(whole.graph(), 3);
    let mut all = pipeline(&whole, &inputs);
    all.set_integers("n", &[0]).expect("a sequence");
    all.run().expect("there is room");
    let x = inputs.bits(id(whole.graph(), "X")).expect("hidden states").to_vec();
    let mut caches = ["K", "V"].map(|name| inputs.bits(id(whole.graph(), name)).expect("a cache").to_vec());
    let mut found = Vec::new();
    for (first, rows) in x.chunks(64 * 136).enumerate() {
        let graph = part.graph();
        let mut given = Inputs::random(graph, 3);
        for name in ["W", "Wo", "cs"] {
            let bits = inputs.bits(id(whole.graph(), name)).expect("a weight").to_vec();
            assert!(given.set(id(graph, name), bits));
        }
        assert!(given.set(id(graph, "X"), rows.to_vec()));
        for (name, bits) in ["K", "V"].into_iter().zip(&caches) {
            assert!(given.set(id(graph, name), bits.clone()));
        }
        let mut half = pipeline(&part, &given);
        half.set_integers("n", &[64 * first as i32]).expect("a sequence");
        half.run().expect("there is room");
        for (name, bits) in ["K", "V"].into_iter().zip(&mut caches) {
            graph.element.round(&half.tensor(name).expect("a cache"), bits);
        }
        found.extend(half.tensor("Z").expect("a result"));
    }
    let expected = all.tensor("Z").expect("a result");
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() <= 2e-3 * largest, "{found} for {expected}");
    }
}

#[test]
fn a_sequence_without_room_for_its_prompt_is_named_and_the_others_are_right() {
    let plan = plan(&block(3, 64, CACHE, "F16"));
    let inputs = Inputs::random(plan.graph(), 5);
    let run = |lengths: &[i32]| {
        let mut pipeline = pipeline(&plan, &inputs);
        pipeline.set_integers("n", lengths).expect("a length a sequence");
        let result = pipeline.run().map(|_| ());
        (result, ["A", "K"].map(|name| pipeline.tensor(name).expect("it is there")))
    };
    let (result, right) = run(&[10, 256, 0]);
    assert_eq!(result, Ok(()));
    for length in [257, -1] {
        let (result, found) = run(&[10, length, 0]);
        let Err(error @ CpuError::Cache { sequence: 1, .. }) = result else { panic!("{result:?}") };
        let text = error.to_string();
        let words = format!("its length is {length}, and the cache has room for 64 tokens behind 0 to 256");
        assert!(text.contains(&words) && text.contains("stage `attend`"), "{text}");
        for (sequence, (found, right)) in found[0].chunks(64 * 256).zip(right[0].chunks(64 * 256)).enumerate()
        {
            let zeros = sequence == 1 && found.iter().all(|x| *x == 0.0);
            assert!(zeros || (sequence != 1 && found == right), "sequence {sequence}");
        }
        let changed = found[1].chunks(64).zip(right[1].chunks(64)).filter(|(found, right)| found != right);
        assert_eq!(changed.count(), 2 * 64, "nothing was appended for it");
    }
}
