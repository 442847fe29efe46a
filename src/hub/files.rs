//! The files of a repository that make a checkpoint or an adapter.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::name::{is_safe, is_safe_path};
use crate::base::files::read_json;

/// The config of transformers and timm.
pub const CONFIG: &str = "config.json";

/// The config of an adapter of PEFT.
pub const ADAPTER: &str = "adapter_config.json";

/// The config of open_clip, which says all that bella reads of a checkpoint.
pub const OPEN_CLIP: &str = "open_clip_config.json";

/// The file in which transformers stores the preparation of images.
pub const PREPARATION: &str = "preprocessor_config.json";

/// The file in which transformers 5 stores the processor of a network of images and texts, with that of its images, which it then reads
/// instead of [`PREPARATION`].
pub const PROCESSOR: &str = "processor_config.json";

/// The files that describe a tokenizer: the tokenizer, and the settings with which its package wraps it.
pub const TOKENIZER: [&str; 2] = ["tokenizer.json", "tokenizer_config.json"];

/// The files in which earlier versions of transformers named special tokens, and those that were added to a tokenizer.
pub const ADDED_TOKENS: [&str; 2] = ["special_tokens_map.json", "added_tokens.json"];

/// The file in which transformers stores how a network writes texts, with the tokens that end them.
pub const WRITING: &str = "generation_config.json";

/// The file in which sentence-transformers lists its modules, those of which the first that is there limits the length of texts, as its
/// versions before 0.4 named them, too, and the one of prompts.
pub const MODULES: &str = "modules.json";
pub const SENTENCES: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];
pub const PROMPTS: &str = "config_sentence_transformers.json";

/// The file of a head beside a model or an adapter that has no place for it, which `head.zero-shot.weights` reads, too.
pub const HEAD_FILE: &str = "head.safetensors";

/// The small files that bella or the packages of Python read beside weights.
pub const BESIDE: [&str; 28] = [
    CONFIG,
    OPEN_CLIP,
    ADAPTER,
    HEAD_FILE,
    PREPARATION,
    PROCESSOR,
    WRITING,
    TOKENIZER[0],
    TOKENIZER[1],
    ADDED_TOKENS[0],
    ADDED_TOKENS[1],
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
    "chat_template.jinja",
    "chat_template.json",
    MODULES,
    SENTENCES[0],
    SENTENCES[1],
    SENTENCES[2],
    SENTENCES[3],
    SENTENCES[4],
    SENTENCES[5],
    SENTENCES[6],
    PROMPTS,
];

/// The names of single files of weights that are no pickles, in the order of the search.
const PLAIN: [&str; 3] = ["model.safetensors", "open_clip_model.safetensors", "open_clip_pytorch_model.safetensors"];

/// The names of single files of weights that are pickles, in the order of the search.
const PICKLES: [&str; 5] = [
    "pytorch_model.bin",
    "open_clip_pytorch_model.bin",
    "pytorch_model.pth",
    "model.pth",
    "open_clip_pytorch_model.pth",
];

const PLAIN_INDEX: &str = "model.safetensors.index.json";
const PICKLE_INDEX: &str = "pytorch_model.bin.index.json";

/// The weights of an adapter.
const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";

/// The ending of an index of several files.
pub const INDEX: &str = ".index.json";

/// Returns the file that leads to the weights of a network among those that `has` knows: the weights, or the index of several
/// files. A pickle is taken only if there is nothing else.
pub fn lead(has: impl Fn(&str) -> bool) -> Option<&'static str> {
    let first = |names: &[&'static str]| names.iter().copied().find(|name| has(name));
    first(&PLAIN).or_else(|| first(&[PLAIN_INDEX])).or_else(|| first(&PICKLES)).or_else(|| first(&[PICKLE_INDEX]))
}

/// Returns the file that leads to the weights of a network or, where there is none, of an adapter.
pub fn lead_of_any(has: impl Fn(&str) -> bool) -> Option<&'static str> {
    if has(ADAPTER) && !has(CONFIG) {
        return Some(ADAPTER_WEIGHTS).filter(|name| has(name));
    }
    lead(has)
}

