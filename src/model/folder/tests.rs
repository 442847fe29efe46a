use std::fs;

use serde_json::{Value, json};

use super::*;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/folders").join(name)
}

/// The repositories of CLIP have the files of open_clip and of transformers.
#[test]
fn a_config_is_that_of_the_weights_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let (config, of_open_clip) = ("config.json", "open_clip_config.json");
    let copy = |from: &str, name: &str, to: &str| fs::copy(fixture(from).join(name), folder.path().join(to)).unwrap();
    copy("hf-clip-both", config, config);
    copy("open-clip", of_open_clip, of_open_clip);
    let names = || -> Vec<String> {
        let name = |path: PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        content(folder.path()).unwrap().into_iter().map(name).filter(|name| !name.contains("token")).collect()
    };
    copy("open-clip", "model.safetensors", "open_clip_model.safetensors");
    assert_eq!(names(), [of_open_clip, "open_clip_model.safetensors"]);
    fs::write(folder.path().join("pytorch_model.bin"), "").unwrap();
    assert_eq!(names(), [of_open_clip, "open_clip_model.safetensors"]);
    assert!(identify(folder.path(), &Fixed::default()).is_ok());
    copy("hf-clip-both", "model.safetensors", "model.safetensors");
    assert_eq!(names(), [config, "model.safetensors"]);
    assert!(identify(folder.path(), &Fixed::default()).is_ok());
    let file = folder.path().join("open_clip_model.safetensors");
    assert_eq!(config_file(&file), Some(folder.path().join(of_open_clip)));
    assert!(identify(&file, &Fixed::default()).is_ok());
}

/// The `from_pretrained` of transformers applies such an adapter to the network.
#[test]
fn an_adapter_beside_a_whole_network_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        fs::copy(fixture("hf-vit").join(name), folder.path().join(name)).unwrap();
    }
    assert!(Place::of(folder.path()).is_ok());
    fs::write(folder.path().join("adapter_config.json"), "{}").unwrap();
    let error = Place::of(folder.path()).err().unwrap().to_string();
    assert!(
        error.ends_with(
            "adapter_config.json lies beside the weights of a whole network, to which transformers would apply that adapter: move it with \
             adapter_model.safetensors to a folder of its own, which `bella import` reads, or take it away"
        ),
        "{error}"
    );
}

/// The package safetensors refuses such files. Here the tensors of a file are read one by one.
#[test]
fn tensors_fill_a_file_of_safetensors_without_gaps_and_overlaps() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let read = |offsets: [[u64; 2]; 2], bytes: usize| {
        let entry = |place: [u64; 2]| json!({ "dtype": "F32", "shape": [2], "data_offsets": place });
        let header: Value = json!({ "a": entry(offsets[0]), "b": entry(offsets[1]) });
        let header = header.to_string();
        let whole = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; bytes]].concat();
        fs::write(&path, whole).unwrap();
        let found = Place::of(folder.path()).and_then(|place| place.unread(false));
        found.map(|tensors| tensors.len()).map_err(|why| format!("{why:#}"))
    };
    assert_eq!(read([[8, 16], [0, 8]], 16), Ok(2));
    for (offsets, bytes, rule) in [
        ([[0, 8], [0, 8]], 8, "its header is wrong: "),
        ([[0, 8], [12, 20]], 20, "its header is wrong: "),
        ([[4, 12], [12, 20]], 20, "its header is wrong: "),
        ([[0, 8], [8, 16]], 17, "1 bytes lie behind its tensors, which belong to none"),
        ([[0, 8], [8, 16]], 15, "it is cut off: its tensors have 16 bytes, and 15 lie behind its header"),
    ] {
        let error = read(offsets, bytes).unwrap_err();
        assert!(
            error.contains("model.safetensors: not a readable safetensors file: ") && error.contains(rule),
            "{error}"
        );
    }
}
