use super::*;
use crate::data::{Centre, Interpolation, Resize};
use crate::metrics::Uncertainty;
use crate::predictions::{Predictions, Shape};

fn image(path: &Path) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    image::RgbImage::from_pixel(3, 2, image::Rgb([9, 8, 7])).save(path).unwrap();
}

/// Returns a folder with the images `b.png`, `a/z.png`, `a/.hidden.png` and `.git/x.png`, and a text file.
fn folder() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for name in ["b.png", "a/z.png", "a/.hidden.png", ".git/x.png"] {
        image(&root.path().join(name));
    }
    std::fs::write(root.path().join("notes.txt"), "no image").unwrap();
    root
}

/// Returns the inputs that `paths` below `root` give with `list` on standard input: names relative to the root, or
/// problems.
fn found(root: &Path, paths: &[&str], list: &[u8]) -> Vec<String> {
    let at = |path: &&str| if **path == *LIST { PathBuf::from(LIST) } else { root.join(path) };
    let paths: Vec<PathBuf> = paths.iter().map(at).collect();
    let inputs = collect(&paths, &mut &*list).unwrap();
    let name = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
    inputs.images.into_iter().map(|input| input.problem.unwrap_or_else(|| name(&input.path))).collect()
}

#[test]
fn folders_are_searched_and_files_taken_as_given() {
    let root = folder();
    assert_eq!(found(root.path(), &[""], b""), ["a/z.png", "b.png"]);
    assert_eq!(
        found(root.path(), &["notes.txt", "a/.hidden.png", "b.png"], b""),
        ["notes.txt", "a/.hidden.png", "b.png"]
    );
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(root.path(), root.path().join("a/loop")).unwrap();
        assert_eq!(found(root.path(), &[""], b""), ["a/z.png", "b.png"]);
    }
}

#[test]
fn what_is_not_there_is_an_entry_and_the_rest_go_on() {
    let root = folder();
    std::fs::create_dir(root.path().join("empty")).unwrap();
    let found = found(root.path(), &["gone.png", "empty", "b.png"], b"");
    assert!(found[0].ends_with("gone.png: no such file"), "{found:?}");
    assert!(found[1].ends_with("empty: no image files in this folder"), "{found:?}");
    assert_eq!(found[2], "b.png");
    let nothing = collect(&[PathBuf::from(LIST)], &mut &b"\n\n"[..]).unwrap_err().to_string();
    assert!(nothing.starts_with("no images to predict"));
    assert!(collect(&[], &mut &b""[..]).is_err());
}

#[test]
fn lists_have_lines_or_nuls() {
    let root = folder();
    let [a, b] = ["a/z.png", "b.png"].map(|name| root.path().join(name).display().to_string());
    let lines = format!("{b}\r\n\n{a}\n");
    assert_eq!(found(root.path(), &["b.png", "-"], lines.as_bytes()), ["b.png", "b.png", "a/z.png"]);
    let odd = root.path().join("two\nlines.png");
    image(&odd);
    let nuls = format!("{a}\0{}\0", odd.display());
    assert_eq!(found(root.path(), &["-"], nuls.as_bytes()), ["a/z.png", "two\nlines.png"]);
}

#[test]
fn a_damaged_file_is_one_error() {
    let root = folder();
    std::fs::write(root.path().join("a/bad.png"), "damaged").unwrap();
    let inputs = collect(&[root.path().to_path_buf(), root.path().join("gone")], &mut &b""[..]).unwrap();
    let decoded = decode(
        &inputs.images,
        Decode {
            resize: Resize::ShorterSideCrop,
            interpolation: Interpolation::Bicubic,
            height: 2,
            width: 2,
            shorter_side: 2,
            centre: Centre::Even,
            turns: false,
        },
    );
    assert!(decoded[0].as_ref().unwrap_err().contains("bad.png"));
    assert_eq!(decoded[1], Ok([[9; 4], [8; 4], [7; 4]].concat()));
    assert!(decoded[2].is_ok() && decoded[3].as_ref().unwrap_err().ends_with("gone: no such file"));
}

