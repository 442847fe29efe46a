//! Determines the order of training images, the images that are held out, and the images whose labels are replaced.
//! Each is a pure function of the seed.

use rand_chacha::ChaCha12Rng;

use crate::base::random::{Purpose, below, permutation, stream};

/// Returns the order in which `particle` sees `samples` images in `epoch`. For an order that all particles share, use
/// particle 0.
pub fn epoch_order(seed: u64, epoch: u64, particle: u64, samples: usize) -> Vec<u32> {
    permutation(&mut stream(seed, Purpose::Order, &[epoch, particle]), samples)
}

/// Returns the images that `particle` sees in `epoch` where all classes are as likely, given the labels of all images: as many draws
/// with replacement as there are images, each with a probability inverse to the number of images of its class, as torch's
/// `WeightedRandomSampler` draws them with these weights.
pub fn balanced_order(seed: u64, epoch: u64, particle: u64, labels: &[u32]) -> Vec<u32> {
    let members: Vec<Vec<u32>> = by_class(labels).into_iter().filter(|members| !members.is_empty()).collect();
    let mut rng = stream(seed, Purpose::Order, &[epoch, particle]);
    let mut draw = || {
        let of_class = &members[below(&mut rng, members.len() as u64) as usize];
        of_class[below(&mut rng, of_class.len() as u64) as usize]
    };
    labels.iter().map(|_| draw()).collect()
}

/// Returns of each draw of an order how often its sample came before.
pub fn earlier_draws(order: &[u32]) -> Vec<u32> {
    let mut counts = vec![0; order.iter().max().map_or(0, |most| *most as usize + 1)];
    let mut earlier = |sample: &u32| {
        counts[*sample as usize] += 1;
        counts[*sample as usize] - 1
    };
    order.iter().map(&mut earlier).collect()
}

/// Returns the indices of the images of each class.
fn by_class(labels: &[u32]) -> Vec<Vec<u32>> {
    let classes = labels.iter().max().map_or(0, |&last| last as usize + 1);
    let mut members = vec![Vec::new(); classes];
    for (i, &label) in labels.iter().enumerate() {
        members[label as usize].push(i as u32);
    }
    members
}

/// A training set split in two. Both lists are sorted, and together they hold every index once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holdout {
    /// The indices to train on.
    pub train: Vec<u32>,
    /// The indices held out.
    pub validation: Vec<u32>,
}

/// Holds out `round(fraction * n)` of the n images of each class at random. `labels` has shape `[N]`. `fraction` is
/// clamped to `[0, 1]`.
pub fn stratified_validation_split(seed: u64, labels: &[u32], fraction: f64) -> Holdout {
    let members = by_class(labels);
    let (mut train, mut validation) = (Vec::new(), Vec::new());
    for (class, of_class) in members.iter().enumerate() {
        let mut rng = stream(seed, Purpose::Validation, &[class as u64]);
        let order = permutation(&mut rng, of_class.len());
        let (held, kept) = order.split_at(held_out(of_class.len(), fraction));
        validation.extend(held.iter().map(|&i| of_class[i as usize]));
        train.extend(kept.iter().map(|&i| of_class[i as usize]));
    }
    train.sort_unstable();
    validation.sort_unstable();
    Holdout { train, validation }
}

/// Replaces `round(fraction * N)` of the labels `[N]` by another one of `classes` classes, all equally likely. Returns
/// the indices of the replaced labels, sorted.
pub fn replace_labels(seed: u64, labels: &mut [u32], classes: usize, fraction: f64) -> Vec<u32> {
    let (mut rng, replaced) = choose_replaced(seed, labels.len(), fraction);
    if classes < 2 {
        return Vec::new();
    }
    for &at in &replaced {
        let label = &mut labels[at as usize];
        let others = below(&mut rng, classes as u64 - 1) as u32;
        *label = others + u32::from(others >= *label);
    }
    replaced
}

/// Returns the indices of the labels that [`replace_labels`] replaces among `n` labels, sorted.
pub fn replaced_labels(seed: u64, n: usize, fraction: f64) -> Vec<u32> {
    choose_replaced(seed, n, fraction).1
}

/// Returns the sorted indices of the labels to replace, and the generator that then draws their replacements.
fn choose_replaced(seed: u64, n: usize, fraction: f64) -> (ChaCha12Rng, Vec<u32>) {
    let mut rng = stream(seed, Purpose::LabelNoise, &[]);
    let mut replaced = permutation(&mut rng, n);
    replaced.truncate(held_out(n, fraction));
    replaced.sort_unstable();
    (rng, replaced)
}

