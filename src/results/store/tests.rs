//! Tests of growing columns, replaced rows, damaged files and concurrent writers.

use std::fs;

use super::*;
use std::path::PathBuf;
use std::process::Command;
use std::thread;

fn row(cells: &[(&str, &str)]) -> Row {
    let mut row = Row::new();
    cells.iter().for_each(|(column, value)| row.push(*column, *value));
    row
}

fn file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cifar10.csv");
    (folder, path)
}

/// The rows of a file without their hashes, as CSV.
fn shown(path: &Path) -> String {
    let table = read(path).unwrap();
    [&table.columns].into_iter().chain(&table.rows).map(|cells| cells.join(",") + "\n").collect()
}

/// Adds a row, unless an identical one exists.
fn append_row(path: &Path, row: &Row) -> Result<()> {
    let keys: Vec<&str> = row.cells().iter().map(|(column, _)| column.as_str()).collect();
    upsert_row(path, row, &keys)
}

#[test]
fn later_columns_leave_older_cells_empty() {
    let (_folder, path) = file();
    append_row(&path, &row(&[("run", "a, \"b\"\nc"), ("ece", "0.1")])).unwrap();
    append_row(&path, &row(&[("mi", "0.5"), ("run", "d")])).unwrap();
    let table = read(&path).unwrap();
    assert_eq!(table.columns, ["run", "ece", "mi"]);
    assert_eq!(table.rows, [["a, \"b\"\nc", "0.1", ""], ["d", "", "0.5"]]);
    assert_eq!((table.get(1, "mi"), table.get(1, "none"), table.get(2, "mi")), (Some("0.5"), None, None));
}

#[test]
fn equal_keys_replace_the_whole_row_in_place() {
    let (_folder, path) = file();
    let keys = ["run", "set"];
    for cells in [[("run", "a"), ("set", "x"), ("mi", "1")], [("run", "a"), ("set", "y"), ("mi", "2")]] {
        upsert_row(&path, &row(&cells), &keys).unwrap();
    }
    upsert_row(&path, &row(&[("run", "a"), ("set", "x"), ("ece", "3")]), &keys).unwrap();
    assert_eq!(shown(&path), "run,set,mi,ece\na,x,,3\na,y,2,\n");
    let error = upsert_row(&path, &row(&[("run", "a")]), &keys).unwrap_err();
    assert!(error.to_string().contains("`set`"), "{error}");
}

const MEASUREMENT: Identity =
    Identity { keys: &["run"], images: &[ImageColumns { fingerprint: "images", count: "samples" }], keeps: None };

#[test]
fn other_images_never_replace_a_row() {
    let (_folder, path) = file();
    let add = |images: &str, samples: &str, nll: &str| {
        let row = row(&[("run", "a"), ("images", images), ("samples", samples), ("nll", nll)]);
        upsert_measurement(&path, &row, &MEASUREMENT).unwrap()
    };
    assert!(add("1f", "797", "1").is_none() && add("2e", "797", "2").is_none() && add("3d", "50", "3").is_none());
    assert_eq!(add("1f", "797", "4").unwrap().get("nll"), Some("1"), "the same images again");
    assert_eq!(shown(&path), "run,images,samples,nll\na,1f,797,4\na,2e,797,2\na,3d,50,3\n");
    let error = upsert_measurement(&path, &row(&[("run", "a"), ("images", "1f")]), &MEASUREMENT).unwrap_err();
    assert!(error.to_string().contains("`samples`"), "{error}");
}

#[test]
fn numbers_read_back_exactly() {
    let (_folder, path) = file();
    let mut row = Row::new();
    row.push_number("nll", Some(1.0 / 3.0));
    row.push_number("mi", None);
    append_row(&path, &row).unwrap();
    let table = read(&path).unwrap();
    assert_eq!(table.get(0, "nll").unwrap().parse::<f64>().unwrap(), 1.0 / 3.0);
    assert_eq!(table.get(0, "mi"), Some(""));
}

