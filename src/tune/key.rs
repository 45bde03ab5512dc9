//! Keys of tuned plans.

use std::collections::BTreeMap;

use cusync_gen::check::Executor;
use cusync_gen::graph::Resolved;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::device;
use crate::element::Bits;
use crate::runtime::Overlap;

/// serde form of the requested executor: its name, or `any`.
mod asked_text {
    use super::{ANY, Executor, asked_name, executor_of};
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(asked: &Option<Executor>, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(asked_name(*asked))
    }

    pub(crate) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Option<Executor>, D::Error> {
        let name = String::deserialize(from)?;
        let unknown = || serde::de::Error::custom(format!("no executor `{name}` on a GPU, and not `{ANY}`"));
        if name == ANY { Ok(None) } else { executor_of(&name).map(Some).ok_or_else(unknown) }
    }
}

const ANY: &str = "any";

/// Name of the requested executor, or `any`.
pub fn asked_name(asked: Option<Executor>) -> &'static str {
    asked.map_or(ANY, crate::runtime::executor_name)
}

fn executor_of(name: &str) -> Option<Executor> {
    Executor::GPU.into_iter().find(|e| crate::runtime::executor_name(*e) == name)
}

/// The machine's part of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Product name, such as `NVIDIA H200`.
    pub gpu: String,
    /// The newest CUDA version that the driver supports, such as `13.0`.
    pub driver: String,
}

impl Machine {
    /// Describes the machine of an opened GPU.
    ///
    /// # Errors
    /// The driver does not report its version.
    pub fn for_device(device: &device::Device) -> device::Result<Machine> {
        let (major, minor) = device::driver_version()?;
        Ok(Machine { gpu: device.name().into(), driver: format!("{major}.{minor}") })
    }
}

/// Key of a tuned plan. Specs with different files have the same key if their resolved graphs are equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// GPU and driver.
    pub machine: Machine,
    /// First 128 bits of the SHA-256 of [`Resolved::canonical`], in hexadecimal.
    pub graph: String,
    /// Dims by name.
    pub dims: BTreeMap<String, u32>,
    /// Element type, `fp16` or `bf16`.
    pub element: String,
    /// Requested executor; `any` is the best of all.
    #[serde(with = "asked_text")]
    pub executor: Option<Executor>,
    /// Overlap of consecutive runs in a graph.
    #[serde(rename = "edges")]
    pub overlap: Overlap,
}

impl Key {
    /// Key of a resolved spec on a machine.
    pub fn new(resolved: &Resolved, machine: &Machine, executor: Option<Executor>, overlap: Overlap) -> Key {
        let digest = Sha256::digest(resolved.canonical().as_bytes());
        Key {
            machine: machine.clone(),
            graph: digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect(),
            dims: resolved.dims.iter().cloned().collect(),
            element: resolved.element.name().into(),
            executor,
            overlap,
        }
    }

    /// Orders the entries of a cache: machine, graph, dims, then the rest.
    pub(super) fn sort_text(&self) -> String {
        let dims: Vec<String> = self.dims.iter().map(|(name, value)| format!("{name}={value:010}")).collect();
        let Machine { gpu, driver } = &self.machine;
        let (dims, asked) = (dims.join(","), asked_name(self.executor));
        format!("{gpu}|{driver}|{}|{dims}|{}|{asked}|{:?}", self.graph, self.element, self.overlap)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::runtime::shipped;
    use cusync_gen::spec;

    /// A shipped spec at a size.
    pub(crate) fn resolved(name: &str, m: u64) -> Resolved {
        let source = shipped(name).expect("the spec ships");
        let spec = spec::parse(source, name).expect("a shipped spec is well-formed");
        spec.resolve(&[("M".into(), m)]).expect("every size is good")
    }

    /// A machine for tests.
    pub(crate) fn machine() -> Machine {
        Machine { gpu: "NVIDIA H200".into(), driver: "13.0".into() }
    }

    #[test]
    fn every_part_of_the_question_is_in_the_key() {
        let base = resolved("gpt3_mlp", 512);
        let key = |r: &Resolved, executor, overlap| Key::new(r, &machine(), executor, overlap);
        let mut bf16 = base.clone();
        bf16.element = cusync_gen::graph::Element::Bf16;
        let fused = Some(Executor::Fused);
        let other = Machine { driver: "13.1".into(), ..machine() };
        let keys = [
            key(&base, None, Overlap::Plain),
            key(&base, fused, Overlap::Plain),
            key(&base, None, Overlap::Captured),
            key(&resolved("gpt3_mlp", 513), None, Overlap::Plain),
            key(&resolved("llama65_mlp", 512), None, Overlap::Plain),
            key(&bf16, None, Overlap::Plain),
            Key::new(&base, &other, None, Overlap::Plain),
        ];
        let mut texts: Vec<String> = keys.iter().map(Key::sort_text).collect();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), keys.len());
        assert_eq!(key(&base, None, Overlap::Plain), key(&resolved("gpt3_mlp", 512), None, Overlap::Plain));
        assert_eq!(keys[0].graph.len(), 32);
    }

    #[test]
    fn a_key_is_read_as_it_was_written_and_knows_its_words() {
        let key = Key::new(&resolved("chain3", 64), &machine(), None, Overlap::Captured);
        let text = serde_json::to_string(&key).expect("plain values");
        assert!(text.contains("\"executor\":\"any\"") && text.contains("\"edges\":\"captured\""), "{text}");
        assert_eq!(serde_json::from_str::<Key>(&text).expect("its own text"), key);
        for wrong in [text.replace("\"any\"", "\"cpu\""), text.replace("captured", "loose")] {
            assert!(serde_json::from_str::<Key>(&wrong).is_err(), "{wrong}");
        }
    }
}
