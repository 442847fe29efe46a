//! Decoded and resized images on disk, packed into one memory-mapped file per split, so that later epochs and runs read
//! pixels and need not decode. The name of a file identifies its contents: it is a hash of the images' paths, sizes and
//! times, of their column in a table, and of the way they are resized. A file is written once, under a lock, and renamed into place.
//! Every image is checked when it is read. Where images were replaced by others of their sizes and times, as tools that copy or unpack
//! files do it, the file is made anew: its key has the times at which the system saw a change.
//!
//! Layout, little endian: [`MAGIC`], the key (32 bytes), N and the bytes per image (u64), N entries (u64: 1 << 32 |
//! CRC-32, or 0 for a file that cannot be decoded), then N images `[3, H, W]`.

use std::fs::{File, Metadata};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use super::decode::decode_all;
use super::request::Request;
use super::resize::Centre;
use super::stored::{Member, Stored};
use crate::base::files::{create_folder, with_lock, write_atomic};
use crate::base::hash::hex;
use crate::base::mapped::Mapped;

/// The number in it rises when some file is decoded to other pixels than before.
const MAGIC: &[u8; 16] = b"bella/pixels/5\0\0";
const HEADER_BYTES: usize = 16 + 32 + 8 + 8;
const ENTRY_BYTES: usize = 8;
const PRESENT: u64 = 1 << 32;

/// An open cache file.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    map: Mapped,
    images: usize,
    image_bytes: usize,
}

/// The properties that the cache file of a list of images must have.
struct Expected {
    /// The hash of paths, sizes, times and the way of resizing.
    name: [u8; 32],
    /// The hash of these and of the times at which the system saw the images change.
    key: [u8; 32],
    images: usize,
    image_bytes: usize,
}

/// Opens the cache in `folder` of images. If there is none, or if it is damaged, it is created first.
///
/// # Errors
/// Fails if an image file is missing, or if the folder or disk cannot be written.
pub fn open(folder: &Path, stored: &Stored, request: &Request) -> Result<Store> {
    let expected = Expected::of(stored)?;
    let name = hex(&expected.name[..16]);
    let path = folder.join(name).with_extension("pixels");
    if path.is_file() {
        match Store::open(&path, &expected) {
            Ok(store) => return Ok(store),
            Err(why) => tracing::warn!("{why:#}; it is made anew"),
        }
    }
    create_folder(folder).context("the cache of decoded images (data.*.cache)")?;
    // Another run may be creating the same file. Whichever run waits for the lock then finds it.
    with_lock(&path, || {
        if let Ok(store) = Store::open(&path, &expected) {
            return Ok(store);
        }
        let bytes = expected.bytes()?;
        tracing::info!("{}: packing {} images ({} MB)", path.display(), expected.images, bytes >> 20);
        write(&path, stored, &expected, request)?;
        Store::open(&path, &expected)
    })
}

impl Expected {
    fn of(stored: &Stored) -> Result<Expected> {
        let (decode, paths) = (stored.decode, stored.paths);
        let (mut hash, mut changes) = (Sha256::new(), Sha256::new());
        hash.update(MAGIC);
        hash.update(format!("{:?} {:?} {} {}", decode.resize, decode.interpolation, decode.height, decode.width));
        if decode.shorter_side != decode.width {
            hash.update(format!(" of {}", decode.shorter_side));
        }
        if decode.centre != Centre::Even {
            hash.update(format!(" {}", decode.centre));
        }
        if decode.turns {
            hash.update(" turned");
        }
        if let Some(rows) = stored.members.as_ref().and_then(|members| members.rows.as_ref()) {
            hash.update(format!(" column {}", rows.column()));
        }
        let of_disk = stored.members.as_ref().map_or(paths, |members| &members.archives[..]);
        for path in of_disk {
            let failed = || format!("{}: cannot read", path.display());
            let meta = path.metadata().with_context(failed)?;
            let modified = meta.modified().with_context(failed)?.duration_since(UNIX_EPOCH).unwrap_or_default();
            let whole = std::path::absolute(path).with_context(failed)?;
            hash.update(whole.as_os_str().as_encoded_bytes());
            hash.update([0]);
            hash.update(meta.len().to_le_bytes());
            hash.update(modified.as_nanos().to_le_bytes());
            changed(&meta).iter().for_each(|part| changes.update(part.to_le_bytes()));
        }
        for (path, Member { archive, at, size }) in
            paths.iter().zip(stored.members.iter().flat_map(|members| &members.of))
        {
            hash.update(path.as_os_str().as_encoded_bytes());
            hash.update([0]);
            [u64::from(*archive), *at, *size].iter().for_each(|number| hash.update(number.to_le_bytes()));
        }
        let name: [u8; 32] = hash.finalize().into();
        changes.update(name);
        Ok(Expected { name, key: changes.finalize().into(), images: paths.len(), image_bytes: decode.image_bytes() })
    }

    fn header(&self) -> Vec<u8> {
        let sizes = [self.images as u64, self.image_bytes as u64].map(u64::to_le_bytes);
        [&MAGIC[..], &self.key, &sizes[0], &sizes[1]].concat()
    }

    /// Returns the offset of the first image.
    fn start(&self) -> usize {
        HEADER_BYTES + ENTRY_BYTES * self.images
    }

    fn bytes(&self) -> Result<usize> {
        let pixels = self.images.checked_mul(self.image_bytes);
        pixels.and_then(|pixels| pixels.checked_add(self.start())).context("more pixels than memory can address")
    }
}

