use std::path::PathBuf;

use super::*;
use crate::model::Wording;
use crate::model::families::decoders::published;
use crate::model::{language, llava};

fn stand_in(key: &str, size: Size) -> LanguageFolder {
    LanguageFolder::new(Published::of_key(key).unwrap(), size, &[]).unwrap()
}

/// Writes the tiny stand-in into a folder of shards of at most `most` bytes.
fn written(key: &str, most: u64) -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let made = stand_in(key, Size::Tiny);
    let path = place.path().join(made.name());
    made.write_in_shards(&path, most).unwrap();
    (place, path)
}

/// The counts of transformers 5.23, `sum(p.numel() for p in LlamaForCausalLM(config).parameters())` on the meta device, as in
/// [`crate::model::described`]; nothing is written.
#[test]
fn true_sizes_are_those_of_the_published_networks() {
    for (key, count, bytes) in [
        ("llama-7b", 6_738_415_616, 2),
        ("llama-13b", 13_015_864_320, 2),
        ("llama-3-8b", 8_030_261_248, 2),
        ("mistral-7b", 7_241_732_096, 2),
        ("qwen2.5-7b", 7_615_616_512, 2),
        ("qwen3-8b", 8_190_735_360, 2),
        ("qwen3-0.6b", 596_049_920, 2),
        ("tinyllama-1.1b", 1_100_048_384, 4),
        ("llava-1.5-7b", 7_063_427_072, 2),
    ] {
        let made = stand_in(key, Size::Published);
        let found: i64 = made.tensors().unwrap().iter().map(|(_, shape)| shape.iter().product::<i64>()).sum();
        assert_eq!((found, made.bytes().unwrap()), (count, count as u64 * bytes), "{key}");
        let reading = made.reading_bytes().unwrap();
        assert!(reading > made.bytes().unwrap() && reading <= made.bytes().unwrap() + 5_000_000_000, "{key}");
    }
}

#[test]
fn every_tiny_language_network_is_read_by_bella() {
    for published in published().filter(|published| !published.key.contains("llava")) {
        let (_place, path) = written(published.key, SHARD_BYTES);
        let opened = language::open(&path, None).unwrap_or_else(|why| panic!("{}: {why:#}", published.key));
        let made = stand_in(published.key, Size::Tiny);
        assert_eq!(opened.stored, made.stored(), "{}", published.key);
        assert_eq!(opened.language.geometry.blocks, 4, "{}", published.key);
        let prompt = opened.tokenizer.tokens("Question: ψ?\nAnswer:").unwrap();
        assert_eq!((prompt[0], opened.tokenizer.end()), (1, Some(2)));
    }
}

#[test]
fn shards_hold_what_one_file_would() {
    let (_one, whole) = written("llava-1.5-7b", SHARD_BYTES);
    let (_several, parts) = written("llava-1.5-7b", 100_000);
    assert!(whole.join("model.safetensors").is_file() && !parts.join("model.safetensors").exists());
    let open = |path: &Path| llava::open(path, None, Normalize::CLIP).unwrap();
    let (whole, parts) = (open(&whole), open(&parts));
    assert_eq!(whole.base.count(), parts.base.count());
    assert!(
        whole.base.all().iter().zip(parts.base.all()).all(|(one, other)| one.0 == other.0 && one.1.equal(&other.1))
    );
    // Tensors differ from each other, and have the spread of trained ones.
    let [first, second] =
        ["blocks.0.attn.q.weight", "blocks.1.attn.q.weight"].map(|name| whole.base.get(name).unwrap());
    assert!(!first.equal(second));
    let spread = first.to_kind(Kind::Float).std(true).double_value(&[]);
    assert!((spread - 0.125).abs() < 0.01, "{spread}");
    assert_eq!(
        whole
            .tokenizer
            .prompt("USER: <image>\nwhat?")
            .unwrap()
            .iter()
            .filter(|id| **id == whole.tokenizer.image)
            .count(),
        4
    );
}

#[test]
fn configs_that_select_blocks_find_them() {
    let made = stand_in("llama-13b", Size::TinyBlocks);
    assert_eq!(made.described(None).unwrap().network.language().geometry.blocks, 40);
    assert_eq!(made.name(), "llama-13b-tiny-blocks");
}

#[test]
fn own_label_words_make_another_folder() {
    let published = Published::of_key("llama-7b").unwrap();
    let name = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        LanguageFolder::new(published, Size::Tiny, &words).unwrap().name()
    };
    assert_eq!(name(&["A", "True"]), "llama-7b-tiny");
    assert!(name(&["zebra"]) != name(&["giraffe"]) && name(&["zebra"]).starts_with("llama-7b-"));
}
