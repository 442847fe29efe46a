//! The program's only source of randomness: every random choice is a pure function of (seed, purpose, indices).
//!
//! A stream is ChaCha12 keyed by SHA-256 over these parts, so it does not depend on threads, on earlier draws, or on
//! where a run was interrupted. Standard normal noise is drawn in the same way, for each place of a matrix, so it does not depend on
//! which other particles this process holds.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use sha2::{Digest, Sha256};
use tch::{Kind, Tensor};

/// The purpose of random numbers. Streams of different purposes are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// The order of training images; indices: epoch, particle.
    Order,
    /// The choice of the training images that are held out.
    Validation,
    /// Initial values of particles; indices: particle, block.
    Init,
    /// Noise of a training step; indices: step, sample, part, particle.
    Noise,
    /// Signs of noise for single samples; indices: step, layer, particle.
    Signs,
    /// Draws from a posterior, of labels from predictions, and of sketches; indices: which of them.
    Posterior,
    /// Random augmentation; indices: epoch, particle, image.
    Augment,
    /// The mixing of images with each other; indices: epoch, step, particle.
    Mix,
    /// Corruption of test images; indices: image.
    Corruption,
    /// The choice of the training labels that are replaced, and of their replacements.
    LabelNoise,
    /// The random start of an attack; indices: image.
    Attack,
    /// The resampling of a test set; indices: resample.
    Bootstrap,
    /// The draws of randomised conformal sets; indices: role, image.
    Conformal,
    /// The settings that a random search tries; indices: trial.
    Search,
    /// The random inputs of a self-check.
    Check,
    /// The choice of the images that something is fitted to after training.
    Anchors,
    /// Labels drawn from predictions for a curvature; indices: particle, image.
    Labels,
    /// The random choice of images to label next.
    Acquisition,
}

impl Purpose {
    fn tag(self) -> &'static str {
        match self {
            Purpose::Order => "order",
            Purpose::Validation => "validation",
            Purpose::Init => "init",
            Purpose::Noise => "noise",
            Purpose::Signs => "signs",
            Purpose::Posterior => "posterior",
            Purpose::Augment => "augment",
            Purpose::Mix => "mix",
            Purpose::Corruption => "corruption",
            Purpose::LabelNoise => "label-noise",
            Purpose::Attack => "attack",
            Purpose::Bootstrap => "bootstrap",
            Purpose::Conformal => "conformal",
            Purpose::Search => "search",
            Purpose::Check => "check",
            Purpose::Anchors => "anchors",
            Purpose::Labels => "labels",
            Purpose::Acquisition => "acquisition",
        }
    }
}

/// Returns the generator for one purpose and one set of indices.
pub fn stream(seed: u64, purpose: Purpose, indices: &[u64]) -> ChaCha12Rng {
    let mut hash = Sha256::new();
    hash.update(b"bella/1/");
    hash.update(purpose.tag().as_bytes());
    hash.update([0]);
    hash.update(seed.to_le_bytes());
    indices.iter().for_each(|index| hash.update(index.to_le_bytes()));
    ChaCha12Rng::from_seed(hash.finalize().into())
}

/// Returns a uniform number below `bound` (not 0) without bias. Draws in the last, incomplete stretch of `bound` values
/// are rejected.
pub fn below(rng: &mut ChaCha12Rng, bound: u64) -> u64 {
    let complete = u64::MAX - u64::MAX % bound;
    loop {
        let draw = rng.next_u64();
        if draw < complete {
            return draw % bound;
        }
    }
}

/// Returns a uniform permutation of `0..n` (Fisher and Yates, from the last place down). It is written out here so that
/// an update of a crate cannot change the order of a stored run.
pub fn permutation(rng: &mut ChaCha12Rng, n: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n as u32).collect();
    for last in (1..n).rev() {
        order.swap(last, below(rng, last as u64 + 1) as usize);
    }
    order
}

