//! The operations of language networks.

use super::*;
use crate::model::described::{Described, Published};
use crate::model::families::encoders::Features;
use crate::model::language::{Geometry, Language, sizes};
use crate::model::network::Rows;
use crate::model::values::Values;
use crate::model::{CheckpointKind, Normalize, language, sighted};

/// Width 16, MLP 24, 4 heads of 4 channels, 2 of keys, 2 blocks, 50 tokens.
fn geometry() -> Geometry {
    let language = language::described(&Published::of_key("llama-7b").unwrap().values().unwrap(), None).unwrap();
    let small = Geometry { vocabulary: 50, width: 16, mlp: 24, blocks: 2, heads: 4, key_heads: 2, ..language.geometry };
    Geometry { channels: 4, ..small }
}

/// Updates of rank 2 of the queries and values of all blocks.
fn layout(geometry: &Geometry) -> Layout {
    let mut layout = Layout::default();
    let slots = Language::new(geometry.clone(), 10).slots();
    for slot in slots.into_iter().filter(|slot| ["attn.q", "attn.v"].contains(&slot.target.as_str())) {
        let start = layout.parameters();
        layout.push(format!("{}.A", slot.name), &[2, slot.inputs]);
        layout.push(format!("{}.B", slot.name), &[slot.outputs, 2]);
        let shape = Shape::LowRank { rank: 2, inputs: slot.inputs, outputs: slot.outputs, scale: 1.0 };
        layout.close_block(slot.name, start, shape);
    }
    layout
}

fn work(layout: &Layout, reads: Reads, particles: i64) -> Work {
    let geometry = geometry();
    let base = Parameters::without_memory(sizes(&geometry), Kind::Float);
    let pass = Pass { layout, classes: 3, particles, images: 1, own_images: false, from_stage: None };
    let network = Language::new(geometry, 10);
    Counting { network: &network, base: &base, sample: Sample { tokens: Some(10), side: None }, reads, pass }.work()
}

/// torch's `FlopCounterMode` on transformers' `LlamaForCausalLM` of these sizes, whose eager attention multiplies all 100 pairs of
/// 10 tokens, where 55 are needed: 105,600 operations, 12,800 of them of attention. With PEFT's LoRA on `q_proj` and `v_proj`,
/// 110,080 forward; 112,640 backward from the logits of all tokens, 22,400 of them of attention.
#[test]
fn a_step_has_the_operations_that_torch_counts() {
    let needed = |all: f64, attention: f64| all - attention + attention * 0.55;
    let frozen = work(&Layout::default(), Reads::Answer(10), 1);
    assert_eq!(frozen, Work { forward: needed(105_600.0, 12_800.0), backward: 0.0 });
    let adapted = work(&layout(&geometry()), Reads::Answer(10), 1);
    let expected = Work { forward: needed(110_080.0, 12_800.0), backward: needed(112_640.0, 22_400.0) };
    assert!((adapted.forward - expected.forward).abs() < 1e-6, "{adapted:?}");
    assert!((adapted.backward - expected.backward).abs() < 1e-6, "{adapted:?}");
}

/// In the last block nine of ten queries are not needed, nor is what follows from them: 256 multiply-adds of queries, 256 of the
/// projection and 1,152 of the MLP for each, and 45 of 55 pairs of 32; of the logits, 3 classes in place of 50 tokens ten times.
#[test]
fn classes_need_one_row_of_the_last_block() {
    let nothing = Layout::default();
    let all = work(&nothing, Reads::Answer(10), 1).forward;
    let trimmed = work(&nothing, Reads::Classes, 1).forward;
    assert_eq!(all - trimmed, 2.0 * (9.0 * (256.0 + 256.0 + 1152.0) + 45.0 * 32.0 + 16.0 * (500.0 - 3.0)));
}

/// A second particle adds all but the frozen queries, keys and values of the first block.
#[test]
fn particles_share_what_comes_before_the_first_update() {
    let layout = layout(&geometry());
    let [one, two] = [1, 2].map(|particles| work(&layout, Reads::Classes, particles));
    let shared = 2.0 * 10.0 * (256.0 + 128.0 + 128.0);
    assert_eq!(2.0 * one.forward - two.forward, shared);
    assert_eq!(2.0 * one.backward, two.backward);
}

