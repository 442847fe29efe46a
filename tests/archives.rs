//! An archive is recognised before anything in it may run, and read as it was written or not at all.

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use bella::model::archive::Archive;
use common::{Place, assert_has, bella, error_line, fixture, repository, text};
use tch::{CModule, Tensor};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

fn refused(path: &Path) -> String {
    error_line(bella(&["inspect", &text(path)]), 1)
}

#[test]
fn names_shapes_and_values_are_those_that_libtorch_finds() {
    let names = std::fs::read_dir(fixture("")).unwrap().map(|entry| entry.unwrap().path());
    let mut archives: Vec<PathBuf> = names.filter(|path| path.extension().is_some_and(|e| e == "pt")).collect();
    archives.push(repository("assets/vit-digits.pt"));
    let mut compared = 0;
    for path in archives {
        if ["truncated", "not_torchscript", "hostile"].contains(&path.file_stem().unwrap().to_str().unwrap()) {
            continue;
        }
        let archive = Archive::open(&path).unwrap();
        let ours: BTreeMap<String, Tensor> = archive.parameters().unwrap().into_iter().collect();
        let theirs = CModule::load(&path).unwrap().named_parameters().unwrap();
        assert_eq!(ours.len(), theirs.len(), "{}", path.display());
        assert_eq!(archive.listed().len(), ours.len());
        for (name, tensor) in theirs {
            let same = ours[&name].kind() == tensor.kind() && ours[&name].equal(&tensor);
            assert!(same, "{}: {name} is another tensor", path.display());
            compared += 1;
        }
    }
    assert!(compared > 500, "only {compared} tensors");
}

// tests/fixtures/hostile.pt writes `hostile-was-here` when libtorch loads it; scripts/make_hostile_archive.py made it.
#[test]
fn an_archive_that_writes_files_when_it_is_loaded_is_refused_before() {
    let (place, hostile) = (Place::new(), fixture("hostile.pt"));
    let inspect = |arguments: &[&str]| {
        let mut command = bella(arguments);
        command.arg(&hostile).current_dir(place.path(""));
        error_line(command, 1)
    };
    let line = inspect(&["inspect"]);
    assert_has(
        &line,
        &["hostile.pt: code/__torch__.py: it names `torch.save`", "nothing of the archive was run", "--trust"],
    );
    assert_has(&inspect(&["inspect", "--trust"]), &["hostile.pt", "lists no parameters"]);
    assert!(!place.path("hostile-was-here").exists());
    // That it would have.
    std::env::set_current_dir(place.path("")).unwrap();
    CModule::load(&hostile).unwrap();
    assert!(place.path("hostile-was-here").exists());
}

/// An archive of these entries, packed.
fn packed(place: &Place, entries: &[(&str, &[u8])]) -> PathBuf {
    let path = place.path("made.pt");
    let mut zip = ZipWriter::new(std::fs::File::create(&path).unwrap());
    for (name, bytes) in entries {
        let options = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
    path
}

#[test]
fn declared_sizes_are_held_against_the_file() {
    let place = Place::new();
    let path = packed(&place, &[("a/code/__torch__.py", &vec![b' '; 20 << 20])]);
    assert!(path.metadata().unwrap().len() < 100_000);
    assert_has(&refused(&path), &["made.pt", "declare 20971520 bytes in a file of ", "it is not loaded"]);
}

#[test]
fn readers_of_zip_files_cannot_disagree_about_an_archive() {
    let place = Place::new();
    let path =
        packed(&place, &[("a/code/__torch__.py", b""), ("a/Data.pkl", b"\x80\x02)."), ("a/data.pkl", b"\x80\x02).")]);
    assert_has(&refused(&path), &["made.pt: two entries are named a/data.pkl"]);
    let whole = std::fs::read(fixture("timm_traced.pt")).unwrap();
    for bytes in [[b"PTMF", &whole[..]].concat(), [&whole[..], b"PK"].concat()] {
        let path = place.write("longer.pt", &bytes);
        assert_has(&refused(&path), &["longer.pt: something stands before"]);
    }
}

#[test]
fn pickles_may_name_only_what_tensors_are_made_of() {
    let place = Place::new();
    for (pickle, name) in [
        (&b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R."[..], "`os.system`"),
        (b"\x80\x02c__torch__.torch.classes.c10d\nStore\n)\x81.", "`__torch__.torch.classes.c10d.Store`"),
    ] {
        let path = packed(&place, &[("a/code/__torch__.py", b""), ("a/data.pkl", pickle)]);
        assert_has(&refused(&path), &["made.pt: data.pkl: ", &format!("it names {name}")]);
    }
}

/// The pickle of a tensor of f32: `[length]` from `offset` on in a storage of `count` elements, the entry 0.
fn constant(count: u8, offset: u8, length: u8) -> Vec<u8> {
    let mut pickle =
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\n".to_vec();
    pickle.extend(b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK");
    pickle.extend([count, b't', b'Q', b'K', offset, b'(', b'K', length, b't']);
    pickle.extend(b"(K\x01t\x89ccollections\nOrderedDict\n)RtR.");
    pickle
}

/// libtorch reads whatever lies behind a storage or its entry.
#[test]
fn tensors_lie_within_their_storages_and_these_within_their_entries() {
    let place = Place::new();
    let archive = |constant: &[u8]| {
        let code: &[(&str, &[u8])] = &[("a/code/__torch__.py", b""), ("a/data.pkl", b"\x80\x02).")];
        let constants: &[(&str, &[u8])] = &[("a/constants.pkl", constant), ("a/constants/0", &[0; 16])];
        packed(&place, &[code, constants].concat())
    };
    Archive::open(&archive(&constant(4, 1, 3))).unwrap();
    for (count, offset, length, why) in [
        (5, 0, 3, "constants/0 has 16 bytes, too few for 5 elements"),
        (4, 0, 5, "its storage has 4 elements, but 5 are needed"),
        (4, 2, 3, "its storage has 4 elements, but 5 are needed"),
    ] {
        assert_has(&refused(&archive(&constant(count, offset, length))), &["made.pt: constants.pkl: ", why]);
    }
}

#[test]
fn a_flipped_bit_of_a_weight_is_noticed() {
    let place = Place::new();
    let mut bytes = std::fs::read(fixture("timm_traced.pt")).unwrap();
    let weight = Archive::open(&fixture("timm_traced.pt")).unwrap().parameters().unwrap().remove(0).1;
    let mut wanted = vec![0; weight.numel() * 4];
    weight.contiguous().view(-1).copy_data_u8(&mut wanted, weight.numel());
    let at = bytes.windows(wanted.len()).position(|window| window == wanted).unwrap();
    bytes[at + 2] ^= 1;
    let path = place.write("flipped.pt", &bytes);
    assert_has(&refused(&path), &["flipped.pt: damaged entry ", "fetch or export the archive again"]);
}