/// Returns the time at which the system saw a file change, in seconds and nanoseconds. Programs set the other times, but not this one.
#[cfg(unix)]
fn changed(meta: &Metadata) -> [i64; 2] {
    use std::os::unix::fs::MetadataExt;
    [meta.ctime(), meta.ctime_nsec()]
}

#[cfg(not(unix))]
fn changed(_: &Metadata) -> [i64; 2] {
    [0; 2]
}

/// Decodes every file and writes a new cache file.
fn write(path: &Path, stored: &Stored, expected: &Expected, request: &Request) -> Result<()> {
    write_atomic(path, |writer| {
        let out = Mutex::new((writer.get_ref(), vec![0u64; expected.images], Ok(())));
        decode_all(
            stored.paths.len(),
            |i| stored.decoded(i),
            request.workers,
            request.progress,
            |i, pixels| {
                let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
                let (file, entries, written) = &mut *out;
                entries[i] = PRESENT | u64::from(crc32fast::hash(&pixels));
                let at = SeekFrom::Start((expected.start() + i * expected.image_bytes) as u64);
                if let Err(error) = file.seek(at).and_then(|_| file.write_all(&pixels)) {
                    *written = Err(error);
                }
            },
        )?;
        let (mut file, entries, written) = out.into_inner().unwrap_or_else(PoisonError::into_inner);
        written?;
        let entries: Vec<u8> = entries.into_iter().flat_map(u64::to_le_bytes).collect();
        // If the last images could not be decoded, nothing was written for them and the file is still too short.
        file.set_len(expected.bytes()? as u64)?;
        file.rewind()?;
        Ok(file.write_all(&[expected.header(), entries].concat())?)
    })
}

impl Store {
    fn open(path: &Path, expected: &Expected) -> Result<Store> {
        let failed = || format!("{}: cannot read", path.display());
        let file = File::open(path).with_context(failed)?;
        let map = Mapped::new(&file, path).with_context(failed)?;
        let right = map.len() == expected.bytes()? && map.starts_with(&expected.header());
        ensure!(right, "{}: not a whole cache of these images as they are now", path.display());
        let Expected { images, image_bytes, .. } = *expected;
        Ok(Store { path: path.to_path_buf(), map, images, image_bytes })
    }

    /// Returns image i, `[3, H, W]`; `None` if its file could not be decoded.
    ///
    /// # Errors
    /// Fails if the bytes differ from those that were written.
    pub fn image(&self, i: usize) -> Result<Option<&[u8]>> {
        ensure!(i < self.images, "image {i} is asked of a cache of {}", self.images);
        let at = HEADER_BYTES + ENTRY_BYTES * i;
        let entry = self.map[at..at + ENTRY_BYTES].try_into().map(u64::from_le_bytes)?;
        if entry == 0 {
            return Ok(None);
        }
        let start = HEADER_BYTES + ENTRY_BYTES * self.images + i * self.image_bytes;
        let pixels = &self.map[start..start + self.image_bytes];
        if entry != PRESENT | u64::from(crc32fast::hash(pixels)) {
            bail!("{}: image {i} is damaged: delete the file, and it is made anew", self.path.display());
        }
        Ok(Some(pixels))
    }
}

#[cfg(test)]
mod tests {
    use image::{Rgb, RgbImage};

    use super::*;
    use crate::data::decode::{Decode, Resize};
    use crate::data::images::Files;
    use crate::data::resize::Interpolation;
    use crate::data::testing::{REQUEST, squares};

    /// Returns five image files, of which the fourth is damaged.
    fn files(folder: &Path) -> Files {
        let path = |i: u8| folder.join(format!("{i}.png"));
        for i in 0..5u8 {
            RgbImage::from_fn(9, 7, |x, y| Rgb([20 * i, x as u8, y as u8])).save(path(i)).unwrap();
        }
        std::fs::write(path(3), "damaged").unwrap();
        let decode = Decode { height: 4, ..squares(Resize::Stretch, 6) };
        Files::new((0..5).map(path).collect(), decode)
    }

    fn request(cache: &Path) -> Request<'_> {
        Request { cache: Some(cache), ..REQUEST }
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
        let changed = || folder.path().metadata().unwrap().modified().unwrap();
        let before = changed();
        let again = files.clone().with_cache(&request(folder.path())).unwrap();
        assert_eq!(changed(), before, "nothing is written where the cache is whole: its disk may be read-only");
        std::fs::write(&files.paths[2], "damaged").unwrap();
        assert_eq!(again.image(2).unwrap(), expected);
        assert_eq!(packed(folder.path()).len(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn an_image_in_place_of_one_of_its_size_and_time_is_decoded_again() {
        let (images, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = images.path().join("a.bmp");
        let save = |gray: u8| RgbImage::from_pixel(8, 8, Rgb([gray; 3])).save(&path).unwrap();
        save(10);
        let files = Files::new(vec![path.clone()], files(images.path()).decode);
        let gray = || files.clone().with_cache(&request(folder.path())).unwrap().image(0).unwrap()[0];
        assert_eq!(gray(), 10);
        let time = path.metadata().unwrap().modified().unwrap();
        // The system counts changes in ticks of some milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(50));
        save(200);
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        assert_eq!((gray(), gray()), (200, 200));
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
        let down = Decode { centre: Centre::Down, ..files.decode };
        assert_eq!(count(&Files::new(files.paths.clone(), down)), 4);
        assert_eq!(count(&Files::new(files.paths[..4].to_vec(), files.decode)), 5);
        RgbImage::from_pixel(2, 2, Rgb([200; 3])).save(&files.paths[0]).unwrap();
        assert_eq!(count(&files), 6);
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
}
