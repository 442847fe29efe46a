//! An archive is recognised before anything in it may run, and read as it was written or not at all.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::common::{Place, assert_has, bella, error_line, fixture, messages, repository, text, tiny};
use bella::model::archive::Archive;
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

/// The error line of a command on an archive of tests/fixtures/hostile, in a folder of its own, where no file may be written.
fn hostile(place: &Place, name: &str, trial_seconds: &str) -> String {
    let folder = place.path("empty");
    std::fs::create_dir_all(&folder).unwrap();
    let archive = fixture("hostile").join(format!("{name}.pt"));
    let mut command = bella(&["inspect", &text(&archive), "--module", "--image-size", "8"]);
    command.current_dir(&folder).env("BELLA_CACHE", place.path("cache")).env("BELLA_TRIAL_SECONDS", trial_seconds);
    let line = error_line(command, 1);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "{name} wrote a file");
    assert_has(&line, &[&format!("{name}.pt: ")]);
    line
}

// scripts/make_hostile_archive.py wrote these containers byte by byte. Two readers find different entries in each.
#[test]
fn containers_that_can_be_read_in_two_ways_are_refused() {
    let place = Place::new();
    for (name, why) in [
        ("capital-name", "a/code/__torch__.PY: torch.jit.save writes no such entry among the code"),
        ("capital-folder", "a/CODE/__torch__.py: torch.jit.save writes no such entry among the code"),
        ("other-ending", "a/code/__torch__.pyc: torch.jit.save writes no such entry among the code"),
        ("twice", "two entries are named a/code/__torch__.py"),
        ("twice-but-for-case", "two entries are named a/code/__torch__.py"),
        ("path-field", "its entry a/code/__torch__.py: it has the extra field 0x7075, which nothing calls for"),
        ("two-directories", "its zip64 locator names an end record at another place than before it"),
        ("other-folder", "its entry A/code/__torch__.py lies outside the folder of the others"),
        ("local-name", "its entry a/extra/notes: its local header contradicts the directory"),
        ("encrypted", "its entry a/extra/notes: it is encrypted"),
        ("odd-compression", "its entry a/extra/notes: it is compressed in a way that torch does not know (93)"),
        ("unknown-field", "its entry a/extra/notes: it has the extra field 0x7875, which nothing calls for"),
        ("gap", "something stands behind it that is no entry"),
        ("several-disks", "it is one of several disks"),
    ] {
        assert_has(&hostile(&place, name, "60"), &[why]);
    }
}

#[test]
fn libtorch_alone_would_write_the_files() {
    let place = Place::new();
    std::env::set_current_dir(place.path("")).unwrap();
    for name in ["capital-name", "capital-folder", "twice", "path-field", "two-directories"] {
        CModule::load(fixture("hostile").join(format!("{name}.pt"))).unwrap();
        std::fs::remove_file("hostile-was-here").unwrap_or_else(|_| panic!("{name} is harmless"));
    }
}

#[test]
fn archives_that_would_end_the_process_are_refused_in_a_line() {
    let place = Place::new();
    for (name, why) in [
        ("remainder", "its own forward ended by signal 8 (SIGFPE) when it was tried in a process of its own"),
        ("smallest-by-minus-one", "its own forward ended by signal 8 (SIGFPE)"),
        ("no-heads", "its own forward ended by signal 8 (SIGFPE)"),
        ("tiny-scale", "its own forward ended by signal 11 (SIGSEGV)"),
        ("calls", "its own forward ended by signal 6 (SIGABRT) after its stack was full"),
        ("parentheses", "code/__torch__.py: its code has expressions more than 256 levels deep"),
        ("lists", "code/__torch__.py: its code has expressions more than 256 levels deep"),
        ("types", "code/__torch__.py: its code has expressions more than 256 levels deep"),
        ("sums", "code/__torch__.py: its code has expressions more than 256 levels deep"),
        ("tuples", "constants.pkl: its values lie in themselves, or more than 256 levels deep"),
        ("cycle", "constants.pkl: its values lie in themselves, or more than 256 levels deep"),
    ] {
        assert_has(&hostile(&place, name, "60"), &[why]);
    }
    assert_has(
        &hostile(&place, "for-ever", "2"),
        &["its own forward did not return within 2 s (set BELLA_TRIAL_SECONDS"],
    );
    assert!(!place.path("cache").exists(), "a trial that failed was remembered");
}

/// A small experiment whose network is the module `archive`.
fn of_module(place: &Place, archive: &Path) {
    let config = tiny().replace("path = ", "kind = \"module\"\nimage_size = 8\npath = ");
    let config = config.replace(&text(&repository("assets/vit-digits.pt")), &text(archive));
    let config = config
        .replace("[head.checkpoint]", "[head.linear]")
        .replace("[subspace.low-rank]\nrank = 2", "[subspace.full]");
    place.write("tiny.toml", config.as_bytes());
}

#[test]
fn every_command_tries_archives_within_the_memory_that_it_may_take() {
    let place = Place::new();
    for (name, why) in [
        ("huge", "its own forward asked for more than 1.0 GiB of memory"),
        ("doubling", "its own forward asked for more than 1.0 GiB of memory"),
    ] {
        of_module(&place, &fixture("hostile").join(format!("{name}.pt")));
        let mut check = bella(&["check", &text(&place.path("tiny.toml")), "--deep", "--memory", "1"]);
        check.env("BELLA_CACHE", place.path("cache"));
        assert_has(&error_line(check, 1), &[&format!("{name}.pt"), why]);
    }
    of_module(&place, &fixture("hostile/remainder.pt"));
    let mut train = place.train(&[]);
    train.env("BELLA_CACHE", place.path("cache"));
    assert_has(&error_line(train, 1), &["remainder.pt: its own forward ended by signal 8 (SIGFPE)"]);
}

#[test]
fn an_archive_is_tried_once() {
    let place = Place::new();
    let tried = |arguments: &[&str]| {
        let mut command = bella(&["inspect", &text(&fixture("timm_traced.pt")), "-v"]);
        let output = command.args(arguments).env("BELLA_CACHE", place.path("cache")).output().unwrap();
        assert!(output.status.success(), "{}", messages(&output));
        messages(&output).matches("the trial of an archive ended with exit status: 0").count()
    };
    assert_eq!([tried(&["--trust"]), tried(&[]), tried(&[]), tried(&["--trust"])], [0, 1, 0, 0]);
    let records = std::fs::read_dir(place.path("cache/archives")).unwrap();
    let records: Vec<String> = records.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    assert_eq!(records, ["forward Float[3, 32, 32]\n"]);
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
