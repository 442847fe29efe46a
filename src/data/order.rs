//! Every random choice as a pure function of (seed, purpose, indices).
//! A stream is ChaCha12 keyed by SHA-256 over these parts, so that nothing depends on threads,
//! on what was drawn before, or on where a run was interrupted.

use rand::Rng;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use sha2::{Digest, Sha256};

/// What random numbers are for: streams of different purposes are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The order of training images; indices: epoch, particle.
    Order,
    /// Which training images are held out.
    Validation,
    /// Initial values of particles; indices: particle, block.
    Init,
    /// Noise of a training step; indices: step, sample, part, particle.
    Noise,
    /// Draws from a posterior, of labels from predictions, of sketches; indices: which of them.
    Posterior,
    /// Random augmentation; indices: epoch, particle, image.
    Augment,
    /// Corruption of test images; indices: image.
    Corruption,
    /// Which training labels are replaced, and by what.
    LabelNoise,
    /// Random start of an attack; indices: image.
    Attack,
    /// Resampling of a test set; indices: resample.
    Bootstrap,
    /// Random inputs of a self-check.
    Check,
}

impl Purpose {
    fn tag(self) -> &'static str {
        match self {
            Purpose::Order => "order",
            Purpose::Validation => "validation",
            Purpose::Init => "init",
            Purpose::Noise => "noise",
            Purpose::Posterior => "posterior",
            Purpose::Augment => "augment",
            Purpose::Corruption => "corruption",
            Purpose::LabelNoise => "label-noise",
            Purpose::Attack => "attack",
            Purpose::Bootstrap => "bootstrap",
            Purpose::Check => "check",
        }
    }
}

/// The generator of one purpose at one place.
pub fn stream(seed: u64, purpose: Purpose, indices: &[u64]) -> ChaCha12Rng {
    let mut hash = Sha256::new();
    hash.update(b"bella/1/");
    hash.update(purpose.tag().as_bytes());
    hash.update([0]);
    hash.update(seed.to_le_bytes());
    indices.iter().for_each(|index| hash.update(index.to_le_bytes()));
    ChaCha12Rng::from_seed(hash.finalize().into())
}

/// A uniform number below `bound` (not 0), without bias: draws in the last, incomplete stretch
/// of `bound` values are thrown away.
pub fn below(rng: &mut ChaCha12Rng, bound: u64) -> u64 {
    let complete = u64::MAX - u64::MAX % bound;
    loop {
        let draw = rng.next_u64();
        if draw < complete {
            return draw % bound;
        }
    }
}

/// A uniform permutation of `0..n` (Fisher and Yates, from the last place down).
/// Written out so that an update of a crate cannot change the order of a stored run.
pub fn permutation(rng: &mut ChaCha12Rng, n: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n as u32).collect();
    for last in (1..n).rev() {
        order.swap(last, below(rng, last as u64 + 1) as usize);
    }
    order
}

/// The order in which `particle` sees `samples` images in `epoch`; for one order shared by all
/// particles ask for particle 0.
pub fn epoch_order(seed: u64, epoch: u64, particle: u64, samples: usize) -> Vec<u32> {
    permutation(&mut stream(seed, Purpose::Order, &[epoch, particle]), samples)
}

/// A training set cut in two; both lists are sorted and together hold every index once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holdout {
    /// Indices to train on.
    pub train: Vec<u32>,
    /// Indices held out.
    pub validation: Vec<u32>,
}

/// Holds out `round(fraction * n)` of the n images of each class at random: `labels` is `[N]`. `fraction` is clamped to
/// `[0, 1]`.
pub fn stratified_validation_split(seed: u64, labels: &[u32], fraction: f64) -> Holdout {
    let classes = labels.iter().max().map_or(0, |&last| last as usize + 1);
    let mut members = vec![Vec::new(); classes];
    for (i, &label) in labels.iter().enumerate() {
        members[label as usize].push(i as u32);
    }
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

/// Replaces `round(fraction * N)` of the labels `[N]` by another of `classes` classes, each as likely; returns which, sorted.
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

/// Which of `n` labels [`replace_labels`] replaces, sorted.
pub fn replaced_labels(seed: u64, n: usize, fraction: f64) -> Vec<u32> {
    choose_replaced(seed, n, fraction).1
}

/// Which labels are replaced, and the generator that then says by what.
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

/// A uniform number in `[0, 1)` with 53 random bits.
pub fn uniform(rng: &mut ChaCha12Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// A standard normal number (Box and Muller; the sine half is not kept, so that every number
/// takes exactly two draws).
pub fn normal(rng: &mut ChaCha12Rng) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(rng)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(rng)).cos()
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
        // a change here gives every stored run another order
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

    #[test]
    fn purposes_have_streams_of_their_own() {
        let first = |purpose| stream(7, purpose, &[3]).next_u64();
        assert_ne!(first(Purpose::Init), first(Purpose::Noise));
        assert_eq!(first(Purpose::Init), first(Purpose::Init));
    }

    #[test]
    fn permutations_of_three_are_uniform() {
        let mut counts = std::collections::BTreeMap::new();
        let mut rng = stream(1, Purpose::Check, &[]);
        for _ in 0..6000 {
            *counts.entry(permutation(&mut rng, 3)).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        // five standard deviations of a binomial count: 5 sqrt(6000 / 6 * 5 / 6) = 144
        assert!(counts.values().all(|&count: &i32| (count - 1000).abs() < 144), "{counts:?}");
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
    fn normal_numbers_have_mean_0_and_variance_1() {
        let mut rng = stream(1, Purpose::Check, &[1]);
        let draws: Vec<f64> = (0..20_000).map(|_| normal(&mut rng)).collect();
        let mean = draws.iter().sum::<f64>() / 2e4;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 2e4;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
    }
}
