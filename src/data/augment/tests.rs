use image::Rgb;

use super::*;
use crate::schema::Tree;

fn read(toml: &str) -> Result<Option<Augment>, String> {
    let sets: Vec<String> = toml.lines().map(str::to_owned).collect();
    let tree = Tree::load(&[], &sets, &[]).map_err(|problems| problems.to_string())?;
    let root = Reader::root(&tree);
    let augment = root.table_if_given("augment", Augment::read);
    root.close(augment).map_err(|problems| problems.to_string())
}

fn views(toml: &str) -> Views {
    Views { augment: read(toml).unwrap().unwrap(), seed: 1, interpolation: Interpolation::Bicubic }
}

fn picture() -> RgbImage {
    RgbImage::from_fn(50, 30, |x, y| Rgb([5 * x as u8, 8 * y as u8, (x * y % 256) as u8]))
}

#[test]
fn defaults_are_torchvisions() {
    assert_eq!(read("").unwrap(), None);
    let found = read("augment.flip=0.5").unwrap().unwrap();
    let expected = Augment {
        crop: Crop::RandomResized,
        scale: [0.08, 1.0],
        ratio: [3.0 / 4.0, 4.0 / 3.0],
        flip: 0.5,
        randaugment: None,
    };
    assert_eq!(found, expected);
    let stored = crate::schema::table(&found).to_string();
    let again: Vec<String> = stored.lines().map(|line| format!("augment.{}", line.replace(" = ", "="))).collect();
    assert_eq!(read(&again.join("\n")).unwrap(), Some(found));
}

#[test]
fn mistakes_are_named() {
    for (toml, expected) in [
        ("augment.scale=[1.0, 0.5]", "the smaller one first"),
        ("augment.scale=[0.5]", "two numbers"),
        ("augment.crop='fixed'\naugment.ratio=[1.0, 1.0]", "belong to crop"),
        ("augment.flip=2.0", "flip"),
        ("augment.randaugment.magnitude=31", "magnitude"),
        ("augment.flips=0.5", "flips"),
    ] {
        let error = read(toml).unwrap_err();
        assert!(error.contains(expected), "{toml}: {error}");
    }
}

#[test]
fn crops_have_the_area_and_ratio_asked_for() {
    let augment = views("augment.scale=[0.2, 0.6]").augment;
    let mut rng = stream(1, Purpose::Check, &[]);
    let (mut areas, mut lefts) = (Vec::new(), 0);
    for _ in 0..2000 {
        let [left, top, width, height] = augment.rectangle((200, 150), &mut rng);
        assert!(width > 0 && height > 0 && left + width <= 200 && top + height <= 150);
        let ratio = f64::from(width) / f64::from(height);
        assert!((0.73..1.37).contains(&ratio), "{ratio}");
        areas.push(f64::from(width * height) / 30_000.0);
        lefts += u32::from(left > (200 - width) / 2);
    }
    assert!(areas.iter().all(|area| (0.19..0.61).contains(area)));
    // The shares are uniform on [0.2, 0.6], so five standard errors of the mean are 0.013. The few draws that do not
    // fit are drawn again.
    let mean = areas.iter().sum::<f64>() / 2000.0;
    assert!((mean - 0.4).abs() < 0.02, "{mean}");
    assert!((850..1150).contains(&lefts), "{lefts}");
}

#[test]
fn images_that_no_crop_fits_give_their_centre() {
    // torchvision's fallback for (width, height) takes round(30 * 4 / 3) = 40 of the 4000 columns, and likewise for
    // rows.
    let augment = views("augment.scale=[1.0, 1.0]").augment;
    let mut rng = stream(1, Purpose::Check, &[]);
    assert_eq!(augment.rectangle((4000, 30), &mut rng), [1980, 0, 40, 30]);
    assert_eq!(augment.rectangle((30, 4000), &mut rng), [0, 1980, 30, 40]);
}

#[test]
fn a_view_depends_on_epoch_particle_and_image_alone() {
    let views = views("augment.randaugment.magnitude=9");
    let view = |at: [u64; 3]| views.view(picture(), (16, 12), at).unwrap();
    let first = view([0, 0, 0]);
    assert_eq!(first.dimensions(), (16, 12));
    assert_eq!(first, view([0, 0, 0]));
    for other in [[1, 0, 0], [0, 1, 0], [0, 0, 1]] {
        assert_ne!(first, view(other));
    }
    assert_ne!(first, Views { seed: 2, ..views }.view(picture(), (16, 12), [0; 3]).unwrap());
}

#[test]
fn half_of_the_views_are_mirrored() {
    let views = views("augment.crop='fixed'");
    let mut mirrored = picture();
    image::imageops::flip_horizontal_in_place(&mut mirrored);
    let seen = |image| views.view(picture(), (50, 30), [0, 0, image]).unwrap();
    let count = (0..400).map(seen).filter(|view| *view == mirrored).count();
    assert!((0..400).map(seen).all(|view| view == mirrored || view == picture()));
    // Five standard deviations are 50.
    assert!((150..250).contains(&count), "{count}");
}