/// Returns at most `count` of the indices, a random choice in their own order. The first ones would be of a few classes where
/// images are stored class by class.
pub fn some_of(indices: &[u32], count: usize, seed: u64) -> Vec<u32> {
    let order = permutation(&mut stream(seed, Purpose::Anchors, &[]), indices.len());
    let mut places: Vec<u32> = order.into_iter().take(count).collect();
    places.sort_unstable();
    places.into_iter().map(|place| indices[place as usize]).collect()
}

/// Returns a uniform number in `[0, 1)` with 53 random bits.
pub fn uniform(rng: &mut ChaCha12Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Returns a standard normal number (Box and Muller). The sine half is discarded, so every number takes exactly two
/// draws.
pub fn normal(rng: &mut ChaCha12Rng) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(rng)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(rng)).cos()
}

/// Returns a draw from Beta(α, α) for α > 0, the share of the first of two draws from Gamma(α, 1). Their logarithms are compared, since
/// for small α both may be too small for an f64.
pub fn beta(rng: &mut ChaCha12Rng, alpha: f64) -> f64 {
    let [first, second] = [log_gamma(rng, alpha), log_gamma(rng, alpha)];
    1.0 / (1.0 + (second - first).exp())
}

/// Returns the logarithm of a draw from Gamma(α, 1) (Marsaglia and Tsang 2000; for α < 1 by a draw from Gamma(α + 1, 1) times U^(1/α)).
fn log_gamma(rng: &mut ChaCha12Rng, alpha: f64) -> f64 {
    if alpha < 1.0 {
        return log_gamma(rng, alpha + 1.0) + (1.0 - uniform(rng)).ln() / alpha;
    }
    let d = alpha - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(rng);
        let v = (1.0 + c * x).powi(3);
        let u = 1.0 - uniform(rng);
        if v > 0.0 && u.ln() < 0.5 * x * x + d * (1.0 - v + v.ln()) {
            return d.ln() + v.ln();
        }
    }
}

/// The place of a draw in a run.
#[derive(Clone, Copy, Debug)]
pub struct At {
    pub step: i64,
    pub sample: i64,
    pub part: i64,
}

impl At {
    /// Returns the places of the draws of a step: `samples` of them, each with noise of its own for every part of the batch.
    pub fn of_step(step: i64, samples: i64, parts: usize) -> impl Iterator<Item = At> {
        (0..samples).flat_map(move |sample| (0..parts as i64).map(move |part| At { step, sample, part }))
    }
}

/// A function of the place of a draw and of `theta: [n, P]`, which gives numbers for theta in its type and on its device.
type Draw = dyn Fn(At, &Tensor) -> Tensor + Send;

/// A source of noise.
pub struct Noise(Box<Draw>);

impl Noise {
    /// Returns standard normal noise that is a pure function of (seed, purpose, place, particle).
    pub fn new(seed: u64, purpose: Purpose) -> Noise {
        Noise::from(move |at: At, theta: &Tensor| {
            let row = |particle| row(seed, purpose, at, particle, theta);
            Tensor::stack(&(0..theta.size()[0]).map(row).collect::<Vec<_>>(), 0)
        })
    }

    /// Returns noise for `theta: [n, P]`, in its type and on its device.
    pub fn draw(&self, at: At, theta: &Tensor) -> Tensor {
        (self.0)(at, theta)
    }
}

impl<F: Fn(At, &Tensor) -> Tensor + Send + 'static> From<F> for Noise {
    fn from(draw: F) -> Noise {
        Noise(Box::new(draw))
    }
}

/// Returns standard normal numbers for one particle, `[P]` for `theta: [n, P]`.
pub fn row(seed: u64, purpose: Purpose, at: At, particle: i64, theta: &Tensor) -> Tensor {
    let place = [at.step, at.sample, at.part, particle].map(|index| index as u64);
    // Only libtorch's generator is fast on every device, so it is seeded again for every draw.
    tch::manual_seed(stream(seed, purpose, &place).next_u64() as i64);
    let kind = if theta.kind() == Kind::Double { Kind::Double } else { Kind::Float };
    Tensor::randn([theta.size()[1]], (kind, theta.device()))
}

