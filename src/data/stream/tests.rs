use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::data::Augment;
use crate::data::augment::Seen;
use crate::data::images::Files;
use crate::data::testing::squares;
use crate::data::{Interpolation, Resize};

/// Returns twenty images of one gray each: image i has the gray `10 * i`. Number 13 is damaged if `damaged` is set.
fn source(folder: &std::path::Path, damaged: bool) -> Arc<Source> {
    let path = |i: u8| folder.join(format!("{i:02}.png"));
    for i in 0..20u8 {
        image::RgbImage::from_pixel(4, 4, image::Rgb([10 * i; 3])).save(path(i)).unwrap();
    }
    if damaged {
        std::fs::write(path(13), "damaged").unwrap();
    }
    let images = Inputs::Files(Files::new((0..20).map(path).collect(), squares(Resize::None, 4)));
    Arc::new(Source { images, views: None })
}

fn indices() -> Vec<Vec<u32>> {
    vec![vec![3, 19, 0], vec![], vec![7], (0..20).rev().collect(), vec![13, 13], vec![1]]
}

fn pick(image: u32) -> Pick {
    Pick { image, view: View::Plain }
}

fn batches() -> Vec<Vec<Pick>> {
    indices().into_iter().map(|batch| batch.into_iter().map(pick).collect()).collect()
}

#[test]
fn streaming_equals_reading_for_any_number_of_workers() {
    let folder = tempfile::tempdir().unwrap();
    let source = source(folder.path(), false);
    let direct: Vec<_> = indices().iter().map(|batch| source.images.gather(batch).unwrap()).collect();
    for (workers, depth) in [(1, 1), (2, 1), (2, 3), (4, 2), (4, 100)] {
        let mut streamed = stream(source.clone(), batches(), workers, depth);
        let all: Result<Vec<_>> = streamed.by_ref().collect();
        assert_eq!(all.unwrap(), direct, "{workers} workers, depth {depth}");
        assert!(streamed.next().is_none());
    }
}

#[test]
fn a_damaged_file_fails_its_batch_only() {
    let folder = tempfile::tempdir().unwrap();
    let results: Vec<_> = stream(source(folder.path(), true), batches(), 2, 2).collect();
    let failed: Vec<bool> = results.iter().map(Result::is_err).collect();
    assert_eq!(failed, [false, false, false, true, true, false]);
    assert!(format!("{:#}", results[4].as_ref().unwrap_err()).contains("13.png"));
}

#[test]
fn an_index_beyond_the_images_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut streamed = stream(source(folder.path(), false), vec![vec![pick(20)]], 2, 1);
    assert!(streamed.next().unwrap().unwrap_err().to_string().contains("image 20"));
}

#[test]
fn work_ahead_is_bounded_and_stops_when_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = asked.clone();
    let endless = std::iter::repeat_with(move || {
        counter.fetch_add(1, Ordering::SeqCst);
        vec![pick(5)]
    });
    let mut streamed = stream(source(folder.path(), false), endless, 3, 2);
    for _ in 0..10 {
        assert_eq!(streamed.next().unwrap().unwrap(), [50; 48]);
    }
    // This would hang if the workers did not stop.
    drop(streamed);
    assert!((10..=12).contains(&asked.load(Ordering::SeqCst)), "{asked:?}");
}

#[test]
fn a_panic_of_the_request_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let requests = (0..3u32).map(|i| if i < 1 { vec![pick(i)] } else { panic!("of the test") });
    for workers in [1, 3] {
        let results: Vec<_> = stream(source(folder.path(), false), requests.clone(), workers, 1).collect();
        let failed: Vec<bool> = results.iter().map(Result::is_err).collect();
        assert_eq!(failed, [false, true], "{workers} workers");
    }
}

#[test]
fn random_views_are_the_same_for_any_number_of_workers() {
    let folder = tempfile::tempdir().unwrap();
    let path = |i: u32| folder.path().join(format!("{i}.png"));
    for i in 0..6 {
        let shade = |x: u32, y: u32| image::Rgb([(40 * i) as u8, (9 * x) as u8, (11 * y) as u8]);
        image::RgbImage::from_fn(25, 20, shade).save(path(i)).unwrap();
    }
    let tree = crate::schema::Tree::load(&[], &["augment.randaugment.magnitude=9".to_string()], &[]).unwrap();
    let root = crate::schema::Reader::root(&tree);
    let augment = root.table_if_given("augment", Augment::read);
    let augment = root.close(augment).unwrap().unwrap();
    let views = Some(Views { augment, seed: 3, interpolation: Interpolation::Bicubic });
    let source = |images| Arc::new(Source { images, views });
    let files = source(Inputs::Files(Files::new((0..6).map(path).collect(), squares(Resize::Stretch, 8))));
    let pixels = (0..6 * 3 * 8 * 8).map(|i| (i % 251) as u8).collect();
    let packed = source(Inputs::Packed(crate::data::Packed { pixels, height: 8, width: 8 }));
    let random =
        |image, [epoch, particle, draw]: [u64; 3]| Pick { image, view: View::Random(Seen { epoch, particle, draw }) };
    let batches = vec![
        vec![random(3, [0, 0, 0]), random(3, [0, 1, 0])],
        vec![random(3, [1, 0, 0]), pick(3), random(5, [0, 0, 0]), random(3, [0, 0, 1])],
    ];
    for source in [files, packed] {
        let all = |workers| -> Vec<Vec<u8>> {
            stream(source.clone(), batches.clone(), workers, 2).collect::<Result<_>>().unwrap()
        };
        let alone = all(1);
        assert_eq!([2, 4].map(all), [alone.clone(), alone.clone()]);
        let images: Vec<&[u8]> = alone.iter().flat_map(|batch| batch.chunks(192)).collect();
        assert!(images.iter().enumerate().all(|(i, image)| images[..i].iter().all(|other| other != image)));
        assert_eq!(images[3], source.images.image(3).unwrap());
    }
}
