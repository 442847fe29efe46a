//! Helpers that tests of data sets share.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::decode::Decode;
use super::{Centre, Dataset, Entry, Inputs, Interpolation, Request, Resize, Split, SplitName};
use crate::schema::{Reader, Tree};

/// Returns the data set of a table `root = …` with `extra` lines.
pub fn set(entry: &Entry, root: &Path, extra: &str) -> Box<dyn Dataset> {
    let tree = Tree::parse("test.toml", &format!("root = {root:?}\n{extra}")).unwrap();
    let reader = Reader::root(&tree);
    let set = (entry.read)(&reader);
    reader.close(set).unwrap()
}

/// Returns the mistakes found in such a table.
pub fn mistakes(entry: &Entry, extra: &str) -> String {
    let tree = Tree::parse("test.toml", &format!("root = \"x\"\n{extra}")).unwrap();
    let reader = Reader::root(&tree);
    let set = (entry.read)(&reader);
    reader.close(set).err().map_or(String::new(), |problems| problems.to_string())
}

/// A request with two threads, images of four pixels a side, and no image in memory.
pub const REQUEST: Request = Request { image_size: 4, ..Request::listing(2, &|_, _| ()) };

/// Returns a way to decode squares of `side` pixels a side.
pub fn squares(resize: Resize, side: usize) -> Decode {
    Decode {
        resize,
        interpolation: Interpolation::Bicubic,
        height: side,
        width: side,
        shorter_side: side,
        centre: Centre::Even,
        turns: false,
    }
}

/// Returns the prompts of a split of texts, and whether the end-of-text token follows them.
pub fn prompts(split: &Split) -> (Vec<&str>, bool) {
    let Inputs::Texts(texts) = &split.inputs else { panic!("texts") };
    (texts.prompts.texts.iter().map(String::as_str).collect(), texts.prompts.ended)
}

pub fn load(set: &dyn Dataset, split: SplitName) -> Result<Split> {
    set.load(split, &REQUEST)
}

pub fn error(set: &dyn Dataset, split: SplitName) -> String {
    format!("{:#}", load(set, split).unwrap_err())
}

/// Writes a gray image of 4 by 4 pixels.
pub fn put(root: &Path, file: &str, gray: u8) {
    let path = root.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let format = if file.ends_with(".png") { image::ImageFormat::Png } else { image::ImageFormat::Bmp };
    image::RgbImage::from_pixel(4, 4, image::Rgb([gray; 3])).save_with_format(path, format).unwrap();
}

pub fn write(root: &Path, file: &str, text: &str) {
    let path = root.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Returns the gray of every image of a split.
pub fn grays(split: &Split) -> Vec<u8> {
    let all: Vec<u32> = (0..split.len() as u32).collect();
    split.inputs.gather(&all).unwrap().chunks(48).map(|image| image[0]).collect()
}

/// Returns the path of a file in tests/fixtures/data.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/data").join(name)
}