/// Returns uniform numbers in [0, 1] from standard normal ones: the normal distribution function of them.
pub fn uniform_of_normal(normal: &Tensor) -> Tensor {
    ((normal / std::f64::consts::SQRT_2).erf() + 1.0) * 0.5
}

/// Returns the noise ε `[P]` of one draw from the posterior of a particle, for `theta: [n, P]`.
pub fn posterior_row(seed: u64, sample: i64, particle: i64, theta: &Tensor) -> Tensor {
    row(seed, Purpose::Posterior, At { step: 0, sample, part: 0 }, particle, theta)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_have_streams_of_their_own() {
        let first = |purpose| stream(7, purpose, &[3]).next_u64();
        assert_ne!(first(Purpose::Init), first(Purpose::Noise));
        assert_eq!(first(Purpose::Init), first(Purpose::Init));
    }

    /// Half of the images are of one class and stored first, as in a folder of classes.
    #[test]
    fn a_choice_of_indices_is_not_that_of_the_first() {
        let all: Vec<u32> = (100..300).collect();
        let some = some_of(&all, 100, 1);
        let first = some.iter().filter(|index| **index < 200).count();
        assert!(some.len() == 100 && (35..65).contains(&first), "{first}");
        assert!(some.is_sorted() && some == some_of(&all, 100, 1) && some != some_of(&all, 100, 2));
        assert_eq!(some_of(&all, 1000, 1), all);
    }

    #[test]
    fn permutations_of_three_are_uniform() {
        let mut counts = std::collections::BTreeMap::new();
        let mut rng = stream(1, Purpose::Check, &[]);
        for _ in 0..6000 {
            *counts.entry(permutation(&mut rng, 3)).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        // The bound is five standard deviations of a binomial count: 5 sqrt(6000 / 6 * 5 / 6) = 144.
        assert!(counts.values().all(|&count: &i32| (count - 1000).abs() < 144), "{counts:?}");
    }

    #[test]
    fn normal_numbers_have_mean_0_and_variance_1() {
        let mut rng = stream(1, Purpose::Check, &[1]);
        let draws: Vec<f64> = (0..20_000).map(|_| normal(&mut rng)).collect();
        let mean = draws.iter().sum::<f64>() / 2e4;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 2e4;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
    }

    /// Beta(α, α) has mean 1/2 and variance 1/(4(2α + 1)); the fourth moment of its deviation tells it from others.
    #[test]
    fn beta_draws_have_their_moments() {
        for (place, alpha) in [0.1f64, 0.4, 1.0, 3.0].into_iter().enumerate() {
            let mut rng = stream(1, Purpose::Check, &[2, place as u64]);
            let draws: Vec<f64> = (0..20_000).map(|_| beta(&mut rng, alpha)).collect();
            let moment = |power| draws.iter().map(|x| (x - 0.5).powi(power)).sum::<f64>() / 2e4;
            let (second, fourth) =
                (0.25 / (2.0 * alpha + 1.0), 3.0 / (16.0 * (2.0 * alpha + 1.0) * (2.0 * alpha + 3.0)));
            // Five standard errors; no deviation exceeds 1/2.
            let bound = |largest: f64| 5.0 * largest / 2e4f64.sqrt();
            assert!(moment(1).abs() < bound(second.sqrt()), "{alpha}: {}", moment(1));
            assert!((moment(2) - second).abs() < bound((fourth - second * second).sqrt()), "{alpha}: {}", moment(2));
            assert!((moment(4) - fourth).abs() < bound(0.0625), "{alpha}: {}", moment(4));
            assert!(draws.iter().all(|x| (0.0..=1.0).contains(x)));
        }
        let mut rng = stream(1, Purpose::Check, &[3]);
        assert!((0..2000).all(|_| beta(&mut rng, 1e-4).is_finite()));
    }
}
