//! Servers that fail, stall, cut what they send, or send something else.

use super::*;

#[test]
fn what_passes_is_tried_again_and_a_pause_that_is_asked_for_is_kept() {
    let case = Case::new();
    case.hub.fail("GET", "/api/models/", 2, Fault::Status(503, ""));
    case.hub.fail("HEAD", "model.safetensors", 1, Fault::Status(429, "retry-after: 1"));
    case.hub.fail("GET", "/blob/", 3, Fault::Status(500, ""));
    let began = Instant::now();
    case.whole();
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[test]
fn a_download_that_was_cut_goes_on_where_it_ended() {
    let case = Case::new();
    // Within one process, however often, as long as something comes.
    for _ in 0..8 {
        case.hub.fail("GET", "/blob/", 1, Fault::Cut(400_000));
    }
    case.hub.seen();
    // Each cut brings less than counts as progress, so the tries end.
    case.refused(&["the transfer", "5 times", "what has come is kept"]);
    let there = case.part().unwrap();
    assert!((1_600_000..=2_000_000).contains(&there), "{there}");
    case.hub.heal();
    case.hub.seen();
    case.whole();
    let ranges: Vec<_> = case.hub.seen().iter().filter(|r| r.path.starts_with("/blob/")).map(|r| r.from).collect();
    assert_eq!(ranges, [Some(there as usize)]);
    assert_eq!(case.part(), None);
}

#[test]
fn cuts_between_which_much_comes_do_not_count() {
    let case = Case::of(&[
        ("config.json", CONFIG),
        ("preprocessor_config.json", PREPARATION),
        ("model.safetensors", &weights().repeat(4)),
    ]);
    case.hub.fail("GET", "/blob/", 7, Fault::Cut(1 << 20));
    let folder = case.get("hf://org/tiny").unwrap();
    assert_eq!(std::fs::read(folder.join("model.safetensors")).unwrap(), weights().repeat(4));
}

#[test]
fn a_server_that_ignores_ranges_starts_again() {
    let case = Case::new();
    case.hub.fail("GET", "/blob/", 1, Fault::Cut(2_000_000));
    case.hub.fail("GET", "/blob/", 9, Fault::NoRange);
    case.whole();
    let case = Case::new();
    case.hub.fail("GET", "/blob/", 1, Fault::Cut(2_000_000));
    case.hub.fail("GET", "/blob/", 1, Fault::Header("content-range", "bytes 5-9/3145728".into()));
    case.whole();
}

#[test]
fn a_stall_ends_and_is_continued() {
    let case = Case::new();
    case.hub.fail("GET", "/blob/", 1, Fault::Stall(1_000_000));
    case.whole();
    let case = Case::new();
    case.hub.fail("GET", "/api/models/", 9, Fault::Stall(0));
    case.refused(&["the answer broke off", "5 times"]);
}

#[test]
fn content_that_is_not_the_published_one_is_removed() {
    let case = Case::new();
    case.hub.fail("GET", "/blob/", 1, Fault::Flipped);
    case.refused(&["what came has the hash", "was removed", "HF_ENDPOINT"]);
    assert_eq!(case.part(), None);
    case.hub.fail("GET", "/blob/", 1, Fault::Longer);
    case.refused(&["has 3145737 bytes, not the 3145728 that were promised"]);
    // The start of another program's file is found out at the end, and the whole file comes again.
    case.hub.fail("GET", "/blob/", 1, Fault::Cut(2_000_000));
    case.hub.fail("GET", "/blob/", 9, Fault::Status(500, ""));
    case.refused(&["answers 500"]);
    let blobs = std::fs::read_dir(case.path("models--org--tiny/blobs")).unwrap().flatten();
    let part =
        blobs.map(|blob| blob.path()).find(|path| path.extension().is_some_and(|end| end == "incomplete")).unwrap();
    std::fs::write(&part, vec![7; 1_500_000]).unwrap();
    case.hub.heal();
    case.whole();
    let small = Case::new();
    small.hub.fail("GET", "/cached/config.json", 1, Fault::Flipped);
    small.refused(&["what came has the hash"]);
    small.whole();
}

#[test]
fn a_server_must_tell_size_and_hash() {
    for (name, value, wanted) in [
        ("x-linked-etag", "\"abc\"", "tells no hash"),
        ("x-linked-etag", "../../../../evil", "tells no hash"),
        ("x-linked-size", "many", "tells no size"),
        ("x-linked-size", "9000000000000000000", "are still to come, and"),
        ("x-linked-size", "3145720", "has 3145728 bytes, not the 3145720 that were promised"),
        ("x-linked-size", "3145729", "has 3145728 bytes, not the 3145729 that were promised"),
    ] {
        let case = Case::new();
        case.hub.fail("HEAD", "model.safetensors", 9, Fault::Header(name, value.into()));
        case.refused(&[wanted]);
    }
    let case = Case::new();
    case.hub.fail("HEAD", "/cached/config.json", 9, Fault::Header("content-length", "900000000".into()));
    case.refused(&["config.json has 900.0 MB", "refused"]);
}

#[test]
fn packed_content_is_refused_at_once() {
    for (path, packing) in [("/api/models/", "gzip"), ("/cached/config.json", "x-gzip"), ("/blob/", "identity, GZIP")] {
        let case = Case::new();
        case.hub.fail("GET", path, 9, Fault::Header("content-encoding", packing.into()));
        case.refused(&[&format!("sends packed content ({packing})"), "HF_ENDPOINT"]);
    }
}

#[test]
fn a_mirror_may_keep_large_files_itself() {
    let case = Case::new();
    case.hub.fail("HEAD", "model.safetensors", 9, Fault::Header("location", "/direct/model.safetensors".into()));
    case.whole();
}

#[test]
fn a_list_and_an_index_lead_nowhere_else() {
    for (body, wanted) in [
        (
            r#"{"sha": "0123456789abcdef0123456789abcdef01234567", "siblings": [{"rfilename": "../../x"}]}"#,
            "lists the file",
        ),
        (r#"{"sha": "../../x", "siblings": []}"#, "names no commit"),
        (r#"{"siblings": []}"#, "names no commit"),
        ("<html>", "answers with no JSON"),
    ] {
        let case = Case::new();
        case.hub.fail("GET", "/api/models/", 9, Fault::Body(body.into()));
        case.refused(&[wanted]);
        assert!(!case.folder.path().join("x").exists());
    }
    for (index, wanted) in [
        (r#"{"weight_map": {"a": "../../../x.safetensors"}}"#, "is no file beside it"),
        (r#"{"weight_map": {"a": "model-00001.safetensors"}}"#, "which the repository does not have"),
    ] {
        let case = Case::of(&[("config.json", CONFIG), ("model.safetensors.index.json", index.as_bytes())]);
        case.refused(&[wanted]);
    }
    let index = br#"{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}"#;
    let files: [(&str, &[u8]); 4] = [
        ("config.json", CONFIG),
        ("model.safetensors.index.json", index),
        ("1.safetensors", b"1"),
        ("2.safetensors", b"2"),
    ];
    let case = Case::of(&files);
    let folder = case.get("hf://org/tiny").unwrap();
    assert_eq!(std::fs::read(folder.join("2.safetensors")).unwrap(), b"2");
}
