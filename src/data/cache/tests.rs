use image::{Rgb, RgbImage};

use super::*;
use crate::data::decode::{Decode, Resize};
use crate::data::images::Files;
use crate::data::resize::Interpolation;

/// Returns five image files, of which the fourth is damaged.
fn files(folder: &Path) -> Files {
    let path = |i: u8| folder.join(format!("{i}.png"));
    for i in 0..5u8 {
        RgbImage::from_fn(9, 7, |x, y| Rgb([20 * i, x as u8, y as u8])).save(path(i)).unwrap();
    }
    std::fs::write(path(3), "damaged").unwrap();
    let decode = Decode {
        resize: Resize::Stretch,
        interpolation: Interpolation::Bicubic,
        height: 4,
        width: 6,
        shorter_side: 6,
        turns: false,
    };
    Files::new((0..5).map(path).collect(), decode)
}

fn request(cache: &Path) -> Request<'_> {
    let (interpolation, progress) = (Interpolation::Bicubic, &|_, _| ());
    Request { image_size: 4, interpolation, crop_pct: 1.0, cache: Some(cache), memory_bytes: 0, workers: 2, progress }
}

fn packed(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "pixels")).collect()
}

#[test]
fn cached_images_are_the_decoded_ones() {
    let (images, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = files(images.path());
    let cached = files.clone().with_cache(&request(folder.path())).unwrap();
    for i in [4, 0, 2, 1] {
        assert_eq!(cached.image(i).unwrap(), files.image(i).unwrap());
    }
    assert!(format!("{:#}", cached.image(3).unwrap_err()).contains("3.png"));
    // The pixels no longer come from the files.
    let expected = files.image(2).unwrap();
    let time = files.paths[2].metadata().unwrap().modified().unwrap();
    let bytes = std::fs::metadata(&files.paths[2]).unwrap().len() as usize;
    std::fs::write(&files.paths[2], vec![0; bytes]).unwrap();
    File::options().write(true).open(&files.paths[2]).unwrap().set_modified(time).unwrap();
    let again = files.with_cache(&request(folder.path())).unwrap();
    assert_eq!(again.image(2).unwrap(), expected);
    assert_eq!(packed(folder.path()).len(), 1);
}

#[test]
fn other_files_or_settings_make_another_cache() {
    let (images, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = files(images.path());
    let count = |files: &Files| {
        files.clone().with_cache(&request(folder.path())).unwrap();
        packed(folder.path()).len()
    };
    assert_eq!(count(&files), 1);
    let bilinear = Decode { interpolation: Interpolation::Bilinear, ..files.decode };
    assert_eq!(count(&Files::new(files.paths.clone(), bilinear)), 2);
    let turned = Decode { turns: true, ..files.decode };
    assert_eq!(count(&Files::new(files.paths.clone(), turned)), 3);
    assert_eq!(count(&Files::new(files.paths[..4].to_vec(), files.decode)), 4);
    RgbImage::from_pixel(2, 2, Rgb([200; 3])).save(&files.paths[0]).unwrap();
    assert_eq!(count(&files), 5);
}

#[test]
fn damage_is_noticed() {
    let (images, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = files(images.path());
    let expected = files.image(1).unwrap();
    files.clone().with_cache(&request(folder.path())).unwrap();
    let path = packed(folder.path()).remove(0);
    let whole = std::fs::read(&path).unwrap();
    let mut flipped = whole.clone();
    flipped[HEADER_BYTES + 5 * ENTRY_BYTES + 72 + 9] ^= 1;
    std::fs::write(&path, flipped).unwrap();
    let damaged = files.clone().with_cache(&request(folder.path())).unwrap();
    assert!(damaged.image(0).is_ok());
    let error = damaged.image(1).unwrap_err().to_string();
    assert!(error.contains("image 1 is damaged: delete the file"), "{error}");
    drop(damaged);
    // A file of another length is recreated at once.
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert_eq!(files.with_cache(&request(folder.path())).unwrap().image(1).unwrap(), expected);
}

#[test]
fn runs_at_the_same_time_share_one_cache() {
    let (images, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = files(images.path());
    let expected = files.image(4).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let cached = files.clone().with_cache(&request(folder.path())).unwrap();
                assert_eq!(cached.image(4).unwrap(), expected);
            });
        }
    });
    assert_eq!(packed(folder.path()).len(), 1);
}
