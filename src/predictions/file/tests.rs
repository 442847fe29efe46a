//! Tests of round trips, damaged files and wrong contents.

use super::*;
use std::fs;

fn example() -> Predictions {
    let shape = Shape { members: 2, samples: 3, classes: 2 };
    let logits = (0..12).map(|i| i as f32 / 4.0 - 1.0).collect();
    let text = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    let metadata = [("set", "test"), ("method", "svgd")].map(|(k, v)| (k.to_string(), v.to_string()));
    let predictions = Predictions::new(shape, logits, vec![0, 1, 1]).unwrap();
    let predictions = predictions.with_class_names(text(&["cat", "dog \"é\""])).unwrap();
    let predictions = predictions.with_groups(vec![2, 0, 1], text(&["a", "b", "c"])).unwrap();
    predictions.with_metadata(metadata.into()).unwrap()
}

fn message(path: &Path) -> String {
    format!("{:#}", Predictions::open(path).err().expect("must be refused"))
}

#[test]
fn saved_predictions_open_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let (path, again) = (folder.path().join("a.safetensors"), folder.path().join("b.safetensors"));
    let saved = example();
    saved.save(&path).unwrap();
    let opened = Predictions::open(&path).unwrap();
    assert_eq!(opened.shape(), saved.shape());
    assert_eq!(opened.all_logits(), saved.all_logits());
    assert_eq!((opened.labels(), opened.groups()), (saved.labels(), saved.groups()));
    assert_eq!((opened.class_names(), opened.group_names()), (saved.class_names(), saved.group_names()));
    assert_eq!(opened.metadata(), saved.metadata());
    assert_eq!(opened.weights(), None);
    opened.save(&again).unwrap();
    assert_eq!(fs::read(&path).unwrap(), fs::read(&again).unwrap());
    opened.save(&path).unwrap(); // This replaces the file that is mapped.
    assert_eq!(opened.all_logits(), saved.all_logits());
}

#[test]
fn weights_of_members_survive_their_file_and_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    example().with_weights(vec![0.1, 0.9]).unwrap().save(&path).unwrap();
    let opened = Predictions::open(&path).unwrap();
    assert_eq!((opened.weights(), opened.labels()), (Some([0.1, 0.9].as_slice()), example().labels()));
    let write = |weights: &[f32]| {
        let (logits, bytes) = (vec![0; 2 * 3 * 2 * 4], bytes_of(weights));
        let view = |shape: Vec<usize>, bytes| TensorView::new(Dtype::F32, shape, bytes).unwrap();
        let tensors = [("logits", view(vec![2, 3, 2], &logits)), ("weights", view(vec![weights.len()], bytes))];
        fs::write(&path, safetensors::serialize(tensors, None).unwrap()).unwrap();
    };
    write(&[0.5, 1.5]);
    assert_eq!(Predictions::open(&path).unwrap().weights(), Some([0.5, 1.5].as_slice()));
    write(&[0.5, 0.25, 0.25]);
    assert!(message(&path).contains("tensor `weights` has shape [3]; it must be [2], one for each member"));
    write(&[0.5, -0.25]);
    assert!(message(&path).contains("weight -0.25 of member 1: must be a number, at least 0"));
}

#[test]
fn an_unlabelled_set_has_no_labels_in_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let shape = Shape { members: 1, samples: 2, classes: 2 };
    Predictions::unlabelled(shape, vec![0.0, 1.0, 2.0, 3.0]).unwrap().save(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    assert_eq!(SafeTensors::deserialize(&bytes).unwrap().names(), ["logits"]);
    let opened = Predictions::open(&path).unwrap();
    assert_eq!((opened.labels(), opened.logits(0, 1)), (None, [2.0, 3.0].as_slice()));
}

#[test]
fn every_truncation_and_every_changed_byte_is_an_error_never_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    example().save(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    for length in 0..bytes.len() {
        fs::write(&path, &bytes[..length]).unwrap();
        assert!(message(&path).contains("a.safetensors"));
    }
    for place in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[place] ^= 0x11;
        fs::write(&path, &changed).unwrap();
        assert!(message(&path).contains("a.safetensors"));
    }
}

/// Returns the error message on opening a file that holds only `tensors` (name, type, shape). Every byte of their data
/// is `fill`.
fn message_for(tensors: &[(&str, Dtype, &[usize])], fill: u8) -> String {
    let data: Vec<Vec<u8>> = tensors
        .iter()
        .map(|(_, dtype, shape)| vec![fill; shape.iter().product::<usize>() * dtype.bitsize() / 8])
        .collect();
    let views = tensors.iter().zip(&data).map(|((name, dtype, shape), data)| {
        (*name, safetensors::tensor::TensorView::new(*dtype, shape.to_vec(), data).unwrap())
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
    message(&path)
}

#[test]
fn wrong_contents_are_named() {
    let logits = ("logits", Dtype::F32, [2usize, 3, 2].as_slice());
    let labels = ("labels", Dtype::U32, [3usize].as_slice());
    let says = |tensors: &[_], fill, text: &str| {
        let message = message_for(tensors, fill);
        assert!(message.contains(text), "{message}");
    };
    says(&[labels], 0, "no tensor `logits`");
    says(&[("logits", Dtype::I32, logits.2), labels], 0, "type I32; it must be F64, F32");
    says(&[("logits", Dtype::F32, &[6, 2]), labels], 0, "shape [6, 2]");
    says(&[("logits", Dtype::F32, &[0, 3, 2]), labels], 0, "[0, 3, 2]");
    says(&[logits, ("labels", Dtype::U32, &[4])], 0, "must be [3]");
    says(&[logits, ("labels", Dtype::F32, &[3])], 0, "type F32; it must be an integer");
    says(&[logits, ("labels", Dtype::I64, &[3])], 0xff, "-1 at sample 0");
    says(&[logits, labels], 0xff, "label 4294967295 of sample 0");
    says(&[logits, ("groups", Dtype::U32, &[3])], 0xff, "the group 4294967295 and no metadata `group_names`");
}

// NumPy and PyTorch save labels in i64, and logits may be in half precision.
#[test]
fn files_of_other_programs_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let labels: Vec<u8> = [1i64, 0].iter().flat_map(|label| label.to_le_bytes()).collect();
    let logits: Vec<u8> = [0x3c00u16, 0, 0xc000, 0x4200].iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let view = |dtype, shape: &[usize], bytes| TensorView::new(dtype, shape.to_vec(), bytes).unwrap();
    let tensors = [("labels", view(Dtype::I64, &[2], &labels)), ("logits", view(Dtype::F16, &[1, 2, 2], &logits))];
    fs::write(&path, safetensors::serialize(tensors, None).unwrap()).unwrap();
    let opened = Predictions::open(&path).unwrap();
    assert_eq!((opened.labels(), opened.all_logits()), (Some(&[1, 0][..]), &[1.0, 0.0, -2.0, 3.0][..]));
}

#[test]
fn other_files_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    assert!(message(&path).contains("a.txt"));
    fs::write(&path, "accuracy,ece\n0.9,0.1\n").unwrap();
    assert!(message(&path).contains("not a safetensors file"));
    assert!(message(folder.path()).contains("no regular file"));
}