#[test]
fn damaged_files_are_named_and_left_alone() {
    let cases: [(&[u8], &str); 4] = [
        (b"run,ece\na,1\nb\n", "line 3: 1 cells where the header has 2"),
        (b"run,ece\na,\"1\nb,2\n", "line 2: a quote"),
        (b"run,ece\na,1\nb,\xff\n", "line 3: not UTF-8"),
        (b"run,run\na,1\n", "`run` appears twice"),
    ];
    for (bytes, expected) in cases {
        let (_folder, path) = file();
        fs::write(&path, bytes).unwrap();
        let error = append_row(&path, &row(&[("run", "c"), ("ece", "1")]));
        let text = format!("{:#}", error.err().unwrap_or_else(|| panic!("{expected}: accepted")));
        assert!(text.contains("cifar10.csv") && text.contains(expected), "{text}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    let (_folder, path) = file();
    assert!(append_row(&path, &row(&[("a", "1"), ("a", "2")])).is_err() && !path.exists());
}

const CHILD_FILE: &str = "BELLA_TEST_STORE_FILE";

fn append_thirty(path: &Path, writer: &str) {
    for count in 0..30 {
        append_row(path, &row(&[("writer", writer), (writer, &count.to_string())])).unwrap();
    }
}

/// Runs in the second process of the test below, which passes the file.
#[test]
#[ignore = "started by threads_and_processes_lose_no_row"]
fn child_process_appends() {
    if let Some(path) = std::env::var_os(CHILD_FILE) {
        append_thirty(Path::new(&path), "process");
    }
}

#[test]
fn threads_and_processes_lose_no_row() {
    let (_folder, path) = file();
    let mut child = Command::new(std::env::current_exe().unwrap());
    let child = child.args(["child_process_appends", "--ignored"]).env(CHILD_FILE, &path);
    let mut child = child.stdout(std::process::Stdio::null()).spawn().unwrap();
    thread::scope(|scope| {
        for writer in ["one", "two", "three"] {
            let path = &path;
            scope.spawn(move || append_thirty(path, writer));
        }
    });
    assert!(child.wait().unwrap().success());
    let table = read(&path).unwrap();
    for writer in ["one", "two", "three", "process"] {
        let place = table.index(writer).unwrap();
        let counts = table.rows.iter().filter(|cells| !cells[place].is_empty()).map(|cells| cells[place].clone());
        assert_eq!(counts.collect::<Vec<_>>(), (0..30).map(|c| c.to_string()).collect::<Vec<_>>());
    }
}

// python3: import xxhash; xxhash.xxh3_64_hexdigest(b"1/1:\x1dmi\x1f0.5\x1erun\x1fa\x1e")
#[test]
fn the_hash_of_a_row_is_that_of_its_filled_cells_by_name() {
    let (_folder, path) = file();
    append_row(&path, &row(&[("run", "a"), ("mi", "0.5"), ("ece", "")])).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "run,mi,ece,row_hash\na,0.5,,1/1:4c588adaf46f97db\n");
}

#[test]
fn every_flipped_bit_of_a_row_is_noticed() {
    let (_folder, path) = file();
    append_row(&path, &row(&[("run", "a, b"), ("ece", "0.125")])).unwrap();
    append_row(&path, &row(&[("run", "c"), ("ece", "1e-3"), ("mi", "2")])).unwrap();
    let whole = fs::read(&path).unwrap();
    for bit in 0..8 * whole.len() {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &flipped).unwrap();
        assert!(read(&path).is_err(), "bit {} of byte {} is not noticed", bit % 8, bit / 8);
    }
}

#[test]
fn rows_that_are_removed_doubled_or_moved_are_noticed() {
    let (_folder, path) = file();
    for run in ["a", "b", "c"] {
        append_row(&path, &row(&[("run", run), ("ece", "0.5")])).unwrap();
    }
    let whole = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let moved = "rows were removed, added or moved";
    let cases: [(&[usize], &str); 7] = [
        (&[0, 1, 2], moved),
        (&[0, 2, 3], moved),
        (&[0, 1, 3], moved),
        (&[0, 1, 2, 3, 3], moved),
        (&[0, 1, 1, 2, 3], moved),
        (&[0, 2, 1, 3], moved),
        (&[0], "all of its rows were removed"),
    ];
    for (kept, expected) in cases {
        fs::write(&path, kept.iter().map(|line| format!("{}\n", lines[*line])).collect::<String>()).unwrap();
        let error = format!("{:#}", read(&path).expect_err(&format!("{kept:?}")));
        assert!(error.contains(expected) && error.contains("cifar10.csv"), "{error}");
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(read_own(&path).unwrap().rows.len(), 3);
    fs::write(&path, "run,ece\na,0.5\n").unwrap();
    assert!(read(&path).is_ok() && format!("{:#}", read_own(&path).unwrap_err()).contains("no column row_hash"));
}

#[test]
fn a_row_keeps_its_hash_when_columns_move_and_its_column_may_be_deleted() {
    let (_folder, path) = file();
    append_row(&path, &row(&[("run", "a"), ("ece", "0.5")])).unwrap();
    let hash = fs::read_to_string(&path).unwrap().trim().rsplit(',').next().unwrap().to_string();
    fs::write(&path, format!("row_hash,new,ece,run\n{hash},,0.5,a\n")).unwrap();
    assert_eq!(read(&path).unwrap().rows, [["", "0.5", "a"]]);
    fs::write(&path, format!("row_hash,ece,run\n{hash},0.6,a\n")).unwrap();
    let error = format!("{:#}", read(&path).unwrap_err());
    assert!(error.contains("line 2") && error.contains("row_hash") && error.contains("cifar10.csv"), "{error}");
    fs::write(&path, "ece,run\n0.6,a\n").unwrap();
    assert_eq!(read(&path).unwrap().rows, [["0.6", "a"]]);
}