fn held_out(n: usize, fraction: f64) -> usize {
    (n as f64 * fraction.clamp(0.0, 1.0)).round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_permutation(order: &[u32], n: usize) -> bool {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        sorted.into_iter().eq(0..n as u32)
    }

    #[test]
    fn epoch_order_is_fixed() {
        let order = epoch_order(1, 0, 0, 1000);
        assert!(is_permutation(&order, 1000));
        // A change here gives every stored run another order.
        assert_eq!(order[..10], [891, 87, 635, 175, 490, 61, 803, 435, 63, 778]);
    }

    #[test]
    fn seed_epoch_and_particle_each_change_the_order() {
        let base = epoch_order(1, 0, 0, 100);
        assert_eq!(base, epoch_order(1, 0, 0, 100));
        for other in [epoch_order(2, 0, 0, 100), epoch_order(1, 1, 0, 100), epoch_order(1, 0, 1, 100)] {
            assert!(is_permutation(&other, 100));
            assert_ne!(base, other);
        }
    }

    /// Among images of which one in ten is of the rare class, half of the draws are of it, and all its images are as likely.
    #[test]
    fn balanced_draws_are_as_likely_for_every_class() {
        let labels: Vec<u32> = (0..2000).map(|i| u32::from(i % 10 == 0) * 2).collect();
        let order = balanced_order(1, 0, 0, &labels);
        assert_eq!((order.len(), &order), (2000, &balanced_order(1, 0, 0, &labels)));
        assert_ne!(order, balanced_order(1, 1, 0, &labels));
        let draws: Vec<u32> = (0..20).flat_map(|epoch| balanced_order(1, epoch, 0, &labels)).collect();
        let rare = draws.iter().filter(|&&i| labels[i as usize] == 2).count() as f64 / draws.len() as f64;
        assert!((rare - 0.5).abs() < 4.0 * (0.25f64 / draws.len() as f64).sqrt(), "{rare}");
        let mut counts = vec![0u32; 2000];
        draws.iter().for_each(|&i| counts[i as usize] += 1);
        // Each of the 200 rare images is drawn 100 times on average, each other one 11 times.
        let of = |label: u32| (0..2000).filter(move |i| labels[*i] == label).map(|i| f64::from(counts[i]));
        let chi: f64 = of(2).map(|count| (count - 100.0).powi(2) / 100.0).sum();
        assert!((chi - 200.0).abs() < 5.0 * 400f64.sqrt(), "{chi}");
    }

    #[test]
    fn stratified_split_takes_the_fraction_of_each_class() {
        let labels: Vec<u32> = (0..100).map(|i| u32::from(i >= 90)).collect();
        let holdout = stratified_validation_split(1, &labels, 0.2);
        let rare = holdout.validation.iter().filter(|&&i| i >= 90).count();
        assert_eq!((holdout.validation.len(), rare), (20, 2));
        assert!(holdout.validation.is_sorted() && holdout.train.is_sorted());
        assert!(is_permutation(&[holdout.train, holdout.validation].concat(), 100));
        assert!(stratified_validation_split(1, &labels, 0.0).validation.is_empty());
    }

    /// Held out are not the first images of a file, nor the same ones for every seed.
    #[test]
    fn every_image_of_a_class_is_as_likely_to_be_held_out() {
        let labels: Vec<u32> = (0..40).map(|i| i % 2).collect();
        let mut counts = [0u32; 40];
        for seed in 0..400 {
            stratified_validation_split(seed, &labels, 0.25).validation.iter().for_each(|&i| counts[i as usize] += 1);
        }
        // Each is held out 100 times of 400, with a standard deviation of 8.7.
        assert!(counts.iter().all(|count| count.abs_diff(100) < 40), "{counts:?}");
    }

    #[test]
    fn replaced_labels_are_other_classes() {
        let before: Vec<u32> = (0..1000).map(|i| i % 10).collect();
        let mut after = before.clone();
        let replaced = replace_labels(3, &mut after, 10, 0.05);
        let differ: Vec<u32> = (0..1000).filter(|&i| before[i as usize] != after[i as usize]).collect();
        assert_eq!((replaced.len(), &replaced), (50, &differ));
        assert_eq!(replaced_labels(3, 1000, 0.05), replaced);
        assert!(after.iter().all(|label| *label < 10));
        let mut again = before.clone();
        assert_eq!(replace_labels(3, &mut again, 10, 0.05), replaced);
        assert_eq!(again, after);
        assert!(replace_labels(3, &mut after, 10, 0.0).is_empty());
    }

    #[test]
    fn every_other_class_is_as_likely_to_replace_a_label() {
        let before: Vec<u32> = (0..9000).map(|i| i % 10).collect();
        let mut after = before.clone();
        replace_labels(3, &mut after, 10, 1.0);
        let mut counts = [0u32; 10];
        before.iter().zip(&after).for_each(|(before, after)| counts[((10 + after - before) % 10) as usize] += 1);
        // Each of the nine others 1000 times, with a standard deviation of 30.
        assert!(counts[0] == 0 && counts[1..].iter().all(|count| count.abs_diff(1000) < 150), "{counts:?}");
    }
}