/// Each token after the first goes through all blocks, 1,920 multiply-adds each with 16 more for both products of each key, and
/// gives 50 logits.
#[test]
fn written_tokens_go_through_the_network_once() {
    let nothing = Layout::default();
    let [one, three] = [1, 3].map(|tokens| work(&nothing, Reads::Writes(tokens), 1).forward);
    let token = |keys: f64| 2.0 * (2.0 * (1920.0 + 32.0 * keys) + 16.0 * 50.0);
    assert_eq!(three - one, token(11.0) + token(12.0));
}

/// LLaVA's image goes through its tower and projector once, and then through the blocks as tokens.
#[test]
fn an_image_is_seen_once_for_all_particles() {
    let values = Published::of_key("llava-1.5-7b").unwrap().values().unwrap();
    let llava = &sighted::described(&values, None, Normalize::CLIP).unwrap();
    let (layout, tokens) = (layout(&llava.language.geometry), 600);
    let base = Parameters::without_memory(sighted::sizes(llava), Kind::Float);
    let pass = |particles, from_stage| Pass {
        layout: &layout,
        classes: 0,
        particles,
        images: 1,
        own_images: false,
        from_stage,
    };
    let sample = Sample { tokens: Some(tokens), side: Some(336) };
    let count = |from| {
        let (network, reads, pass): (&dyn Network, _, _) = (llava, Reads::Answer(4), pass(5, from));
        Counting { network, base: &base, sample, reads, pass }.work().forward
    };
    let [whole, read] = [None, Some(1)].map(count);
    let eyes = whole - read;
    let blocks = 23.0 * (577.0 * 12.0 * 1024.0 * 1024.0 + 2.0 * 577.0 * 577.0 * 1024.0);
    let rest = 576.0 * (588.0 * 1024.0 + 1024.0 * 4096.0 + 4096.0 * 4096.0);
    assert!((eyes / (2.0 * (blocks + rest)) - 1.0).abs() < 1e-9, "{eyes}");
}

/// Multiply-adds of 10 tokens by hand. Block 0: queries, keys and values 3·10·256, attention 2·10·10·16, projection 10·256, MLP
/// 2·10·384. Block 1 computes the first token alone: keys and values 2·10·256, queries 256, attention 2·10·16, projection 256, MLP
/// 2·384. The layer on it takes 256, and the head 16·3.
#[test]
fn a_text_encoder_reads_its_first_token() {
    let config = serde_json::json!({ "model_type": "bert", "vocab_size": 50, "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 12 });
    let values = Values::new(std::path::Path::new("config.json"), config);
    let kind = CheckpointKind::Encoder;
    let work = |features: Option<Features>| {
        let found = Described::new("a small BERT".into(), &values, kind, Some(10), Normalize::CLIP).unwrap();
        let found = found.read_by(features);
        let (base, nothing) = (found.base(Kind::Float), Layout::default());
        assert_eq!(base.get("pooler.weight").is_some(), features.is_none_or(|features| features == Features::Pooled));
        let pass = Pass { layout: &nothing, classes: 3, particles: 1, images: 1, own_images: false, from_stage: None };
        let sample = Sample { tokens: found.network.most_tokens().into(), side: None };
        let network = found.network.reading(Rows::Last);
        Counting { network: &*network, base: &base, sample, reads: Reads::Classes, pass }.work()
    };
    let first = 7680 + 3200 + 2560 + 7680;
    let second = 5120 + 256 + 320 + 256 + 768;
    let of = |products: i32| Work { forward: 2.0 * f64::from(products), backward: 0.0 };
    assert_eq!(work(None), of(first + second + 256 + 48));
    assert_eq!(work(Some(Features::First)), of(first + second + 48));
    // The mean is what a query reads that scores all tokens alike, 2·10·16; the last block computes them all.
    assert_eq!(work(Some(Features::Mean)), of(2 * first + 320 + 48));
}