/// Returns the files that an index names, which lie beside it.
///
/// # Errors
/// Fails if it is no index, or if it names a file elsewhere.
pub fn shards(index: &Path) -> Result<Vec<String>> {
    let shown = index.display();
    let json = read_json(index)?;
    let map =
        json.get("weight_map").and_then(Value::as_object).with_context(|| format!("{shown}: has no `weight_map`"))?;
    let names: BTreeSet<&str> = map.values().filter_map(Value::as_str).collect();
    let elsewhere = names.iter().find(|name| !is_safe(name));
    ensure!(elsewhere.is_none(), "{shown}: names {:?}, which is no file beside it", elsewhere.unwrap_or(&""));
    ensure!(!names.is_empty(), "{shown}: its `weight_map` names no file");
    Ok(names.into_iter().map(str::to_string).collect())
}

/// Returns whether a folder has weights, all of them.
pub fn are_complete(folder: &Path) -> bool {
    let Some(lead) = lead_of_any(|name| folder.join(name).is_file()) else { return false };
    let index = folder.join(lead);
    !lead.ends_with(INDEX) || shards(&index).is_ok_and(|all| all.iter().all(|name| folder.join(name).is_file()))
}

/// Returns the small files that decide what the weights in a folder are, how samples are prepared for them and where written texts end;
/// `None` where there is no config yet.
pub fn needed(folder: &Path) -> Option<Vec<String>> {
    // A config of transformers beside it may be the one of the weights, and SigLIP's texts need the tokenizer.
    if folder.join(OPEN_CLIP).is_file() {
        let names = [CONFIG, PREPARATION].into_iter().chain(TOKENIZER);
        return Some(names.map(str::to_string).collect());
    }
    if folder.join(ADAPTER).is_file() && !folder.join(CONFIG).is_file() {
        return Some(vec![HEAD_FILE.to_string()]);
    }
    let config = read_json(&folder.join(CONFIG)).ok()?;
    let has = |key: &str| config.get(key).is_some();
    // timm's config says how images are prepared.
    if has("pretrained_cfg") || has("architecture") {
        return Some(Vec::new());
    }
    let sees = has("vision_config") || has("image_size") || has("patch_size");
    let reads = has("text_config") || has("vocab_size") || !sees;
    let of_images = sees.then_some(PREPARATION).into_iter().chain((sees && reads).then_some(PROCESSOR));
    let of_texts = TOKENIZER.into_iter().chain([WRITING]).filter(|_| reads);
    let names = of_images.chain(of_texts).chain((!sees).then_some(MODULES)).map(str::to_string);
    Some(names.chain(of_sentences(folder)).collect())
}

/// Returns the files that decide with the list of modules in a folder how sentence-transformers reads texts; none where it has no list.
fn of_sentences(folder: &Path) -> Vec<String> {
    if !folder.join(MODULES).is_file() {
        return Vec::new();
    }
    // Those behind the one that counts are not read.
    let limits =
        SENTENCES.iter().position(|name| folder.join(name).is_file()).map_or(&SENTENCES[..], |at| &SENTENCES[..=at]);
    limits.iter().chain([&PROMPTS]).map(|name| name.to_string()).chain(module_configs(folder)).collect()
}

/// Returns the configs in the folders that the list of modules in a folder names.
pub fn module_configs(folder: &Path) -> Vec<String> {
    let list = read_json(&folder.join(MODULES)).unwrap_or_default();
    let paths = list.as_array().into_iter().flatten().filter_map(|module| module.get("path")?.as_str());
    paths.filter(|path| is_safe_path(path)).map(|path| format!("{path}/config.json")).collect()
}

/// The names in a repository's list.
///
/// # Errors
/// Fails if one of them leads out of the repository.
pub fn listed(list: &Value, name: &str) -> Result<Vec<String>> {
    let siblings = list.get("siblings").and_then(Value::as_array);
    let siblings = siblings.with_context(|| format!("{name}: the Hub's list has no files (`siblings`)"))?;
    let names = siblings.iter().filter_map(|one| one.get("rfilename").and_then(Value::as_str));
    let names: Vec<String> = names.map(str::to_string).collect();
    let leads_out = |file: &&String| {
        file.starts_with('/')
            || file.contains(['\\', '\0'])
            || file.split('/').any(|part| ["", ".", ".."].contains(&part))
    };
    if let Some(file) = names.iter().find(leads_out) {
        bail!("{name}: lists the file {file:?}, which is none of a repository: refused; use another repository");
    }
    Ok(names)
}