fn records(members: usize) -> Vec<Record> {
    let logits: Vec<f32> = [0.8f64, 0.2, 0.3, 0.7][..2 * members].iter().map(|p| p.ln() as f32).collect();
    let predictions = Predictions::unlabelled(Shape { members, samples: 1, classes: 2 }, logits).unwrap();
    let uncertainty = Uncertainty::compute(&predictions).unwrap();
    let classes = ["cat".to_string(), "dog, wet".to_string()];
    let mut outcome = Prediction::of(&predictions, &uncertainty, 0, &classes);
    assert!(
        Prediction::of(&predictions, &uncertainty, 1, &classes).is_err()
            && Prediction::of(&predictions, &uncertainty, 0, &[]).is_err()
    );
    for value in outcome.iter_mut() {
        // Logits are f32, so further digits are noise.
        let round = |x: f64| (x * 1e6).round() / 1e6;
        value.class = classes[1].clone();
        value.probability = round(value.probability);
        value.predictive_entropy = round(value.predictive_entropy);
        value.expected_entropy = round(value.expected_entropy);
        value.probabilities.iter_mut().for_each(|p| *p = round(*p));
        value.mutual_information = value.mutual_information.map(round);
    }
    let outcome = outcome.map_err(|error| error.to_string());
    vec![
        Record { path: "a \"b\".png".into(), label: Some("cat".into()), outcome, set: Vec::new() },
        Record { path: "bad.png".into(), label: None, outcome: Err("bad.png: cut\noff".into()), set: Vec::new() },
    ]
}

fn written(format: Format, records: &[Record]) -> String {
    written_with(format, records, Columns::default())
}

fn written_with(format: Format, records: &[Record], columns: Columns) -> String {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out, format, columns);
    records.iter().for_each(|record| writer.write(record).unwrap());
    drop(writer);
    String::from_utf8(out).unwrap()
}

// p = [[.8, .2], [.3, .7]] has the mean .55, .45. The values come from H = lambda q: -sum(x * log(x) for x in q), as
// H([.55, .45]) and H([.55, .45]) - (H(p[0]) + H(p[1])) / 2.
#[test]
fn records_become_csv() {
    let expected = "path,class,probability,predictive_entropy,expected_entropy,mutual_information,disagreement,error\n\
        \"a \"\"b\"\".png\",\"dog, wet\",0.55,0.688139,0.555633,0.132505,1.0,\n\
        bad.png,,,,,,,\"bad.png: cut\noff\"\n";
    assert_eq!(written(Format::Csv, &records(2)), expected);
    let one = written(Format::Csv, &records(1));
    assert!(one.contains("\"dog, wet\",0.8,0.500402,0.500402,,,\n"), "{one}");
}

#[test]
fn records_become_json_lines() {
    let text = written(Format::JsonLines, &records(2));
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["path"], "a \"b\".png");
    assert_eq!((lines[0]["probability"].as_f64(), lines[0]["error"].is_null()), (Some(0.55), true));
    assert_eq!((lines[1]["class"].is_null(), lines[1]["error"].as_str()), (true, Some("bad.png: cut\noff")));
    assert!(text.starts_with("{\"path\":\"a \\\"b\\\".png\",\"class\":\"dog, wet\",\"probability\":0.55,"), "{text}");
}

#[test]
fn records_have_the_label_and_more_classes_where_they_are_asked_for() {
    let classes = ["cat".to_string(), "dog, wet".to_string()];
    let columns = Columns { classes: classes.to_vec(), label: true, top: 5, all: true, set: false };
    let expected = "path,label,class,probability,predictive_entropy,expected_entropy,mutual_information,disagreement,\
        class_2,probability_2,p_cat,\"p_dog, wet\",error\n\
        \"a \"\"b\"\".png\",cat,\"dog, wet\",0.55,0.688139,0.555633,0.132505,1.0,\"dog, wet\",0.45,0.55,0.45,\n\
        bad.png,,,,,,,,,,,,\"bad.png: cut\noff\"\n";
    assert_eq!(written_with(Format::Csv, &records(2), columns.clone()), expected);
    let text = written_with(Format::JsonLines, &records(2), columns);
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["top"][1]["class"], "dog, wet");
    assert_eq!(lines[0]["probabilities"]["cat"].as_f64(), Some(0.55));
    assert_eq!((lines[0]["label"].as_str(), lines[1]["top"].as_array().map(Vec::len)), (Some("cat"), Some(0)));
}

#[test]
fn files_of_folders_that_are_no_images_are_named() {
    let root = folder();
    let found = collect(&[root.path().to_path_buf()], &mut &b""[..]).unwrap();
    assert_eq!((found.images.len(), found.skipped), (2, vec![root.path().join("notes.txt")]));
}