/// Returns the sentence about a repository without weights of a known name.
pub fn no_weights(name: &str, list: &[String]) -> String {
    let is_weights = |file: &&String| {
        [".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".msgpack", ".h5"]
            .iter()
            .any(|end| file.ends_with(end))
    };
    let others: Vec<&str> = list.iter().filter(is_weights).take(3).map(String::as_str).collect();
    let there = if others.is_empty() { "no weights".to_string() } else { format!("only {}", others.join(", ")) };
    format!(
        "{name}: has {there}, and bella reads {}, their index, or {}: use another repository, or convert it in Python \
         (save_pretrained) and name the folder",
        PLAIN[0], PICKLES[0]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pickle_is_taken_only_if_there_is_nothing_else() {
        let of = |names: &[&str]| lead_of_any(|name| names.contains(&name));
        assert_eq!(of(&["pytorch_model.bin", "model.safetensors.index.json"]), Some("model.safetensors.index.json"));
        assert_eq!(
            of(&["open_clip_pytorch_model.bin", "open_clip_model.safetensors"]),
            Some("open_clip_model.safetensors")
        );
        assert_eq!(of(&["pytorch_model.bin.index.json"]), Some("pytorch_model.bin.index.json"));
        assert_eq!(of(&["adapter_config.json", "adapter_model.safetensors"]), Some("adapter_model.safetensors"));
        assert_eq!(of(&["config.json", "flax_model.msgpack"]), None);
    }

    #[test]
    fn a_list_that_leads_out_of_its_repository_is_refused() {
        let list =
            |file: &str| serde_json::json!({ "siblings": [{ "rfilename": "config.json" }, { "rfilename": file }] });
        assert_eq!(listed(&list("onnx/model.onnx"), "x").unwrap().len(), 2);
        for file in ["../config.json", "/etc/passwd", "a/../../b", "a//b", "a\\..\\b", ""] {
            assert!(listed(&list(file), "x").is_err(), "{file}");
        }
    }

    #[test]
    fn networks_need_what_prepares_their_samples_and_ends_their_texts() {
        let folder = tempfile::tempdir().unwrap();
        let of = |config: &str| {
            std::fs::write(folder.path().join("config.json"), config).unwrap();
            needed(folder.path()).unwrap()
        };
        assert_eq!(of(r#"{"image_size": 224}"#), [PREPARATION]);
        assert_eq!(of(r#"{"vocab_size": 9}"#), [TOKENIZER[0], TOKENIZER[1], WRITING, MODULES]);
        let both = of(r#"{"vision_config": {}, "text_config": {}}"#);
        assert_eq!(both, [PREPARATION, PROCESSOR, TOKENIZER[0], TOKENIZER[1], WRITING]);
        let list = r#"[{"path": ""}, {"path": "1_Pool"}, {"path": "../x"}, {}]"#;
        std::fs::write(folder.path().join(MODULES), list).unwrap();
        let of_sentences = || of(r#"{"vocab_size": 9}"#)[4..].to_vec();
        assert_eq!(of_sentences(), [&SENTENCES[..], &[PROMPTS, "1_Pool/config.json"]].concat());
        std::fs::write(folder.path().join(SENTENCES[1]), "{}").unwrap();
        assert_eq!(of_sentences(), [SENTENCES[0], SENTENCES[1], PROMPTS, "1_Pool/config.json"]);
    }

    #[test]
    fn the_config_of_open_clip_alone_does_not_tell_what_prepares_texts() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(OPEN_CLIP), "{}").unwrap();
        assert_eq!(needed(folder.path()).unwrap(), [CONFIG, PREPARATION, TOKENIZER[0], TOKENIZER[1]]);
    }

    #[test]
    fn an_index_names_files_beside_it_alone() {
        let folder = tempfile::tempdir().unwrap();
        let index = folder.path().join("model.safetensors.index.json");
        let write = |shard: &str| std::fs::write(&index, format!(r#"{{"weight_map": {{"a": "{shard}"}}}}"#)).unwrap();
        write("model-1.safetensors");
        assert_eq!(shards(&index).unwrap(), ["model-1.safetensors"]);
        assert!(!are_complete(folder.path()));
        for elsewhere in ["../x", "/x", "a/b", ".hidden", ""] {
            write(elsewhere);
            assert!(shards(&index).is_err(), "{elsewhere}");
        }
    }
}
